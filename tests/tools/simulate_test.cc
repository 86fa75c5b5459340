// piper simulate and piper compare, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "run_piper.h"

namespace piper::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string example = "simulate examples/moe.toml examples/dualpipe.piper --cluster h100 ";

json simulated(const std::string& options = "") {
  const ProgramResult result = run_piper(example + "--format json " + options, root);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return json::parse(result.output);
}

TEST(Simulate, NumbersAddUp) {
  const json step = simulated();
  EXPECT_EQ(step["version"], 1);
  const double seconds = step["seconds"];
  for (const auto& device : step["devices"]) {
    EXPECT_NEAR(device["compute_seconds"].get<double>() + device["exposed_seconds"].get<double>() +
                    device["idle_seconds"].get<double>(),
                seconds, 1e-9 * seconds);
    for (const auto& [stream, busy] : device["busy_seconds"].items()) EXPECT_LE(busy.get<double>(), seconds) << stream;
  }
  double path = 0;
  for (const auto& share : step["critical_path"]) path += share["seconds"].get<double>();
  EXPECT_NEAR(path, seconds, 1e-9 * seconds);
  const json checked = json::parse(
      run_piper("check examples/moe.toml examples/dualpipe.piper --cluster h100 --format json", root).output);
  EXPECT_EQ(checked["hash"], step["hash"]);
  for (size_t d = 0; d < step["devices"].size(); ++d)
    EXPECT_EQ(step["devices"][d]["peak_bytes"], checked["templates"][d]["peak_bytes"]) << "the proof's peak";
}

TEST(Simulate, ReportsSayWhatTheyAreAbout) {
  const std::string step = "examples/moe.toml examples/dualpipe.piper ";
  for (const std::string command : {"simulate ", "check "}) {
    EXPECT_THAT(run_piper(command + step + "--cluster h100 --batch 128", root).output,
                ::testing::StartsWith("small-moe, batch 128 x 2048 tokens; cluster h100\n8 devices: pp=4 x dp=2\n\n"));
    EXPECT_THAT(run_piper(command + step, root).output,
                HasSubstr("no --cluster: 300 TFLOPS, 2 TB/s and links of 50 GB/s assumed\n"));
    const json said = json::parse(run_piper(command + step + "--format json --batch 128", root).output);
    EXPECT_EQ(said["batch"], 128);
    EXPECT_EQ(said["sequence"], 2048);
    EXPECT_EQ(said["device_count"], 8);
    EXPECT_EQ(said["mesh"], (json{{"pp", 4}, {"dp", 2}}));
  }
  EXPECT_THAT(run_piper("compare " + step, root).output, HasSubstr("no --cluster: "));
}

/// The mean over steps and layers of the busier of two devices with two experts each.
TEST(Simulate, RoutingOfARun) {
  const std::string folder = temporary_folder();
  write_file(folder + "/s.piper",
             "mesh(ep=2)\nplace({}, mesh={})\nreplicate({}, along=ep)\nshard({experts=*}, along=ep, buffer=1)\n");
  write_file(folder + "/c.toml",
             "[model]\narch = \"mixtral\"\nhidden = 256\nlayers = 2\nheads = 4\nvocab = 256\nexperts = 4\n"
             "top_k = 2\nmoe_ffn = 512\ndropless = true\n[step]\nbatch = 4\nsequence = 256\n");
  write_file(folder + "/m.jsonl",
             "{\"format\": \"piper-metrics\", \"version\": 1}\n"
             "{\"step\": 0, \"loss\": 1, \"expert_load\": [[0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0]]}\n"
             "{\"step\": 1, \"loss\": 1, \"expert_load\": [[0, 0.25, 0.5, 0.25], [0.25, 0.25, 0.25, 0.25]]}\n");
  const auto simulated = [&](const std::string& file) {
    return run_piper("simulate c.toml s.piper --format json --no-hints --routing trace:" + file, folder);
  };
  const json step = json::parse(simulated("m.jsonl").output);
  EXPECT_NEAR(step["routing"]["busiest_load"].get<double>(), 1.25, 1e-9);
  EXPECT_NEAR(step["routing"]["further_rounds_load"].get<double>(), 0.25, 1e-9);
  EXPECT_EQ(step["routing"]["rounds"], 2);
  EXPECT_GT(step["seconds"].get<double>(), step["routing"]["balanced_seconds"].get<double>());
  write_file(folder + "/none.jsonl", "{\"format\": \"piper-metrics\", \"version\": 1}\n{\"step\": 0, \"loss\": 1}\n");
  EXPECT_THAT(simulated("none.jsonl").errors, HasSubstr("none.jsonl has no loads of experts"));
  write_file(folder + "/other.jsonl", "{\"step\": 0, \"expert_load\": [[0.5, 0.5]]}\n");
  EXPECT_THAT(simulated("other.jsonl").errors,
              HasSubstr("the trace has loads of 2 experts, the model has 4"));
}

TEST(Simulate, SameInputSameOutput) {
  EXPECT_EQ(run_piper(example + "--format json", root).output, run_piper(example + "--format json", root).output);
  EXPECT_EQ(run_piper(example, root).output, run_piper(example, root).output);
}

