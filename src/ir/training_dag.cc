#include "ir/training_dag.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/invariant.h"
#include "base/overloaded.h"
#include "schedule/schedule_text.h"

namespace piper {

NodeId TrainingDag::add(Node node) {
  nodes.push_back(std::move(node));
  return NodeId(nodes.size() - 1);
}

StreamId TrainingDag::stream(const std::string& name) {
  const auto found = std::find(streams.begin(), streams.end(), name);
  if (found != streams.end()) return StreamId(static_cast<size_t>(found - streams.begin()));
  streams.push_back(name);
  return StreamId(streams.size() - 1);
}

int TrainingDag::slices() const {
  int count = 1;
  for (const SliceDim& dim : dims) count *= dim.parts;
  return count;
}

Table<ParameterId, BucketId> bucket_of_parameter(const TrainingDag& dag) {
  Table<ParameterId, BucketId> out(dag.model->parameters.size());
  for (size_t b = 0; b < dag.buckets.size(); ++b)
    for (const ParameterId p : dag.buckets[b].parameters) out[p] = BucketId(b);
  return out;
}

const Sharding* Residence::find(ShardKind kind) const {
  const auto found = std::ranges::find(shardings, kind, &Sharding::kind);
  return found == shardings.end() ? nullptr : &*found;
}

const Sharding* Residence::find(SampleAxis axis) const {
  const auto found = std::ranges::find_if(shardings, [&](const Sharding& s) { return rule_of(s.kind).axis == axis; });
  return found == shardings.end() ? nullptr : &*found;
}

bool shared_axes_are_last(const TrainingDag& dag) {
  std::vector<std::string> wanted;
  for (const MeshAxis& axis : dag.shared.of)
    if (!axis.name.empty()) wanted.push_back(axis.name);
  std::vector<std::string> last;
  for (const MeshAxis& axis : dag.mesh) last.push_back(axis.name);
  return last.size() >= wanted.size() && std::equal(wanted.rbegin(), wanted.rend(), last.rbegin());
}

const Residence& TrainingDag::residence(ChunkId chunk, GroupId group) const {
  for (const Residence& residence : residences[chunk.index()])
    if (residence.group == group) return residence;
  internal_error("a placed chunk has a residence on its group");
}

GroupId TrainingDag::placed_as(GroupId group) const {
  for (const Remainder& remainder : remainders)
    if (remainder.group == group) return remainder.of;
  return group;
}

SourceRange TrainingDag::where(DirectiveId directive) const {
  return directive.valid() ? origins[directive.index()].where : SourceRange{};
}

namespace {

const ArgumentPlace* find_argument(const TrainingDag& dag, DirectiveId directive, std::string_view name) {
  return directive.valid() ? dag.origins[directive.index()].arguments.find(name) : nullptr;
}

}  // namespace

SourceRange TrainingDag::where(DirectiveId directive, std::initializer_list<std::string_view> arguments) const {
  for (const std::string_view name : arguments)
    if (const ArgumentPlace* found = find_argument(*this, directive, name)) return found->where;
  return where(directive);
}

SourceRange TrainingDag::where_item(DirectiveId directive, std::string_view argument, size_t index) const {
  const ArgumentPlace* found = find_argument(*this, directive, argument);
  return found && index < found->items.size() ? found->items[index].where : where(directive, {argument});
}

SourceRange TrainingDag::where_number(DirectiveId directive, std::string_view argument, size_t index) const {
  const ArgumentPlace* found = find_argument(*this, directive, argument);
  return found ? place_of_number(*found, static_cast<int64_t>(index)) : where(directive);
}

namespace {

/// Backward goes the other way, but the steps of a ring are taken in their order again: so keys come round.
std::vector<size_t> backward_order(const std::vector<Chunk>& chunks) {
  std::vector<size_t> out;
  for (size_t end = chunks.size(); end > 0;) {
    size_t begin = end - 1;
    while (begin > 0 && chunks[begin].rotation && chunks[begin - 1].rotation) --begin;
    for (size_t c = begin; c < end; ++c) out.push_back(c);
    end = begin;
  }
  return out;
}

}  // namespace

TrainingDag initial_dag(std::shared_ptr<const ModelGraph> model) {
  TrainingDag dag;
  dag.model = std::move(model);
  const ModelGraph& m = *dag.model;
  std::vector<NodeId> producer(m.values.size());
  const auto add = [&](size_t c, Pass pass) {
    const PassWork* work = m.chunks[c].find(pass);
    if (!work) return;
    const NodeId id = dag.add({Compute{}, {ChunkId(c), pass, 0}, {}, {}, {}, {}, {}});
    for (const ValueId value : work->writes) producer[value.index()] = id;
  };
  for (size_t c = 0; c < m.chunks.size(); ++c) add(c, Pass::F);
  for (const size_t c : backward_order(m.chunks)) add(c, Pass::B);
  for (size_t n = 0; n < dag.nodes.size(); ++n)
    for (const ValueId value : work_of(dag, dag.nodes[n]).reads)
      if (m[value].kind != ValueKind::Input)
        dag.edges.push_back({producer[value.index()], NodeId(n), Item::value(value), {}});
  dag.stream("compute");
  return dag;
}

const PassWork& work_of(const TrainingDag& dag, const Node& node) {
  const PassWork* work = (*dag.model)[node.tags.chunk].find(*node.tags.pass);
  if (work) return *work;
  // one part of backward is missing, so the other is the whole of it
  work = (*dag.model)[node.tags.chunk].find(Pass::B);
  invariant(work != nullptr, "a computation has work");
  return *work;
}

bool is_compute(const Node& node) {
  return std::holds_alternative<Compute>(node.op);
}

bool is_rounds(const Node& node) {
  const auto* collective = std::get_if<Collective>(&node.op);
  return collective && collective->kind == CollectiveKind::Rounds;
}

std::vector<const PassWork*> works_of(const TrainingDag& dag, const Node& node) {
  if (is_compute(node)) return {&work_of(dag, node)};
  if (!is_rounds(node)) return {};
  const Chunk& chunk = (*dag.model)[node.tags.chunk];
  if (node.tags.pass == Pass::F || node.tags.pass == Pass::R) return {chunk.find(Pass::F)};
  return {chunk.find(Pass::F), chunk.find(Pass::B)};
}

std::string slice_tags(const TrainingDag& dag, int slice, std::string_view separator, std::string_view equals) {
  if (slice < 0) return "";
  std::string out;
  for (auto dim = dag.dims.rbegin(); dim != dag.dims.rend(); ++dim) {
    out = fmt::format("{}{}{}{}", separator, dim->name, equals, slice % dim->parts) + out;
    slice /= dim->parts;
  }
  return out;
}

std::string_view name(UpdatePhase phase) {
  constexpr std::string_view names[] = {"", "directions", "matrices"};
  return names[static_cast<int>(phase)];
}

std::string_view comm_tag(const Node& node) {
  if (std::holds_alternative<Transfer>(node.op)) return "transfer";
  const auto* collective = std::get_if<Collective>(&node.op);
  if (!collective) return "";
  switch (collective->item.kind) {
    case Item::Kind::Value:
      switch (collective->kind) {
        case CollectiveKind::AllToAll:
        case CollectiveKind::Rounds:
          return "exchange";
        case CollectiveKind::AllGather:
          return "join";
        case CollectiveKind::LocalSlice:
          return "part";
        case CollectiveKind::Shift:
          return "shift";
        default:
          return "sum";
      }
    case Item::Kind::Gradients:
      return "reduce";
    case Item::Kind::Directions:
      return "directions";
    case Item::Kind::Weights:
      return "gather";
    case Item::Kind::Scalars:
      return "scalars";
    case Item::Kind::None:
      break;
  }
  internal_error("a collective carries an item");
}

std::string bucket_name(const TrainingDag& dag, BucketId bucket) {
  const std::vector<ParameterId>& parameters = dag[bucket].parameters;
  const std::string first = fmt::format("bucket{}.{}", bucket.value, (*dag.model)[parameters.front()].name);
  return parameters.size() == 1 ? first : fmt::format("{}..{}", first, (*dag.model)[parameters.back()].name);
}

std::string item_name(const TrainingDag& dag, Item item) {
  switch (item.kind) {
    case Item::Kind::Value:
      return (*dag.model)[item.value_id()].name;
    case Item::Kind::Gradients:
      return fmt::format("gradients{}", item.index);
    case Item::Kind::Directions:
      return fmt::format("directions{}", item.index);
    case Item::Kind::Weights:
      return fmt::format("weights{}", item.index);
    case Item::Kind::Scalars:
      return "scalars";
    case Item::Kind::None:
      return "after";
  }
  internal_error("an item has a kind");
}

std::string name_of(const TrainingDag& dag, NodeId id) {
  const Node& node = dag[id];
  const std::string pass = node.tags.pass ? fmt::format(".{}", name(*node.tags.pass)) : "";
  const std::string slice = slice_tags(dag, node.tags.slice, ".", "");
  const std::string devices = node.group.valid() ? print_devices(dag.groups[node.group].devices) : "";
  return std::visit(overloaded{
                        [&](const Compute&) { return (*dag.model)[node.tags.chunk].name + pass + slice; },
                        [&](const Transfer& t) {
                          return fmt::format("transfer.{}{}{}.to{}", (*dag.model)[t.value].name, pass, slice, devices);
                        },
                        [&](const Collective& c) {
                          const bool named = node.tags.chunk.valid() && node.tags.slice >= 0;
                          return fmt::format("{}.{}{}{}{}{}", name(c.kind), item_name(dag, c.item),
                                             named ? "." + (*dag.model)[node.tags.chunk].name : "", pass, slice,
                                             devices);
                        },
                        [&](const Update& u) {
                          return fmt::format("update.bucket{}{}{}{}", u.bucket.value,
                                             u.phase == UpdatePhase::All ? "" : ".", name(u.phase), devices);
                        },
                    },
                    node.op);
}

Adjacency adjacency(const TrainingDag& dag, Direction direction) {
  Adjacency out;
  const auto end = [&](const Edge& e) { return (direction == Direction::Successors ? e.from : e.to).index(); };
  out.offsets.assign(dag.nodes.size() + 1, 0);
  for (const Edge& edge : dag.edges) ++out.offsets[end(edge) + 1];
  for (size_t i = 1; i < out.offsets.size(); ++i) out.offsets[i] += out.offsets[i - 1];
  out.edges.resize(dag.edges.size());
  std::vector<int> next(out.offsets.begin(), out.offsets.end() - 1);
  for (size_t e = 0; e < dag.edges.size(); ++e)
    out.edges[static_cast<size_t>(next[end(dag.edges[e])]++)] = static_cast<int>(e);
  return out;
}

ComputeIndex::ComputeIndex(const TrainingDag& dag) : slices_(static_cast<size_t>(dag.slices())) {
  table_.assign(dag.model->chunks.size() * all_passes.size() * slices_, -1);
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const NodeTags& tags = dag.nodes[n].tags;
    if (!is_compute(dag.nodes[n])) continue;
    table_[(tags.chunk.index() * all_passes.size() + static_cast<size_t>(*tags.pass)) * slices_ +
           static_cast<size_t>(tags.slice)] = static_cast<int32_t>(n);
  }
}

}  // namespace piper
