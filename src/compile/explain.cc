#include "compile/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/overloaded.h"
#include "base/suggest.h"
#include "ir/local_size.h"
#include "ir/select.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

constexpr size_t most_shown = 8;

std::string directive(const TrainingDag& dag, DirectiveId id) {
  const Origin& origin = dag.origins[id.index()];
  const std::string text = origin.text.size() > 160 ? origin.text.substr(0, 160) + " …" : origin.text;
  return fmt::format("{}: {}", origin.place, text);
}

std::string what_it_is(const TrainingDag& dag, const Node& node) {
  const std::string chunk = node.tags.chunk.valid() ? (*dag.model)[node.tags.chunk].name : "";
  return std::visit(
      overloaded{
          [&](const Compute&) { return fmt::format("computes pass {} of chunk {}", name(*node.tags.pass), chunk); },
          [&](const Transfer& t) {
            return fmt::format("moves {} ({} on each device) from {}", (*dag.model)[t.value].name,
                               human_bytes(written_bytes(dag, node, t.value)),
                               print_devices(dag.groups[t.from].devices));
          },
          [&](const Collective& c) {
            const Partition& over = dag.groups[c.over];
            return fmt::format("{} of {}, in {} parts of {} devices", comm_tag(node), item_name(dag, c.item),
                               over.parts(), over.part_size);
          },
          [&](const Update& u) {
            return fmt::format("updates {} parameters, {} elements", dag[u.bucket].parameters.size(),
                               dag[u.bucket].elements);
          },
      },
      node.op);
}

std::string neighbours(const TrainingDag& dag, const Adjacency& edges, NodeId id, bool before) {
  std::string out;
  const auto [first, last] = edges.of(id);
  size_t shown = 0;
  for (const int* e = first; e != last; ++e, ++shown) {
    if (shown == most_shown) {
      out += fmt::format("    … and {} more\n", last - e);
      break;
    }
    const Edge& edge = dag.edges[static_cast<size_t>(*e)];
    const std::string why = edge.item.kind == Item::Kind::None
                                ? (edge.made_by.valid() ? "ordered by " + directive(dag, edge.made_by) : "order")
                                : "for " + item_name(dag, edge.item);
    out += fmt::format("    {}  ({})\n", name_of(dag, before ? edge.from : edge.to), why);
  }
  return out;
}

std::string listed(std::string_view title, const std::vector<std::string>& items) {
  return items.empty() ? "" : fmt::format("  {}\n    {}\n", title, fmt::join(items, "\n    "));
}

/// What of a computation has dimensions with this label, which are divided among the devices of a part.
std::string what_is_divided(const TrainingDag& dag, const Node& node, std::string_view label, PartitionId among) {
  const PassWork& work = work_of(dag, node);
  std::vector<std::string> divided;
  const auto look = [&](const auto& thing) {
    if (labelled(thing.shape, label)) divided.push_back(fmt::format("{} {}", thing.name, print(thing.shape)));
  };
  for (const ParameterId p : work.parameters) look((*dag.model)[p]);
  for (const ValueId v : work.reads) look((*dag.model)[v]);
  for (const ValueId v : work.writes) look((*dag.model)[v]);
  return listed(fmt::format("each of {} devices has a part of", dag.groups[among].part_size), divided);
}

/// What every device of a tensor-parallel group computes only a term of.
std::string what_is_added_up(const TrainingDag& dag, const Node& node) {
  const PassWork& work = work_of(dag, node);
  std::vector<std::string> sums, maxima;
  for (const ValueId v : work.writes) {
    const Value& value = (*dag.model)[v];
    if (value.partial == Partial::Sum) sums.push_back(value.name);
    if (value.partial == Partial::Max) maxima.push_back(value.name);
  }
  for (const ParameterId p : work.gradients)
    if ((*dag.model)[p].partial) sums.push_back("the gradient of " + (*dag.model)[p].name);
  return listed("and a part of the sums", sums) + listed("and the greatest of its own in", maxima);
}

