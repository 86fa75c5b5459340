#include "passes/unreduced.h"

#include <algorithm>

#include "base/saturate.h"
#include "ir/local_size.h"

namespace piper {

Unreduced::Unreduced(const TrainingDag& dag, const DeviceClasses& classes)
    : made_(dag.nodes.size(), 0),
      reduced_(dag.nodes.size(), 0),
      waiting_(classes.count()),
      limit_(classes.count(), 0),
      dag_(dag),
      classes_(classes) {
  for (const Edge& edge : dag.edges) {
    const Node& to = dag[edge.to];
    if (edge.item.kind != Item::Kind::Gradients || to.tags.slice < 0) continue;
    int64_t& bytes = reduced_[edge.to.index()];
    if (bytes == 0) bytes = moved_bytes(dag, to);
    int64_t& made = made_[edge.from.index()];
    made = saturating_add(made, bytes);
    for (const int c : classes.of_group(to.group)) {
      int64_t& limit = limit_[static_cast<size_t>(c)];
      limit = std::max(limit, saturating_add(made, made));
    }
  }
}

void Unreduced::add(NodeId reduction) {
  for (const int c : classes_.of_group(dag_[reduction].group))
    waiting_[static_cast<size_t>(c)].push_back({reduction, std::nullopt});
}

void Unreduced::set_end(NodeId reduction, double end) {
  for (const int c : classes_.of_group(dag_[reduction].group))
    for (Gradients& gradients : waiting_[static_cast<size_t>(c)])
      if (gradients.reduction == reduction) gradients.end = end;
}

std::optional<int> Unreduced::full(NodeId computation, double now) {
  if (made_[computation.index()] == 0) return std::nullopt;
  for (const int c : classes_.of_group(dag_[computation].group)) {
    auto& waiting = waiting_[static_cast<size_t>(c)];
    std::erase_if(waiting, [&](const Gradients& gradients) { return gradients.end && *gradients.end <= now; });
    int64_t bytes = 0;
    for (const Gradients& gradients : waiting) bytes = saturating_add(bytes, reduced_[gradients.reduction.index()]);
    if (bytes > limit_[static_cast<size_t>(c)]) return c;
  }
  return std::nullopt;
}

std::optional<std::pair<NodeId, double>> Unreduced::next_to_end(int device_class) const {
  std::optional<std::pair<NodeId, double>> next;
  for (const auto& [reduction, end] : waiting_[static_cast<size_t>(device_class)])
    if (end && (!next || *end < next->second)) next = {reduction, *end};
  return next;
}

}  // namespace piper
