#include "runtime/processor.h"

#include "runtime/stream/thread_stream.h"

namespace piper {
namespace {

class HostSide : public DeviceSide {
 public:
  bool has_clock() const override { return false; }
  void begin(int64_t) override {}
  void started(OpId) override {}
  void ended(OpId) override {}
  void launch(IdRange<OpId>, CudaGraph& graph) override { graph.launch(); }
  bool has_ended(OpId) const override { return true; }
  void end(FlightRecorder&) override {}
  OpId culprit(OpId op) override { return op; }
  ArenaUse arena() const override { return {}; }
  Branch* branch() override { return nullptr; }
};

class HostProcessor : public Processor {
 public:
  c10::Device device() const override { return c10::kCPU; }
  std::unique_ptr<Stream> make_stream(const StreamMaking& making) override {
    return std::make_unique<ThreadStream>(making.on_thread, making.failed);
  }
  std::unique_ptr<DeviceSide> make_side(size_t) override { return std::make_unique<HostSide>(); }
  Graphs graphs() const override { return Graphs::None; }
  std::unique_ptr<CudaGraph> make_graph() override { return nullptr; }
  std::unique_ptr<RecordedSeeds> make_seeds(size_t) override { return nullptr; }
  bool memory_belongs_to_streams() const override { return false; }
  void warm_up() override {}
  std::vector<std::unique_ptr<Communicator>> make_world(int devices, LocalOptions options) override {
    return make_local_world(devices, std::move(options));
  }
  std::vector<std::unique_ptr<Communicator>> join(std::vector<std::unique_ptr<Communicator>> host_communicators,
                                                  std::chrono::milliseconds) override {
    return host_communicators;  // memory of the host is what they carry
  }
  void enter_thread() override {}

  void initialize_state(const ElementTypes& types, Optimizer kind, const std::byte* weights, std::byte* state,
                        int64_t count) override {
    piper::initialize_state(types, kind, weights, state, count);
  }
  void update(const OptimizerSettings& settings, const ElementTypes& types, int64_t step, const GradientScale& scale,
              std::byte* weights, const std::byte* gradients, std::byte* state, int64_t count,
              ElementPart part) override {
    piper::update(settings, types, step, scale, weights, gradients, state, count, part);
  }
  std::vector<double> read(std::span<const at::Tensor> scalars, std::span<const ElementSpan> ranges) override {
    std::vector<double> out;
    for (const at::Tensor& scalar : scalars) out.push_back(scalar.item<double>());
    for (const ElementSpan& range : ranges) out.push_back(sum_of_squares(range.dtype, range.elements, range.count));
    return out;
  }
  void finish() override {}
};

}  // namespace

Processor& host_processor() {
  static HostProcessor processor;
  return processor;
}

}  // namespace piper
