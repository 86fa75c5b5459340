#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/overloaded.h"
#include "base/text/scanner.h"
#include "ir/dag_text.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

std::string_view word(Release release) {
  return release_words[static_cast<size_t>(release)];
}

/// ` key=value`, left out if there is none; `letter` says into which table the value points.
template <class AnyId>
std::string option(std::string_view key, AnyId id, std::string_view letter = "") {
  return id.valid() ? fmt::format(" {}={}{}", key, letter, id.value) : "";
}

std::string stream_option(const TrainingDag& dag, std::string_view key, StreamId stream) {
  return stream.valid() ? fmt::format(" {}={}", key, as_name(dag.streams[stream.index()])) : "";
}

std::string print_axes(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes) parts.push_back(fmt::format("{}={}", as_name(axis.name), axis.size));
  return fmt::format("({})", fmt::join(parts, ", "));
}

std::string print_groups(const GroupTable& groups) {
  std::string out;
  for (size_t g = 0; g < groups.group_count(); ++g) {
    const DeviceGroup& group = groups[GroupId(g)];
    out += fmt::format("group g{} {} {}\n", g, print_devices(group.devices), print_axes(group.axes));
  }
  for (size_t p = 0; p < groups.partition_count(); ++p) {
    const Partition& partition = groups[PartitionId(p)];
    out += fmt::format("partition p{} g{} size={} {}\n", p, partition.group.value, partition.part_size,
                       print_devices(partition.members));
  }
  return out;
}

std::string print_residence(const TrainingDag& dag, const Chunk& chunk, const Residence& r) {
  std::string out = fmt::format("residence {} g{}", as_name(chunk.name), r.group.value);
  out += stream_option(dag, "transfers", r.transfer_stream);
  out += "\n";
  if (const auto& copies = r.replication) {
    out += fmt::format("replicated over=p{} zero={} bucket={} release={}", copies->over.value, copies->zero,
                       copies->bucket, word(copies->release));
    out += fmt::format(" gather={} reduce={}", as_name(copies->gather_stream), as_name(copies->reduce_stream));
    out += option("by", copies->by) + "\n";
  }
  for (const Sharding& sharding : r.shardings) {
    out += fmt::format("sharded {}", rule_of(sharding.kind).name);
    if (sharding.along) out += option("along", *sharding.along, "p");
    out += fmt::format(" stream={}{}", as_name(sharding.stream), sharding.regather ? " regather=on" : "");
    if (sharding.buffer > 0) out += " buffer=" + print_load(sharding.buffer);
    out += option("by", sharding.by) + "\n";
  }
  return out;
}

std::string print_bucket(const TrainingDag& dag, size_t index, const Bucket& bucket) {
  std::vector<std::string> names;
  for (const ParameterId p : bucket.parameters) names.push_back(as_name((*dag.model)[p].name));
  std::string out = fmt::format("bucket k{} {} {} {} ({})\n", index, piper::name(bucket.dtype),
                                bucket.matrices    ? "matrices"
                                : bucket.trainable ? "trainable"
                                                   : "frozen",
                                bucket.elements, fmt::join(names, ", "));
  for (const Holder& h : bucket.holders) {
    out += fmt::format("holder k{} g{}{} zero={} release={}", index, h.group.value, option("over", h.copies, "p"),
                       h.zero, word(h.release));
    out += stream_option(dag, "gather", h.gather_stream) + stream_option(dag, "reduce", h.reduce_stream);
    if (h.shards != ShardCounts()) out += " " + piper::print(h.shards);
    if (h.sums) out += option("sums", *h.sums, "p");
    out += option("by", h.by) + "\n";
  }
  return out;
}

std::string print_tables(const TrainingDag& dag) {
  std::string out = fmt::format("dag {} devices={}\n", as_name(dag.model->name), dag.devices);
  for (size_t d = 0; d < dag.origins.size(); ++d)
    out += fmt::format("directive {} {} {}\n", d, as_name(dag.origins[d].place), as_name(dag.origins[d].text));
  if (!dag.mesh.empty()) out += fmt::format("mesh {}\n", print_axes(dag.mesh));
  if (!dag.lost.empty()) out += fmt::format("lost {}\n", print_devices(dag.lost));
  for (const SampleAxisRule& rule : sample_axes)
    if (const MeshAxis& axis = dag.shared[rule.axis]; axis.size > 1)
      out += fmt::format("{} {}{}\n", rule.name, as_name(axis.name),
                         rule.axis == SampleAxis::Cp && dag.token_order == TokenOrder::Contiguous ? " contiguous" : "");
  for (const SliceDim& dim : dag.dims)
    out += fmt::format("dim {} {}{}\n", as_name(dim.name), dim.parts, option("by", dim.made_by));
  for (const StageTags& stages : dag.stages)
    out += fmt::format("stages {} ({})\n", as_name(stages.tag), fmt::join(stages.of_chunk, ", "));
  for (const std::string& stream : dag.streams) out += fmt::format("stream {}\n", as_name(stream));
  out += print_groups(dag.groups);
  for (const Remainder& remainder : dag.remainders)
    out +=
        fmt::format("remainder g{} of g{}{}\n", remainder.group.value, remainder.of.value, option("by", remainder.by));
  for (const auto& [chunk, by] : dag.float8)
    out += fmt::format("float8 {}{}\n", as_name((*dag.model)[chunk].name), option("by", by));
  for (size_t c = 0; c < dag.residences.size(); ++c)
    for (const Residence& residence : dag.residences[c]) out += print_residence(dag, dag.model->chunks[c], residence);
  for (size_t b = 0; b < dag.buckets.size(); ++b) out += print_bucket(dag, b, dag.buckets[b]);
  return out;
}

