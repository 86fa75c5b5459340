#include "capture/kernels/call_kernels.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "capture/kernels/kernel_regions.h"
#include "capture/kernels/kernel_text.h"

namespace piper {
namespace {

KernelText text_of(const ChunkIr& body, const KernelRegion& region, const OperatorTable& table,
                   const KernelTarget& target, const std::string& what) {
  return {kernel_text(body, region, table, target), what, c10::DeviceTypeName(target.device.type(), true)};
}

KernelTarget target_of(c10::Device device, const KernelStore& kernels) {
  return {device, device.is_cpu() ? at::get_num_threads() : 1, kernels.gpu()};
}

Call call_of(const ChunkIr& body, const KernelRegion& region, OperatorId run_kernel, const Kernel& kernel) {
  const Call& first = body.calls[region.calls[0]];
  Call out;
  out.op = run_kernel;
  out.arguments = {TensorList{region.inputs}, kernel.number};
  out.results = {TensorList{region.outputs}};
  out.writes = region.writes;
  out.segment = first.segment;
  out.backward = first.backward;
  return out;
}

}  // namespace

std::vector<KernelText> kernel_texts(const ChunkIr& body, const OperatorTable& table, c10::Device device,
                                     const std::string& what, const KernelStore& kernels) {
  std::vector<KernelText> out;
  for (const KernelLevel& level : kernel_levels(body, table, device))
    if (level.has_kernel) out.push_back(text_of(body, level.kernel, table, target_of(device, kernels), what));
  return out;
}

ChunkIr call_kernels(ChunkIr body, const OperatorGraph& graph, const OperatorTable& table, const std::string& what,
                     KernelStore& kernels, TriedCalls& tried) {
  const OperatorId run_kernel = operator_named(graph, "piper::run_kernel");
  const std::vector<int> views = views_of(body);
  std::vector<char> made(body.calls.size(), 0);
  std::vector<Call> calls;
  const auto show = [&](TensorId id) {
    each_view_to(body, views, id, [&](size_t view) {
      if (!std::exchange(made[view], 1)) calls.push_back(body.calls[view]);
    });
  };
  const auto put = [&](size_t i) {
    each_tensor(body.calls[i].arguments, show);
    if (!std::exchange(made[i], 1)) calls.push_back(body.calls[i]);
  };
  for (const KernelLevel& level : kernel_levels(body, table, tried.device())) {
    for (const size_t i : level.stays) put(i);
    if (level.has_kernel) {
      const KernelText text = text_of(body, level.kernel, table, target_of(tried.device(), kernels), what);
      const Kernel kernel = kernels.find(text);
      const Call call = call_of(body, level.kernel, run_kernel, kernel);
      const std::string problem = kernel.ok() ? tried.find(body, call, table).problem : kernel.problem;
      if (problem.empty()) {
        calls.push_back(call);
        continue;
      }
      kernels.refuse(text, problem);
    }
    for (const size_t i : level.kernel.calls) put(i);
  }
  for (const ContentUse& output : body.writes) show(output.inside);
  body.calls = std::move(calls);
  find_producers(body.tensors, body.calls);
  return body;
}

}  // namespace piper
