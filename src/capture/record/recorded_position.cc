#include "capture/record/recorded_position.h"

#include <ATen/SequenceNumber.h>
#include <fmt/format.h>

#include <algorithm>

namespace piper {

RecordedPosition::RecordedPosition(OperatorGraph& graph) : graph_(graph) {
  begin_segment(ScopeId());
}

void RecordedPosition::enter_scope(std::string_view name, const ScopeAttributes& attributes) {
  const int index = instances_[{scope_.value, std::string(name)}]++;
  graph_.scopes.push_back({scope_, std::string(name), index, attributes});
  scope_ = ScopeId(graph_.scopes.size() - 1);
  begin_segment(scope_);
}

void RecordedPosition::leave_scope() {
  scope_ = graph_[scope_].parent;
  begin_segment(scope_);
}

void RecordedPosition::begin_segment(ScopeId scope) {
  graph_.segments.push_back({scope});
  first_sequence_.push_back(at::sequence_number::peek());
}

void RecordedPosition::start_backward() {
  backward_ = true;
  backward_segment_ = graph_.calls.empty() ? 0 : graph_.calls.back().segment;  // where the loss was computed
}

void RecordedPosition::enter_node(int64_t sequence) {
  in_node_ = true;
  const auto after = std::upper_bound(first_sequence_.begin(), first_sequence_.end(), static_cast<uint64_t>(sequence));
  backward_segment_ = std::max<int>(0, static_cast<int>(after - first_sequence_.begin()) - 1);
  // a node is made just before the call that it belongs to
  const auto made = std::upper_bound(call_sequence_.begin(), call_sequence_.end(), static_cast<uint64_t>(sequence));
  forward_call_ =
      call_sequence_.empty()
          ? CallId()
          : CallId(std::min<size_t>(static_cast<size_t>(made - call_sequence_.begin()), call_sequence_.size() - 1));
}

int RecordedPosition::segment() const {
  return backward_ ? backward_segment_ : static_cast<int>(graph_.segments.size()) - 1;
}

void RecordedPosition::tag(Call& call) {
  call.backward = backward_;
  call.segment = segment();
  call.between_nodes = backward_ && !in_node_;
  if (backward_) call.forward = forward_call_;
  tagged_sequence_ = at::sequence_number::peek();
}

void RecordedPosition::added(const Call& call) {
  if (!call.backward) call_sequence_.push_back(tagged_sequence_);
}

std::string RecordedPosition::describe() const {
  const ScopeId scope = graph_.segments[static_cast<size_t>(segment())].scope;
  return fmt::format("{}, {}", scope_name(graph_, scope), backward_ ? "backward" : "forward");
}

}  // namespace piper
