// How much of a copy over PCIe is hidden behind the steps of a plan on the same GPU: copies on a stream of their own,
// as a transfer is beside computation.
//   gpu_overlap_bench CONFIG.toml SCHEDULE.piper
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "../must.h"
#include "base/read_file.h"
#include "comm/gpu/check.h"
#include "runtime/gpu/gpu_processor.h"
#include "schedule/load_schedule.h"
#include "train/loop/training.h"

namespace {

using namespace piper;

constexpr size_t piece = 4 << 20;

/// Copies between memory of the host and of the GPU, one begun after the other has ended: a step's inputs go to the GPU
/// too, and would wait for all that is before them in that queue.
class Copies {
 public:
  explicit Copies(cudaMemcpyKind kind) : kind_(kind) {
    check_cuda(cudaMallocHost(&host_, piece), "take memory of the host");
    check_cuda(cudaMalloc(&gpu_, piece), "take memory of the GPU");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  }
  ~Copies() {
    cudaStreamDestroy(stream_);
    cudaFree(gpu_);
    cudaFreeHost(host_);
  }
  void begin(int pieces) {
    thread_ = std::thread([this, pieces] {
      const bool out = kind_ == cudaMemcpyDeviceToHost;
      for (int i = 0; i < pieces; ++i) {
        check_cuda(cudaMemcpyAsync(out ? host_ : gpu_, out ? gpu_ : host_, piece, kind_, stream_), "copy");
        check_cuda(cudaStreamSynchronize(stream_), "wait for a copy");
      }
    });
  }
  void end() { thread_.join(); }

 private:
  cudaMemcpyKind kind_;
  void *host_ = nullptr, *gpu_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::thread thread_;
};

/// Median seconds.
template <class Work>
double seconds(const Work& work) {
  std::vector<double> all;
  for (int i = 0; i < 9; ++i) {
    const Nanoseconds start = now();
    work();
    all.push_back(static_cast<double>(now() - start) * 1e-9);
  }
  std::nth_element(all.begin(), all.begin() + 4, all.end());
  return all[4];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fmt::print(stderr, "gpu_overlap_bench CONFIG.toml SCHEDULE.piper\n"), 2;
  const auto gpu = must(make_gpu_processor({.graphs = Graphs::Chunk}));
  const SourceFilePtr file = must(read_file(argv[1], "the configuration"));
  TrainingOptions options;
  options.processor = gpu.get();
  const auto training =
      must(Training::make(file, must(parse_train_config(file)), must(load_schedule(argv[2])), options));
  for (int i = 0; i < 6; ++i) training->step();
  const double step = seconds([&] { training->step(); });
  fmt::print("a step {:.2f} ms\n", step * 1e3);
  for (const auto& [name, kind] :
       {std::pair{"to the GPU", cudaMemcpyHostToDevice}, std::pair{"from the GPU", cudaMemcpyDeviceToHost}}) {
    Copies copies(kind);
    const auto alone = [&](int pieces) {
      return seconds([&] {
        copies.begin(pieces);
        copies.end();
      });
    };
    const int pieces = std::max(1, static_cast<int>(16 * step / 2 / alone(16)));  // half as long as a step
    const double copy = alone(pieces);
    const double both = seconds([&] {
      copies.begin(pieces);
      training->step();
      copies.end();
    });
    fmt::print("{:<14} {:.2f} ms for {} MiB alone, both {:.2f} ms: {:.0f} % hidden\n", name, copy * 1e3,
               static_cast<size_t>(pieces) * piece >> 20, both * 1e3,
               100 * (step + copy - both) / std::min(step, copy));
  }
}