/// How a computation is sharded.
std::string division(const TrainingDag& dag, const Node& node) {
  const Residence& residence = dag.residence(node.tags.chunk, node.group);
  std::string out;
  for (const Sharding& sharding : residence.shardings) {
    if (!sharding.along) continue;
    out += fmt::format("  sharded by {}\n", directive(dag, sharding.by));
    out += what_is_divided(dag, node, label_of(sharding.kind), *sharding.along);
  }
  if (residence.group_along(SampleAxis::Tp)) out += what_is_added_up(dag, node);
  return out;
}

std::string explain_node(const TrainingDag& dag, NodeId id, const Adjacency& predecessors,
                         const Adjacency& successors) {
  const Node& node = dag[id];
  std::string out = fmt::format("{}\n  {}\n", name_of(dag, id), what_it_is(dag, node));
  out += fmt::format("  devices   {}\n", print_devices(dag.groups[node.group].devices));
  out += fmt::format("  stream    {}\n", dag.streams[node.stream.index()]);
  if (node.made_by.valid()) out += fmt::format("  made by   {}\n", directive(dag, node.made_by));
  if (node.placed_by.valid() && node.placed_by != node.made_by)
    out += fmt::format("  placed by {}\n", directive(dag, node.placed_by));
  if (is_compute(node)) out += division(dag, node);
  if (const auto found = dag.float8.find(node.tags.chunk); is_compute(node) && found != dag.float8.end())
    out += fmt::format("  float8 by {}\n", directive(dag, found->second));
  if (node.made_from.valid()) out += fmt::format("  made from {}\n", name_of(dag, node.made_from));
  const std::string before = neighbours(dag, predecessors, id, true), after = neighbours(dag, successors, id, false);
  if (!before.empty()) out += "  waits for\n" + before;
  if (!after.empty()) out += "  waited for by\n" + after;
  return out;
}

Result<std::vector<NodeId>> find(const TrainingDag& dag, const std::string& which) {
  const SourceFilePtr source = make_source("NODE", which);
  if (which.starts_with("{")) {
    PIPER_TRY(Scanner in, Scanner::scan(source));
    PIPER_TRY(const Filter filter, parse_filter(in));
    if (!in.at_end()) return in.unexpected("the end of the filter");
    return Selector(dag).nodes(filter, "explain");
  }
  if (which.starts_with("%"))  // as in the text of the DAG
    if (const auto number = parse_integer(which.substr(1));
        number && *number >= 0 && static_cast<size_t>(*number) < dag.nodes.size())
      return std::vector<NodeId>{NodeId(static_cast<size_t>(*number))};
  std::vector<std::string> candidates, containing;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    std::string name = name_of(dag, NodeId(n));
    if (name == which) return std::vector<NodeId>{NodeId(n)};
    if (containing.size() < 12 && name.find(which) != std::string::npos) containing.push_back(name);
    if (candidates.size() < 20'000) candidates.push_back(std::move(name));
  }
  return error(ErrorCode::E203, {source, 0, static_cast<int>(which.size())},
               fmt::format("explain: no node is called \"{}\"", which))
      .help(containing.empty() ? did_you_mean(which, candidates)
                               : fmt::format("names that contain it: {}", fmt::join(containing, ", ")))
      .help("a filter selects several: piper explain MODEL SCHEDULE '{layer=0, mb=0, pass=F}'");
}

}  // namespace

Result<std::string> explain(const Compiled& compiled, const std::string& which) {
  const TrainingDag& dag = compiled.linear.dag;
  PIPER_TRY(const std::vector<NodeId> nodes, find(dag, which));
  const Adjacency predecessors = adjacency(dag, Direction::Predecessors),
                  successors = adjacency(dag, Direction::Successors);
  std::string out;
  for (size_t i = 0; i < std::min(nodes.size(), most_shown); ++i)
    out += (i ? "\n" : "") + explain_node(dag, nodes[i], predecessors, successors);
  if (nodes.size() > most_shown) out += fmt::format("\n… and {} more nodes\n", nodes.size() - most_shown);
  return out;
}

}  // namespace piper
