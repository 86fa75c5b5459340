// What the runtime itself costs: CPU time of all threads for one operation of a plan, with computations that do
// nothing.
#include <ctime>

#include "waiting_job.h"

namespace {

using namespace piper;

constexpr const char* model_text = R"([model]
name = "small mixture"
arch = "reference-moe"
layers = 4
hidden = 16
heads = 2
vocab = 32
experts = 4
seq = 4

[step]
batch = {}
)";

struct Case {
  const char* what;
  int devices;
  std::string (*schedule)(int microbatches);
};

const Case cases[] = {
    {"one device", 1,
     [](int m) { return fmt::format("devices(1)\nsplit(batch, parts={}, as=mb)\nplace({{}}, devices=[0])\n", m); }},
    {"1F1B", 2,
     [](int m) {
       return fmt::format(
           "mesh(pp=2)\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages=2)\n"
           "use 1f1b(stages=stage, microbatches=mb)\n",
           m);
     }},
    {"DualPipeV, ZeRO-1, experts divided", 4, [](int m) {
       return fmt::format(
           "mesh(pp=2, dp=2)\nsplit(batch, parts={}, as=mb)\nplace({{}}, along=pp, stages=4, shape=v)\n"
           "replicate({{}}, along=dp, zero=1)\nshard({{experts=*}}, along=dp)\n"
           "use dualpipev(stages=stage, microbatches=mb)\n",
           m);
     }}};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

int main() {
  fmt::print("{:<36} {:>7} {:>12} {:>10} {:>16} {:>16}\n", "", "devices", "microbatches", "operations", "CPU us each",
             "least .. most");
  for (const Case& c : cases)
    for (const int microbatches : {8, 32, 128}) {
      const TrainableModel model = model_of(fmt::format(fmt::runtime(model_text), microbatches * 2));
      const PreparedTraining prepared = must(prepare_training(model, schedule_of(c.schedule(microbatches))));
      WaitingJob job(model, prepared, nullptr, nullptr);
      for (int i = 0; i < 3; ++i) job.step();
      std::vector<double> microseconds;
      const auto steps = std::max<size_t>(20000 / job.operations(), 3);
      for (int repetition = 0; repetition < 5; ++repetition) {
        const double start = cpu_seconds();
        for (size_t i = 0; i < steps; ++i) job.step();
        microseconds.push_back((cpu_seconds() - start) / static_cast<double>(steps * job.operations()) * 1e6);
      }
      const Sample sample = sample_of(std::move(microseconds));
      fmt::print("{:<36} {:>7} {:>12} {:>10} {:>16.2f} {:>8.2f} .. {:.2f}\n", c.what, c.devices, microbatches,
                 job.operations(), sample.median, sample.least, sample.most);
    }
}
