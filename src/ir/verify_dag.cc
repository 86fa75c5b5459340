#include "ir/verify_dag.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/overloaded.h"

namespace piper {
namespace {

class Verifier {
 public:
  Verifier(const TrainingDag& dag, const std::vector<SourceRange>& places) : dag_(dag), places_(places) {
    with_communication_ = std::any_of(dag.nodes.begin(), dag.nodes.end(), [](const Node& n) { return !is_compute(n); });
  }

  Checked run() const {
    for (size_t n = 0; n < dag_.nodes.size(); ++n) PIPER_CHECK(check_node(static_cast<int>(n)));
    for (const Edge& edge : dag_.edges) PIPER_CHECK(check_edge(edge));
    return Ok{};
  }

 private:
  template <class AnyId>
  static bool inside(AnyId id, size_t size) {
    return id.valid() && id.index() < size;
  }
  /// At the node's line if it was read from text, else with the directive behind it.
  Diagnostic bad(int node, std::string_view what) const {
    const auto index = static_cast<size_t>(node);
    Diagnostic problem = error(ErrorCode::E410, index < places_.size() ? places_[index] : SourceRange{},
                               fmt::format("node %{} {}", node, what))
                             .help("print the DAG anew: piper compile MODEL SCHEDULE --emit dag");
    const Node& culprit = dag_.nodes[index];
    for (const auto& [by, did] : {std::pair(culprit.made_by, "made"), std::pair(culprit.placed_by, "placed")})
      if (inside(by, dag_.origins.size())) {
        const Origin& origin = dag_.origins[by.index()];
        problem.notes.push_back({origin.where, fmt::format("{} by {} ({})", did, origin.text, origin.place)});
      }
    return problem;
  }

  Checked check_node(int n) const {
    const Node& node = dag_.nodes[static_cast<size_t>(n)];
    const ModelGraph& model = *dag_.model;
    if (node.group.valid() && !inside(node.group, dag_.groups.group_count())) return bad(n, "runs on an unknown group");
    if (with_communication_ && !node.group.valid()) return bad(n, "is not placed");
    if (is_compute(node) && node.group.valid() && dag_.groups[node.group].size() % dag_.devices_per_sample() != 0)
      return bad(n, "runs on devices that do not divide among those who share samples");
    if (node.stream.valid() && !inside(node.stream, dag_.streams.size())) return bad(n, "runs on an unknown stream");
    if (node.tags.slice < -1 || node.tags.slice >= dag_.slices()) return bad(n, "has an unknown slice");
    if (node.tags.chunk.valid() && !inside(node.tags.chunk, model.chunks.size())) return bad(n, "has an unknown chunk");
    const auto good_item = [&](Item item) {
      if (item.is_value()) return inside(item.value_id(), model.values.size());
      return item.kind == Item::Kind::Scalars || inside(item.bucket_id(), dag_.buckets.size());
    };
    const bool good = std::visit(
        overloaded{
            [&](const Compute&) {
              return inside(node.tags.chunk, model.chunks.size()) && node.tags.pass && node.tags.slice >= 0 &&
                     model[node.tags.chunk].find(Pass::F) &&
                     (*node.tags.pass == Pass::F || *node.tags.pass == Pass::R || model[node.tags.chunk].find(Pass::B));
            },
            [&](const Transfer& t) {
              return inside(t.value, model.values.size()) && inside(t.from, dag_.groups.group_count()) &&
                     t.from != node.group;
            },
            [&](const Collective& c) {
              return c.item.kind != Item::Kind::None && good_item(c.item) &&
                     inside(c.over, dag_.groups.partition_count());
            },
            [&](const Update& u) { return inside(u.bucket, dag_.buckets.size()); },
        },
        node.op);
    return good ? Checked(Ok{}) : Checked(bad(n, "refers to something that does not exist"));
  }

  bool writes(const Node& node, ValueId value) const {
    return std::visit(overloaded{
                          [&](const Compute&) {
                            const auto& list = work_of(dag_, node).writes;
                            return std::find(list.begin(), list.end(), value) != list.end();
                          },
                          [&](const Transfer& t) { return t.value == value; },
                          [&](const Collective& c) { return c.item == Item::value(value); },
                          [&](const Update&) { return false; },
                      },
                      node.op);
  }

  Checked check_edge(const Edge& edge) const {
    if (!inside(edge.from, dag_.nodes.size()) || !inside(edge.to, dag_.nodes.size()))
      return error(ErrorCode::E410, {}, "an edge leads nowhere").help("every node that is named must be there");
    if (edge.item.kind == Item::Kind::Value) {
      if (!inside(edge.item.value_id(), dag_.model->values.size())) return bad(edge.to.value, "reads an unknown value");
      if (!writes(dag_[edge.from], edge.item.value_id()))
        return bad(edge.to.value, fmt::format("reads {} from %{}, which does not write it",
                                              (*dag_.model)[edge.item.value_id()].name, edge.from.value));
    }
    if (!with_communication_ || !edge.item.is_value()) return Ok{};
    const Node &from = dag_[edge.from], &to = dag_[edge.to];
    const auto* transfer = std::get_if<Transfer>(&to.op);
    const bool scalars =
        std::holds_alternative<Collective>(to.op) && std::get<Collective>(to.op).item.kind == Item::Kind::Scalars;
    const GroupId reader = transfer ? transfer->from : to.group;
    if (!scalars && from.group != reader)
      return bad(edge.to.value, fmt::format("reads from %{} on other devices without a transfer", edge.from.value));
    return Ok{};
  }

  const TrainingDag& dag_;
  const std::vector<SourceRange>& places_;  // the caller's
  bool with_communication_ = false;
};

}  // namespace

Checked verify(const TrainingDag& dag, const std::vector<SourceRange>& places) {
  return Verifier(dag, places).run();
}

}  // namespace piper