/// A value by its name; what belongs to a bucket or to the step has brackets.
std::string print_item(const TrainingDag& dag, Item item) {
  switch (item.kind) {
    case Item::Kind::Value:
      return as_name((*dag.model)[item.value_id()].name);
    case Item::Kind::Gradients:
      return fmt::format("gradients(k{})", item.index);
    case Item::Kind::Directions:
      return fmt::format("directions(k{})", item.index);
    case Item::Kind::Weights:
      return fmt::format("weights(k{})", item.index);
    case Item::Kind::Scalars:
      return "scalars()";
    case Item::Kind::None:
      break;
  }
  return "";
}

std::string print_op(const TrainingDag& dag, const Node& node) {
  return std::visit(overloaded{
                        [](const Compute&) { return std::string("compute"); },
                        [&](const Transfer& t) {
                          return fmt::format("transfer {} from g{}", as_name((*dag.model)[t.value].name), t.from.value);
                        },
                        [&](const Collective& c) {
                          return fmt::format("{} {} over p{}{}", name(c.kind), print_item(dag, c.item), c.over.value,
                                             c.by == 0 ? "" : fmt::format(" by {}", c.by));
                        },
                        [](const Update& u) {
                          return fmt::format("update k{}{}{}", u.bucket.value, u.phase == UpdatePhase::All ? "" : " ",
                                             name(u.phase));
                        },
                    },
                    node.op);
}

/// `layer.0 F mb=1`; `-` for the chunk of what belongs to none.
std::string print_tags(const TrainingDag& dag, const NodeTags& tags) {
  std::string out = tags.chunk.valid() ? as_name((*dag.model)[tags.chunk].name) : "-";
  if (tags.pass) out += fmt::format(" {}", name(*tags.pass));
  if (tags.slice < 0) return out;
  if (dag.dims.empty()) return out + " whole";
  std::string dims;
  int slice = tags.slice;
  for (auto dim = dag.dims.rbegin(); dim != dag.dims.rend(); ++dim) {
    dims.insert(0, fmt::format(" {}={}", as_name(dim->name), slice % dim->parts));
    slice /= dim->parts;
  }
  return out + dims;
}

std::string print_edge(const TrainingDag& dag, const Edge& edge) {
  std::string out = fmt::format("%{}", edge.from.value);
  if (edge.item.kind != Item::Kind::None) out += fmt::format(":{}", print_item(dag, edge.item));
  if (edge.made_by.valid()) out += fmt::format("/{}", edge.made_by.value);
  return out;
}

std::string print_node(const TrainingDag& dag, NodeId id, const Adjacency& predecessors) {
  const Node& node = dag[id];
  std::string out = fmt::format("%{} = {} {}", id.value, print_op(dag, node), print_tags(dag, node.tags));
  if (node.group.valid()) out += fmt::format(" @ g{}", node.group.value);
  if (node.stream.valid()) out += fmt::format(" on {}", as_name(dag.streams[node.stream.index()]));
  const auto [first, last] = predecessors.of(id);
  for (const int* e = first; e != last; ++e)
    out += fmt::format("{}{}", e == first ? " after(" : ", ", print_edge(dag, dag.edges[static_cast<size_t>(*e)]));
  if (first != last) out += ")";
  out += option("by", node.made_by) + option("placed", node.placed_by) + option("from", node.made_from, "%");
  out += stream_option(dag, "transfers", node.transfers);
  return out + "\n";
}

std::string print_bracket(const Bracket& bracket) {
  std::string out = "bracket";
  for (const auto& part : bracket.parts) {
    std::vector<std::string> ids;
    for (const NodeId id : part) ids.push_back(fmt::format("%{}", id.value));
    out += fmt::format(" ({})", fmt::join(ids, ", "));
  }
  return out + option("by", bracket.made_by) + "\n";
}

}  // namespace

std::string print(const TrainingDag& dag) {
  std::string out = print_tables(dag);
  const Adjacency predecessors = adjacency(dag, Direction::Predecessors);
  for (size_t n = 0; n < dag.nodes.size(); ++n) out += print_node(dag, NodeId(n), predecessors);
  for (const Bracket& bracket : dag.brackets) out += print_bracket(bracket);
  for (const Prefetched& p : dag.prefetches)
    out += fmt::format("prefetch %{} {}{}\n", p.gather.value, p.distance ? fmt::format("{}", *p.distance) : "all",
                       option("by", p.made_by));
  return out;
}

}  // namespace piper
