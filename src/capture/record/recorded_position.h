// Where a model is while it is recorded: the scope in forward, the autograd node in backward.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/record/annotate.h"
#include "capture/record/operator_graph.h"

namespace piper {

/// Adds scopes and segments to the graph.
class RecordedPosition {
 public:
  explicit RecordedPosition(OperatorGraph& graph);

  void enter_scope(std::string_view name, const ScopeAttributes& attributes);
  void leave_scope();
  void start_backward();
  /// A node of the autograd graph starts: what it calls belongs to the segment that made it.
  void enter_node(int64_t sequence);
  void leave_node() { in_node_ = false; }

  /// Writes into a call that it was made here.
  void tag(Call& call);
  /// The call that was tagged last is in the graph now. Not all are: some only ask.
  void added(const Call& call);
  /// `layer.3, backward`
  std::string describe() const;

 private:
  void begin_segment(ScopeId scope);
  int segment() const;

  OperatorGraph& graph_;
  ScopeId scope_;
  std::map<std::pair<int32_t, std::string>, int> instances_;
  std::vector<uint64_t> first_sequence_;  // by segment: of the autograd nodes made in it
  std::vector<uint64_t> call_sequence_;   // by forward call in the graph: of the next autograd node
  uint64_t tagged_sequence_ = 0;          // the same of the call that was tagged last
  bool backward_ = false, in_node_ = false;
  int backward_segment_ = 0;
  CallId forward_call_;
};

}  // namespace piper
