#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/gpu/check.h"
#include "runtime/cuda/graph_fills.h"

namespace piper::cuda {
namespace {

constexpr unsigned threads = 256;

/// So many rows of so many words each, one row every `pitch` bytes.
template <class Word>
__global__ void fill_rows(std::byte* to, Word value, size_t width, size_t rows, size_t pitch) {
  const size_t step = size_t{gridDim.x} * blockDim.x, first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (size_t row = 0; row < rows; ++row, to += pitch)
    for (size_t i = first; i < width; i += step) reinterpret_cast<Word*>(to)[i] = value;
}

/// Since CUDA 13 edges carry data.
void neighbours(cudaGraphNode_t node, bool before, cudaGraphNode_t* out, size_t* count) {
#if CUDART_VERSION >= 13000
  check_cuda(before ? cudaGraphNodeGetDependencies(node, out, nullptr, count)
                    : cudaGraphNodeGetDependentNodes(node, out, nullptr, count),
             "look at a graph");
#else
  check_cuda(before ? cudaGraphNodeGetDependencies(node, out, count) : cudaGraphNodeGetDependentNodes(node, out, count),
             "look at a graph");
#endif
}
std::vector<cudaGraphNode_t> neighbours(cudaGraphNode_t node, bool before) {
  size_t count = 0;
  neighbours(node, before, nullptr, &count);
  std::vector<cudaGraphNode_t> out(count);
  if (count > 0) neighbours(node, before, out.data(), &count);
  return out;
}

void add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  check_cuda(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1), "change a graph");
#else
  check_cuda(cudaGraphAddDependencies(graph, &from, &to, 1), "change a graph");
#endif
}

template <class Word>
cudaGraphNode_t add_fill(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, const cudaMemsetParams& fill) {
  auto* to = static_cast<std::byte*>(fill.dst);
  auto value = static_cast<Word>(fill.value);
  size_t width = fill.width, rows = fill.height, pitch = fill.pitch;
  void* arguments[] = {&to, &value, &width, &rows, &pitch};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(&fill_rows<Word>);
  kernel.gridDim = static_cast<unsigned>(std::clamp<size_t>((width + threads - 1) / threads, 1, 1024));
  kernel.blockDim = threads;
  kernel.kernelParams = arguments;
  cudaGraphNode_t out = nullptr;
  check_cuda(cudaGraphAddKernelNode(&out, graph, after.data(), after.size(), &kernel), "change a graph");
  return out;
}

/// Four bytes at a time, where all of them are the same and the memory has such borders.
cudaMemsetParams widened(cudaMemsetParams fill) {
  const bool rows_fit = fill.height <= 1 || fill.pitch % 4 == 0;
  if (fill.elementSize != 1 || fill.width % 4 != 0 || reinterpret_cast<uintptr_t>(fill.dst) % 4 != 0 || !rows_fit)
    return fill;
  fill.elementSize = 4;
  fill.width /= 4;
  fill.value = (fill.value & 0xff) * 0x01010101u;
  return fill;
}

}  // namespace

void fill_by_kernels(cudaGraph_t graph) {
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "look at a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "look at a graph");
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    check_cuda(cudaGraphNodeGetType(node, &type), "look at a graph");
    if (type != cudaGraphNodeTypeMemset) continue;
    cudaMemsetParams found;
    check_cuda(cudaGraphMemsetNodeGetParams(node, &found), "look at a graph");
    const cudaMemsetParams fill = widened(found);
    const std::vector<cudaGraphNode_t> before = neighbours(node, true), after = neighbours(node, false);
    const auto add = fill.elementSize == 4   ? add_fill<uint32_t>
                     : fill.elementSize == 2 ? add_fill<uint16_t>
                                             : add_fill<uint8_t>;
    const cudaGraphNode_t made = add(graph, before, fill);
    for (const cudaGraphNode_t next : after) add_edge(graph, made, next);
    check_cuda(cudaGraphDestroyNode(node), "change a graph");
  }
}

}  // namespace piper::cuda
