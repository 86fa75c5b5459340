#include "runtime/cuda/graph_fills.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/gpu_memory.h"

namespace piper {
namespace {

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph, nullptr, &count), "look at a graph");
  std::vector<cudaGraphNode_t> out(count);
  check_cuda(cudaGraphGetNodes(graph, out.data(), &count), "look at a graph");
  return out;
}
bool is_fill(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  check_cuda(cudaGraphNodeGetType(node, &type), "look at a graph");
  return type == cudaGraphNodeTypeMemset;
}

/// A copy into memory, a fill of a part of it, a copy out of it: in this order, with the same bytes in the end.
TEST(GraphFills, AreKernelsThatWriteTheSame) {
  SKIP_WITHOUT_GPU();
  std::vector<std::byte> given(40000);
  for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<std::byte>(i * 7);
  const auto fill_of = [](unsigned element, unsigned value, size_t width, size_t height = 1, size_t pitch = 0) {
    cudaMemsetParams out = {};
    out.elementSize = element;
    out.value = value;
    out.width = width;
    out.height = height;
    out.pitch = pitch;
    return out;
  };
  const std::vector<cudaMemsetParams> fills = {fill_of(1, 0, 20000),           fill_of(1, 0xab, 7),
                                               fill_of(1, 0xcd, 4096),         fill_of(2, 0x1234, 9),
                                               fill_of(4, 0x12345678, 1),      fill_of(1, 0x11, 300, 5, 1000),
                                               fill_of(1, 0x22, 300, 5, 1001), fill_of(4, 0x33445566, 16, 3, 64)};
  for (const bool by_kernels : {false, true})
    for (size_t f = 0; f < fills.size(); ++f)
      for (const size_t at : {size_t{0}, size_t{4}, size_t{5}}) {
        cudaMemsetParams fill = fills[f];
        if (at % fill.elementSize != 0) continue;
        SCOPED_TRACE(testing::Message() << f << " at " << at << (by_kernels ? ", by kernels" : ""));
        const GpuMemory from(given), through(given), to(std::vector<std::byte>(given.size()));
        fill.dst = through.at() + at;
        cudaGraph_t graph = nullptr;
        check_cuda(cudaGraphCreate(&graph, 0), "make a graph");
        cudaGraphNode_t first, second, third;
        check_cuda(cudaGraphAddMemcpyNode1D(&first, graph, nullptr, 0, through.at(), from.at(), given.size(),
                                            cudaMemcpyDeviceToDevice),
                   "make a graph");
        check_cuda(cudaGraphAddMemsetNode(&second, graph, &first, 1, &fill), "make a graph");
        check_cuda(cudaGraphAddMemcpyNode1D(&third, graph, &second, 1, to.at(), through.at(), given.size(),
                                            cudaMemcpyDeviceToDevice),
                   "make a graph");
        if (by_kernels) {
          cuda::fill_by_kernels(graph);
          const std::vector<cudaGraphNode_t> nodes = nodes_of(graph);
          EXPECT_EQ(nodes.size(), 3u);
          EXPECT_TRUE(std::none_of(nodes.begin(), nodes.end(), is_fill));
        }
        cudaGraphExec_t ready = nullptr;
        check_cuda(cudaGraphInstantiate(&ready, graph, 0), "make a graph");
        check_cuda(cudaGraphLaunch(ready, nullptr), "launch a graph");
        check_cuda(cudaDeviceSynchronize(), "wait for the GPU");
        std::vector<std::byte> expected = given;
        for (size_t row = 0; row < fill.height; ++row)
          for (size_t i = 0; i < fill.width; ++i)
            for (size_t b = 0; b < fill.elementSize; ++b)
              expected[at + row * fill.pitch + i * fill.elementSize + b] =
                  static_cast<std::byte>(fill.value >> (8 * b));
        EXPECT_EQ(to.read(), expected);
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
      }
}

}  // namespace
}  // namespace piper
