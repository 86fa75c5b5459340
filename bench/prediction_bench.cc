// Predicted and measured step times under an emulated network, with computations that wait as long as they were
// profiled.
//   prediction_bench            the table
//   prediction_bench FOLDER     and the traces of both, for `piper trace diff`
#include "base/write_file.h"
#include "sim/as_trace.h"
#include "sim/simulate.h"
#include "trace/chrome.h"
#include "train/loop/measured.h"
#include "waiting_job.h"

namespace {

using namespace piper;

constexpr const char* model_text = R"([model]
name = "reference"
arch = "reference"
layers = 8
hidden = 128
heads = 4
vocab = 256
seq = 64

[step]
batch = 16
)";

struct Case {
  const char* timeline;
  const char* placement;
};
constexpr Case cases[] = {
    {"1f1b", "stages=4"}, {"interleaved-1f1b", "stages=8"}, {"zb-h1", "stages=4"}, {"dualpipev", "stages=8, shape=v"}};

Schedule schedule_with(const Case& c) {
  return schedule_of(
      fmt::format("mesh(pp=4)\nsplit(batch, parts=8, as=mb)\nplace({{}}, along=pp, {})\n"
                  "use {}(stages=stage, microbatches=mb)\n",
                  c.placement, c.timeline));
}

void write(const std::string& path, const Trace& trace) {
  if (auto written = write_file(path, print_chrome(trace)); !written) fmt::print(stderr, "{}", render(written.error()));
}

}  // namespace

int main(int argc, char** argv) {
  const Cluster cluster = one_level(100e-6, 100e6);
  const TrainableModel model = model_of(model_text);
  fmt::print("{:<18} {:>12} {:>12} {:>20} {:>20}\n", "4 devices", "predicted ms", "measured ms", "least .. most",
             "predicted / measured");
  for (const Case& c : cases) {
    CompileOptions options;
    options.cluster = cluster;
    options.costs = profiled(model, must(prepare_training(model, schedule_with(c), options)));
    const PreparedTraining prepared = must(prepare_training(model, schedule_with(c), options));
    SimOptions alone;  // as emulated: every message has its links to itself
    alone.shared_links = false;
    const Simulation predicted = must(simulate(*prepared.plan, cluster, &*options.costs, alone));
    WaitingJob job(model, prepared, &*options.costs, &cluster);
    job.step();  // computes
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) seconds.push_back(job.step());
    const Sample measured = sample_of(std::move(seconds));
    fmt::print("{:<18} {:>12.2f} {:>12.2f} {:>10.2f} .. {:.2f} {:>18.3f}\n", c.timeline, predicted.seconds * 1e3,
               measured.median * 1e3, measured.least * 1e3, measured.most * 1e3, predicted.seconds / measured.median);
    if (argc > 1) {
      const std::string stem = fmt::format("{}/{}", argv[1], c.timeline);
      write(stem + ".predicted.json", as_trace(*prepared.plan, cluster, predicted));
      write(stem + ".measured.json", measured_trace(*prepared.plan, flights_of(job.job().devices()), cluster, 0));
    }
  }
}
