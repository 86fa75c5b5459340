#include "capture/record/running_statistics.h"

#include <algorithm>
#include <array>
#include <string>

namespace piper {
namespace {

constexpr std::array running_names = {std::string_view("running_mean"), std::string_view("running_var")};
constexpr std::array saved_names = {std::string_view("save_mean"), std::string_view("save_invstd")};
constexpr std::array forward_names = {
    std::string_view("aten::native_batch_norm"),       std::string_view("aten::cudnn_batch_norm"),
    std::string_view("aten::miopen_batch_norm"),       std::string_view("aten::batch_norm_update_stats"),
    std::string_view("aten::batch_norm_gather_stats"), std::string_view("aten::batch_norm_gather_stats_with_counts")};
constexpr std::array backward_names = {std::string_view("aten::native_batch_norm_backward"),
                                       std::string_view("aten::cudnn_batch_norm_backward"),
                                       std::string_view("aten::miopen_batch_norm_backward")};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool in_training(const OperatorGraph& graph, const Call& call) {
  for (const char* name : {"training", "train"})
    if (const Argument* training = find_argument(graph, call, name)) return std::get<bool>(*training);
  return true;
}

template <class Names>
void take_out(const OperatorGraph& graph, Call& call, const Names& names) {
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (among(names, graph[call.op].arguments[i])) call.arguments[i] = None{};
}

}  // namespace

bool changes_silently(std::string_view op, std::string_view argument) {
  return among(forward_names, op) && among(running_names, argument);
}

void forget_statistics(const OperatorGraph& graph, Call& call) {
  if (!call.op.valid() || !among(forward_names, graph[call.op].name) || !in_training(graph, call)) return;
  take_out(graph, call, running_names);
  call.writes.clear();
}

void forget_unread_statistics(const OperatorGraph& graph, Call& call) {
  if (!among(backward_names, graph[call.op].name)) return;
  if (in_training(graph, call))
    take_out(graph, call, running_names);
  else
    take_out(graph, call, saved_names);
}

}  // namespace piper