TEST(Simulate, AllDevicesAndWhatIf) {
  const double seconds = simulated()["seconds"];
  EXPECT_NEAR(simulated("--all-devices")["seconds"].get<double>(), seconds, 1e-9 * seconds);
  EXPECT_LE(simulated("--free-links")["seconds"].get<double>(), seconds);
  EXPECT_LT(simulated("--what-if compute=x2,bandwidth=x2")["seconds"].get<double>(), 0.9 * seconds);
  EXPECT_GT(simulated("--what-if bandwidth=x0.1")["seconds"].get<double>(), seconds);
  EXPECT_GT(simulated("--what-if nvlink=x0.1")["seconds"].get<double>(), seconds);
  EXPECT_EQ(simulated("--what-if infiniband=x0.1")["seconds"].get<double>(), seconds) << "all within a node";
  EXPECT_THAT(run_piper(example + "--what-if nvlin=x2", root).errors, HasSubstr("did you mean \"nvlink\"?"));
  const ProgramResult unknown = run_piper(example + "--what-if bandwith=x2", root);
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.errors, HasSubstr("did you mean \"bandwidth\""));
  EXPECT_THAT(run_piper(example + "--what-if compute=x0", root).errors, HasSubstr("must be a factor above 0"));
}

TEST(Simulate, TheTraceHasEveryOperation) {
  const std::string folder = temporary_folder(), file = folder + "/step.json";
  const ProgramResult result = run_piper(example + "--trace " + file, root);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const ProgramResult same = run_piper("trace diff " + file + " " + file, root);
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  const ProgramResult full = run_piper(example + "--trace /dev/full", root);
  EXPECT_EQ(full.exit_code, 3);
  EXPECT_THAT(full.errors, HasSubstr("cannot write /dev/full: No space left on device"));
}

TEST(Simulate, ABareTimeline) {
  const std::string folder = temporary_folder();
  write_file(folder + "/t.csv", "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n");
  const ProgramResult result = run_piper("simulate --timeline t.csv --cost F=1,I=1,W=1,comm=0 --format json", folder);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const json report = json::parse(result.output);
  EXPECT_EQ(report["makespan"], 8);
  EXPECT_EQ(report["busy"], (std::vector<double>{6, 6}));
  EXPECT_EQ(report["idle"], (std::vector<double>{2, 2}));
  EXPECT_EQ(report["span"], (std::vector<double>{8, 6}));
  EXPECT_EQ(report["span_bubble"], (std::vector<double>{2, 0}));
  EXPECT_EQ(report["peak_until_w"], (std::vector<int>{2, 2}));
  EXPECT_EQ(report["peak_until_i"], (std::vector<int>{2, 1}));
  EXPECT_THAT(run_piper("simulate --timeline t.csv", folder).output, HasSubstr("makespan 8"));
  EXPECT_THAT(run_piper("simulate --timeline t.csv --cost F=1:1:1", folder).errors, HasSubstr("costs of 3 stages"));
  EXPECT_EQ(run_piper("simulate", folder).exit_code, 2);
  EXPECT_EQ(run_piper("simulate --timeline t.csv --trace x", folder).exit_code, 2);
}

TEST(Compare, MarksTheBestAndKeepsWhatDoesNotFit) {
  const std::string folder = temporary_folder();
  const std::string usual = "mesh(pp=2)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=2)\n";
  write_file(folder + "/good.piper", usual + "use 1f1b(stages=stage, microbatches=mb)\n");
  write_file(folder + "/slow.piper", "devices(1)\nplace({}, devices=[0])\n");
  write_file(folder + "/wrong.piper", usual + "use 1f1c(stages=stage, microbatches=mb)\n");
  const std::string arguments =
      "compare " + root + "/examples/moe.toml slow.piper good.piper wrong.piper --cluster h100 --batch 256";
  const ProgramResult result = run_piper(arguments, folder);
  EXPECT_EQ(result.exit_code, 1) << "one of them fails";
  EXPECT_THAT(result.output, HasSubstr("*  good.piper"));
  EXPECT_LT(result.output.find("good.piper"), result.output.find("slow.piper")) << "what fits comes first";
  EXPECT_LT(result.output.find("slow.piper"), result.output.find("wrong.piper"));
  EXPECT_THAT(result.output, HasSubstr("E315: unknown timeline \"1f1c\""));
  const json table = json::parse(run_piper(arguments + " --format json", folder).output);
  ASSERT_EQ(table["schedules"].size(), 3u);
  EXPECT_EQ(table["schedules"][0]["best"], true);
  EXPECT_EQ(table["schedules"][0]["difference"], 0);
  EXPECT_EQ(table["schedules"][1]["fits"], false) << "a whole batch on one device";
  EXPECT_EQ(table["schedules"][1]["refused"]["code"], "E405");
  const double slower = table["schedules"][1]["seconds"].get<double>() / table["schedules"][0]["seconds"].get<double>();
  EXPECT_DOUBLE_EQ(table["schedules"][1]["difference"].get<double>(), slower - 1);
  EXPECT_EQ(run_piper("compare " + root + "/examples/moe.toml good.piper --batch 256", folder).exit_code, 0);
  EXPECT_EQ(run_piper("compare " + root + "/examples/moe.toml wrong.piper", folder).exit_code, 1);
}

}  // namespace
}  // namespace piper::testing
