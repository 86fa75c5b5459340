// The directive JSON of the original Piper: its published schedules compile to verified plans, each of its rules is
// enforced with a place and a way out, and what it cannot say is refused.
#include "schedule/json_schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "compile/compile.h"
#include "model/model_text.h"
#include "schedule/load_schedule.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

namespace fs = std::filesystem;
const fs::path oracle_path =
    fs::path(PIPER_SOURCE_DIR) / ".." / "shared" / "oracles" / "vectors" / "piper_directives.json";

Schedule read_json(const std::string& text) {
  auto schedule = parse_json_schedule(make_source("s.json", text));
  EXPECT_TRUE(schedule) << text << "\n" << (schedule ? "" : render(schedule.error()));
  return schedule ? *std::move(schedule) : Schedule{};
}

Schedule read_text(const std::string& text) {
  auto schedule = parse_schedule(make_source("s", text));
  EXPECT_TRUE(schedule) << text << "\n" << (schedule ? "" : render(schedule.error()));
  return schedule ? *std::move(schedule) : Schedule{};
}

// Models that fit the published schedules: regions called PP, as the original annotates them.

constexpr const char* one_region = R"(
model one
step batch=2 sequence=4 optimizer=sgd
input tokens int64 [b, 4]
input labels int64 [b, 4]
value x float32 [b, 4, 8]
value logits float32 [b, 4, 32]
loss loss float32 []
parameter table float32 [32, 8]
parameter out float32 [32, 8]
chunk all {PP=0}
  F (tokens, labels) -> (loss, x, logits) parameters(table, out) flops=2048*b
  B (tokens, labels, x, logits) -> () parameters(out) gradients(table, out) flops=4096*b
)";

/// Two regions; `out` may be the table of the first.
std::string two_regions(const std::string& out) {
  return R"(
model two
step batch=4 sequence=4 optimizer=sgd
input tokens int64 [b, 4]
input labels int64 [b, 4]
value x float32 [b, 4, 8]
value d.x float32 [b, 4, 8]
value logits float32 [b, 4, 32]
loss loss float32 []
parameter table float32 [32, 8]
parameter hidden float32 [8, 8]
)" + std::string(out == "out" ? "parameter out float32 [32, 8]\n" : "") +
         R"(chunk first {PP=0}
  F (tokens) -> (x) parameters(table, hidden) flops=512*b
  B (tokens, d.x) -> () parameters(hidden) gradients(table, hidden) flops=1024*b
  BW (tokens, d.x) -> () parameters(hidden) gradients(table, hidden) flops=1024*b
chunk second {PP=1, HEAD=0}
  F (x, labels) -> (loss, logits) parameters()" +
         out + R"() flops=2048*b
  B (x, labels, logits) -> (d.x) parameters()" +
         out + R"() gradients()" + out + R"() flops=4096*b
  BI (labels, logits) -> (d.x) parameters()" +
         out + R"() flops=2048*b
  BW (x, labels, logits) -> () gradients()" +
         out + R"() flops=2048*b
)";
}

Result<Compiled> compiled(const std::string& model_text, const Schedule& schedule) {
  PIPER_TRY(ModelGraph model, parse_model(make_source("model", model_text)));
  CompileOptions options;
  options.verify_every_pass = true;
  return compile(std::make_shared<const ModelGraph>(std::move(model)), schedule, options);
}

Compiled compile_or_fail(const std::string& model_text, const Schedule& schedule) {
  auto result = compiled(model_text, schedule);
  EXPECT_TRUE(result) << (result ? "" : render(result.error()));
  return result ? *std::move(result) : Compiled{};
}

/// Writing and reading again changes nothing, in JSON and as text.
void expect_round_trip(const Schedule& schedule) {
  auto written = print_json_schedule(schedule);
  ASSERT_TRUE(written) << render(written.error());
  EXPECT_EQ(print(read_json(*written)), print(schedule));
  EXPECT_EQ(read_json(*written), schedule);
  EXPECT_EQ(read_text(print(schedule)), schedule);
}

// ---- the published schedules, restated

constexpr const char* dp2_minimal = R"([
  {"op": "place", "filter": {"PP": 0}, "devices": [0, 1]},
  {"op": "replicate", "filter": {"PP": 0}, "devices": [0, 1], "reduce_stream": "dp_stream"}])";

constexpr const char* pp2_dp2 = R"([
  {"op": "place", "filter": {"PP": 0}, "devices": [0, 2], "stream": "pp_stream"},
  {"op": "place", "filter": {"PP": 1}, "devices": [1, 3], "stream": "pp_stream"},
  {"op": "replicate", "filter": {"PP": 0}, "devices": [0, 2]},
  {"op": "replicate", "filter": {"PP": 1}, "devices": [1, 3]},
  {"op": "split", "filter": {}, "dim_name": "MB", "num_microbatches": 1},
  {"op": "order", "filters": [[{"PP": 0, "MB": 0, "PASS": "F"}], [{"PP": 0, "MB": 0, "PASS": "B"}]]},
  {"op": "order", "filters": [[{"PP": 1, "MB": 0, "PASS": "F"}], [{"PP": 1, "MB": 0, "PASS": "B"}]]}])";

TEST(JsonSchedule, ReadsIntoOurOwnWords) {
  EXPECT_EQ(print(read_json(dp2_minimal)),
            "devices(2)\n"
            "place({PP=0}, devices=[0, 1])\n"
            "replicate({PP=0}, devices=[0, 1], zero=0, reduce_stream=dp_stream)\n");
  EXPECT_EQ(print(read_json(pp2_dp2)),
            "devices(4)\n"
            "split(batch, parts=1, as=MB)\n"
            "place({PP=0}, devices=[0, 2], transfers=pp_stream)\n"
            "place({PP=1}, devices=[1, 3], transfers=pp_stream)\n"
            "replicate({PP=0}, devices=[0, 2], zero=0)\n"
            "replicate({PP=1}, devices=[1, 3], zero=0)\n"
            "order({PP=0, MB=0, pass=F}, {PP=0, MB=0, pass=B})\n"
            "order({PP=1, MB=0, pass=F}, {PP=1, MB=0, pass=B})\n");
}

TEST(JsonSchedule, RestatedSchedulesCompile) {
  EXPECT_EQ(compile_or_fail(one_region, read_json(dp2_minimal)).linear.dag.devices, 2);
  EXPECT_EQ(compile_or_fail(two_regions("out"), read_json(pp2_dp2)).linear.dag.devices, 4);
}

TEST(JsonSchedule, EverySettingOfReplicateAndShard) {
  const Schedule schedule = read_json(R"([
    {"op": "shard", "filter": {"EXPERTS": "*"}, "devices": [0, 1], "stream": "ep_stream"},
    {"op": "shard", "filter": {"EXPERTS": 2}, "devices": [2]},
    {"op": "replicate", "filter": {}, "devices": [0, 1], "gather_stream": "g", "reduce_stream": "r",
     "shard_grads": true, "shard_params": true, "bucket_size": 10},
    {"op": "replicate", "filter": {}, "devices": [5], "shard_grads": true, "shard_params": false, "bucket_size": 0.5},
    {"op": "replicate", "filter": {}, "devices": [5], "gather_stream": null, "bucket_size": null}])");
  EXPECT_EQ(print(schedule),
            "devices(6)\n"
            "replicate({}, devices=[0, 1], zero=3, bucket=10MB, gather_stream=g, reduce_stream=r)\n"
            "replicate({}, devices=[5], zero=2, bucket=500KB)\n"
            "replicate({}, devices=[5], zero=0)\n"
            "shard({EXPERTS=*}, devices=[0, 1], stream=ep_stream)\n"
            "shard({EXPERTS=2}, devices=[2])\n");
  expect_round_trip(schedule);
}

TEST(JsonSchedule, BracketsAreGroupsOfSeveralFilters) {
  const Schedule schedule = read_json(
      R"([{"op": "order", "filters": [[{"MB": 0, "PASS": "F"}], [{"MB": 1, "PASS": "F"}, {"MB": 0, "PASS": "B"}]]}])");
  EXPECT_EQ(print(schedule), "devices(1)\norder({MB=0, pass=F}, [{MB=1, pass=F}, {MB=0, pass=B}])\n");
  expect_round_trip(schedule);
}

TEST(JsonSchedule, KeepsPlaces) {
  const Schedule schedule = read_json(dp2_minimal);
  const Directive& replicate = schedule.directives[2];
  EXPECT_EQ(short_place(replicate.where), "s.json:3");
  EXPECT_EQ(position_of(replicate.where).column, 4);
  const auto& body = std::get<Replicate>(replicate.body);
  EXPECT_EQ(position_of(body.what.conditions[0].where).column, 34);
  EXPECT_EQ(position_of(body.devices.where).column, 44);
}

// ---- the published schedules, from the file

nlohmann::json oracle() {
  std::ifstream in(oracle_path);
  return in ? nlohmann::json::parse(in) : nlohmann::json();
}

std::string model_for(const std::string& name) {
  if (name.starts_with("dp2")) return one_region;
  return two_regions(name.starts_with("tied") ? "table" : "out");
}

TEST(JsonSchedule, PublishedSchedulesCompileToVerifiedPlans) {
  const nlohmann::json all = oracle();
  if (all.is_null()) GTEST_SKIP() << "no " << oracle_path;
  int schedules = 0;
  for (const auto& [name, entry] : all.items()) {
    if (name == "rules" || name.starts_with("_")) continue;
    SCOPED_TRACE(name);
    ++schedules;
    const nlohmann::json& directives = entry.is_array() ? entry : entry.at("schedule");
    for (const int indent : {-1, 2}) {
      const Schedule schedule = read_json(directives.dump(indent));
      expect_round_trip(schedule);
      const Compiled plan = compile_or_fail(model_for(name), schedule);
      EXPECT_EQ(plan.linear.dag.devices, name == "pp2_dp2" ? 4 : name.starts_with("tied") ? 1 : 2);
    }
  }
  EXPECT_EQ(schedules, 4);
}

// ---- its rules

struct RefusedJson {
  std::string text;
  std::string at;  // the text that the place points to
  std::string message;
  std::string help;
  ErrorCode code = ErrorCode::E107;
};

void expect_json_refused(const RefusedJson& wanted) {
  SCOPED_TRACE(wanted.text);
  auto schedule = parse_json_schedule(make_source("s.json", wanted.text));
  ASSERT_FALSE(schedule);
  const Diagnostic& problem = schedule.error();
  EXPECT_EQ(problem.code, wanted.code) << render(problem);
  EXPECT_EQ(problem.message, wanted.message);
  ASSERT_FALSE(problem.helps.empty()) << render(problem);
  EXPECT_EQ(problem.helps[0], wanted.help);
  EXPECT_EQ(static_cast<size_t>(problem.where.begin), wanted.text.find(wanted.at)) << render(problem);
  EXPECT_TRUE(wanted.text.substr(static_cast<size_t>(problem.where.begin)).starts_with(wanted.at));
}

const std::string devices_help = "write \"devices\": [0, 1]";

/// By rule, word for word as in the file; rules without entries are tested by name further down.
const std::map<std::string, std::vector<RefusedJson>> rules = {
    {"place/replicate/shard need filter (object) and a non-empty devices list; filters (plural) is rejected",
     {{R"([{"op": "place", "devices": [0]}])", "{\"op\"", "place: needs \"filter\"", "add \"filter\": {\"PP\": 0}"},
      {R"([{"op": "shard", "filter": [], "devices": [0]}])", "[], ", "shard: a filter is an object",
       R"(write {"PP": 0, "MB": 2, "PASS": "F"}, or {} for everything)"},
      {R"([{"op": "replicate", "filter": {}}])", "{\"op\"", "replicate: needs \"devices\"", "add \"devices\": [0, 1]"},
      {R"([{"op": "place", "filter": {}, "devices": []}])", "\"devices\"",
       "place: \"devices\" must be a list of at least one device", devices_help},
      {R"([{"op": "place", "filter": {}, "devices": 0}])", "\"devices\"",
       "place: \"devices\" must be a list of at least one device", devices_help},
      {R"([{"op": "place", "filter": {}, "devices": [0, -1]}])", "-1",
       "place: a device is a whole number from 0 to 999999", devices_help},
      {R"([{"op": "place", "filter": {}, "devices": [0, 1.5]}])", "1.5",
       "place: a device is a whole number from 0 to 999999", devices_help},
      {R"([{"op": "place", "filters": [{}], "devices": [0]}])", "\"filters\"", "place: takes no \"filters\"",
       "did you mean \"filter\"?"},
      {R"([{"op": "shard", "filters": [{}], "filter": {}, "devices": [0]}])", "\"filters\"",
       "shard: takes no \"filters\"", "did you mean \"filter\"?"}}},
    {"replicate rejects stream; place/shard reject gather_stream/reduce_stream",
     {{R"([{"op": "replicate", "filter": {}, "devices": [0], "stream": "s"}])", "\"stream\"",
       "replicate: takes no \"stream\"", "use \"gather_stream\" and \"reduce_stream\""},
      {R"([{"op": "place", "filter": {}, "devices": [0], "gather_stream": "s"}])", "\"gather_stream\"",
       "place: takes no \"gather_stream\"", "use \"stream\""},
      {R"([{"op": "shard", "filter": {}, "devices": [0], "reduce_stream": "s"}])", "\"reduce_stream\"",
       "shard: takes no \"reduce_stream\"", "use \"stream\""}}},
    {"PASS values: F, B, BI, BW (string) only",
     {{R"([{"op": "place", "filter": {"PASS": "FWD"}, "devices": [0]}])", "\"PASS\"",
       "place: \"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"", "known: F, B, BI, BW"},
      {R"([{"op": "place", "filter": {"PASS": "bw"}, "devices": [0]}])", "\"PASS\"",
       "place: \"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"", "did you mean \"BW\"?"},
      {R"([{"op": "place", "filter": {"PASS": "*"}, "devices": [0]}])", "\"PASS\"",
       "place: \"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"", "known: F, B, BI, BW"},
      {R"([{"op": "place", "filter": {"PASS": 0}, "devices": [0]}])", "\"PASS\"",
       "place: \"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"", "write it in double quotes"},
      {R"([{"op": "order", "filters": [[{"PASS": "F"}], [{"PASS": "R"}]]}])", "\"PASS\": \"R\"",
       "order: \"PASS\" must be \"F\", \"B\", \"BI\" or \"BW\"", "known: F, B, BI, BW"}}},
    {"filter value \"*\" matches any non-null index; a filter key missing from a node tag does not match", {}},
    {"split needs filter, non-empty dim_name, num_microbatches > 0",
     {{R"([{"op": "split", "dim_name": "MB", "num_microbatches": 2}])", "{\"op\"", "split: needs \"filter\"",
       "add \"filter\": {\"PP\": 0}"},
      {R"([{"op": "split", "filter": {}, "num_microbatches": 2}])", "{\"op\"", "split: needs \"dim_name\"",
       "add \"dim_name\": \"MB\""},
      {R"([{"op": "split", "filter": {}, "dim_name": "", "num_microbatches": 2}])", "\"\"",
       "split: \"dim_name\" must be a name", "write a string in double quotes, not empty"},
      {R"([{"op": "split", "filter": {}, "dim_name": 3, "num_microbatches": 2}])", "3",
       "split: \"dim_name\" must be a name", "write a string in double quotes, not empty"},
      {R"([{"op": "split", "filter": {}, "dim_name": "MB"}])", "{\"op\"", "split: needs \"num_microbatches\"",
       "add \"num_microbatches\": 4"},
      {R"([{"op": "split", "filter": {}, "dim_name": "MB", "num_microbatches": 0}])", "0",
       "split: \"num_microbatches\" must be a whole number from 1 to 1000000", "1 leaves the batch in one piece"},
      {R"([{"op": "split", "filter": {}, "dim_name": "MB", "num_microbatches": "2"}])", "\"2\"",
       "split: \"num_microbatches\" must be a whole number from 1 to 1000000", "1 leaves the batch in one piece"},
      {R"([{"op": "split", "filter": {"PP": 0}, "dim_name": "MB", "num_microbatches": 2}])", "\"PP\"",
       "split: cuts the whole batch; its filter must be {}", "write \"filter\": {}"}}},
    {"order needs filters = list of >= 2 non-empty groups of filters",
     {{R"([{"op": "order"}])", "{\"op\"", "order: needs \"filters\"",
       R"(add "filters": [[{"PP": 0, "PASS": "F"}], [{"PP": 0, "PASS": "B"}]])"},
      {R"([{"op": "order", "filters": [[{"PP": 0}]]}])", "\"filters\"",
       "order: \"filters\" must be a list of at least two groups of filters",
       R"(write "filters": [[{"PP": 0, "PASS": "F"}], [{"PP": 0, "PASS": "B"}]])"},
      {R"([{"op": "order", "filters": {}}])", "\"filters\"",
       "order: \"filters\" must be a list of at least two groups of filters",
       R"(write "filters": [[{"PP": 0, "PASS": "F"}], [{"PP": 0, "PASS": "B"}]])"},
      {R"([{"op": "order", "filters": [[{"PP": 0}], []]}])", "[]", "order: a group is a list of at least one filter",
       R"(write [{"PP": 0, "PASS": "F"}])"},
      {R"([{"op": "order", "filters": [{"PP": 0}, {"PP": 1}]}])", "{\"PP\": 0}",
       "order: a group is a list of at least one filter", R"(write [{"PP": 0, "PASS": "F"}])"},
      {R"([{"op": "order", "filters": [[{"PP": 0}], [7]]}])", "7", "order: a filter is an object",
       R"(write {"PP": 0, "MB": 2, "PASS": "F"}, or {} for everything)"},
      {R"([{"op": "order", "filter": {}, "filters": [[{"PP": 0}], [{"PP": 1}]]}])", "\"filter\"",
       "order: takes no \"filter\"", "did you mean \"filters\"?"}}},
    {"BI and BW for the same (other tags) must both appear, exactly once each, in the same order directive, BI before "
     "BW",
     {{R"([{"op": "order", "filters": [[{"PP": 0, "PASS": "F"}], [{"PP": 0, "PASS": "BI"}]]}])",
       "{\"PP\": 0, \"PASS\": \"BI\"}", "order: BI without BW of {PP=0}",
       "add the BW behind it in the same order, or use B"},
      {R"([{"op": "order", "filters": [[{"PP": 0, "PASS": "BW"}], [{"PP": 1, "PASS": "F"}]]}])",
       "{\"PP\": 0, \"PASS\": \"BW\"}", "order: BW without BI of {PP=0}",
       "add the BI before it in the same order, or use B"},
      {R"([{"op": "order", "filters": [[{"PP": 0, "PASS": "BW"}], [{"PASS": "BI", "PP": 0}]]}])",
       "{\"PP\": 0, \"PASS\": \"BW\"}", "order: BW before BI of {PP=0}", "BW needs what BI leaves; let BI come first"},
      {R"([{"op": "order", "filters": [[{"PP": 0, "MB": 1, "PASS": "BI"}], [{"MB": 1, "PP": 0, "PASS": "BI"}], [{"PP": 0, "MB": 1, "PASS": "BW"}]]}])",
       "{\"MB\": 1", "order: a second BI of {PP=0, MB=1}", "keep one of them"},
      {R"([{"op": "order", "filters": [[{"PASS": "BI"}], [{"PASS": "BW"}]]},
           {"op": "order", "filters": [[{"PASS": "F"}], [{ "PASS": "BW"}]]}])",
       "{ \"PASS\"", "order: a second BW of {}", "keep one of them"},
      {R"([{"op": "order", "filters": [[{"PASS": "F"}], [{"PASS": "BI"}]]},
           {"op": "order", "filters": [[{"PASS": "F"}], [{"PASS": "BW"}]]}])",
       "{\"PASS\": \"BW\"}", "order: BW in another order than BI of {}", "put both into one order"}}},
    {"a tag name used in a schedule but absent from the model annotations is an error", {}},
    {"bucket_size is in MB and must be > 0",
     {{R"([{"op": "replicate", "filter": {}, "devices": [0], "bucket_size": 0}])", "\"bucket_size\"",
       "replicate: \"bucket_size\" must be a number of MB greater than 0",
       "write \"bucket_size\": 25 for buckets of 25,000,000 bytes"},
      {R"([{"op": "replicate", "filter": {}, "devices": [0], "bucket_size": -1}])", "\"bucket_size\"",
       "replicate: \"bucket_size\" must be a number of MB greater than 0",
       "write \"bucket_size\": 25 for buckets of 25,000,000 bytes"},
      {R"([{"op": "replicate", "filter": {}, "devices": [0], "bucket_size": "25"}])", "\"bucket_size\"",
       "replicate: \"bucket_size\" must be a number of MB greater than 0",
       "write \"bucket_size\": 25 for buckets of 25,000,000 bytes"},
      {R"([{"op": "replicate", "filter": {}, "devices": [0], "bucket_size": 1e300}])", "\"bucket_size\"",
       "replicate: \"bucket_size\" must be a number of MB greater than 0",
       "write \"bucket_size\": 25 for buckets of 25,000,000 bytes"}}},
    {"BI/BW in an order splits the fused backward: BI keeps the data edges, BW depends on BI, the update waits for BW",
     {}},
};

TEST(JsonSchedule, EveryRuleIsEnforced) {
  for (const auto& [rule, cases] : rules)
    for (const RefusedJson& wanted : cases) expect_json_refused(wanted);
}

TEST(JsonSchedule, EveryRuleOfTheFileIsHere) {
  const nlohmann::json all = oracle();
  if (all.is_null()) GTEST_SKIP() << "no " << oracle_path;
  for (const std::string rule : all.at("rules")) EXPECT_TRUE(rules.contains(rule)) << rule;
  EXPECT_EQ(all.at("rules").size(), rules.size());
}

/// The devices of every computation of a chunk.
std::set<DeviceList> devices_of(const TrainingDag& dag, std::string_view chunk) {
  std::set<DeviceList> out;
  for (const Node& node : dag.nodes)
    if (is_compute(node) && (*dag.model)[node.tags.chunk].name == chunk) out.insert(dag.groups[node.group].devices);
  return out;
}

TEST(JsonSchedule, AStarIsAnyIndexAndMissingTagsDoNotMatch) {
  const Compiled plan = compile_or_fail(two_regions("out"), read_json(R"([
    {"op": "place", "filter": {"HEAD": "*"}, "devices": [1]},
    {"op": "place", "filter": {"PP": 0}, "devices": [0]}])"));
  EXPECT_EQ(devices_of(plan.linear.dag, "first"), (std::set<DeviceList>{{0}}));
  EXPECT_EQ(devices_of(plan.linear.dag, "second"), (std::set<DeviceList>{{1}}));
}

TEST(JsonSchedule, TagsTheModelDoesNotHave) {
  auto result = compiled(one_region, read_json(R"([{"op": "place", "filter": {"PQ": 0}, "devices": [0]}])"));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::E202);
  EXPECT_EQ(position_of(result.error().where).column, 29);
  ASSERT_FALSE(result.error().helps.empty());
  EXPECT_EQ(result.error().helps[0], "did you mean \"PP\"?");
}

struct Found {
  NodeId input, weight, update, transfer;
};

/// The halves of `second`'s backward, the update that its weights get, and the transfer of its input's gradient.
Found find_halves(const TrainingDag& dag) {
  Found out;
  for (size_t n = 0; n < dag.nodes.size(); ++n) {
    const Node& node = dag.nodes[n];
    const bool second = node.tags.chunk.valid() && (*dag.model)[node.tags.chunk].name == "second";
    if (is_compute(node) && second && node.tags.pass == Pass::BI) out.input = NodeId(n);
    if (is_compute(node) && second && node.tags.pass == Pass::BW) out.weight = NodeId(n);
    if (std::holds_alternative<Update>(node.op) && second) out.update = NodeId(n);
    const auto* transfer = std::get_if<Transfer>(&node.op);
    if (transfer && (*dag.model)[transfer->value].name == "d.x") out.transfer = NodeId(n);
  }
  return out;
}

bool reaches(const TrainingDag& dag, NodeId from, NodeId to) {
  std::vector<char> seen(dag.nodes.size(), 0);
  std::vector<NodeId> open = {from};
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    if (at == to) return true;
    for (const Edge& edge : dag.edges)
      if (edge.from == at && !seen[edge.to.index()]++) open.push_back(edge.to);
  }
  return false;
}

TEST(JsonSchedule, HalvesOfABackward) {
  const Schedule schedule = read_json(R"([
    {"op": "place", "filter": {"PP": 0}, "devices": [0]},
    {"op": "place", "filter": {"PP": 1}, "devices": [1]},
    {"op": "order", "filters": [[{"PP": 1, "PASS": "F"}], [{"PP": 1, "PASS": "BI"}], [{"PP": 1, "PASS": "BW"}]]}])");
  expect_round_trip(schedule);
  const TrainingDag dag = compile_or_fail(two_regions("out"), schedule).linear.dag;
  const Found found = find_halves(dag);
  ASSERT_TRUE(found.input.valid() && found.weight.valid() && found.update.valid() && found.transfer.valid());
  EXPECT_TRUE(reaches(dag, found.input, found.weight));
  EXPECT_TRUE(reaches(dag, found.input, found.transfer));
  EXPECT_FALSE(reaches(dag, found.weight, found.transfer));
  EXPECT_TRUE(reaches(dag, found.weight, found.update));
}

// ---- what else can be wrong

TEST(JsonSchedule, NotASchedule) {
  const std::string start = R"(start with [{"op": "place", "filter": {}, "devices": [0]}])";
  expect_json_refused({"{}", "{}", "a schedule is a list of at least one directive", start});
  expect_json_refused({" [] ", "[]", "a schedule is a list of at least one directive", start});
  expect_json_refused(
      {"[1]", "1", "a directive is an object", R"(write {"op": "place", "filter": {"PP": 0}, "devices": [0]})"});
  expect_json_refused({"[{}]", "{}", "the directive has no \"op\"", "known: order, place, replicate, shard, split"});
  expect_json_refused(
      {R"([{"op": 3}])", "3", "\"op\" must be a string", "known: order, place, replicate, shard, split"});
  expect_json_refused({R"([{"op": "plaec"}])", "\"plaec\"", "unknown op \"plaec\"", "did you mean \"place\"?"});
  expect_json_refused(
      {R"([{"op": "mesh"}])", "\"mesh\"", "unknown op \"mesh\"", "known: order, place, replicate, shard, split"});
}

TEST(JsonSchedule, UnknownAndRepeatedKeys) {
  expect_json_refused({R"([{"op": "place", "filter": {}, "device": [0]}])", "\"device\"", "place: takes no \"device\"",
                       "did you mean \"devices\"?"});
  expect_json_refused({R"([{"op": "place", "filter": {}, "devices": [0], "filter" : {}}])",
                       "\"filter\" :", "\"filter\" stands twice in one object", "keep one of them"});
  expect_json_refused({R"([{"op": "place", "filter": {"PP": 0, "PP":1}, "devices": [0]}])", "\"PP\":1",
                       "\"PP\" stands twice in one object", "keep one of them"});
}

TEST(JsonSchedule, ValuesOfTheWrongKind) {
  const std::string index_help = "write a whole number from 0 on, or \"*\" for any index";
  for (const std::string value : {"-1", "1.5", "[0, 1]", "true", "null", "\"0..3\"", "99999999999"})
    expect_json_refused({R"([{"op": "place", "filter": {"PP": )" + value + R"(}, "devices": [0]}])", "\"PP\"",
                         "place: \"PP\" must be an index or \"*\"", index_help});
  expect_json_refused({R"([{"op": "place", "filter": {"pass": "F"}, "devices": [0]}])", "\"pass\"",
                       "place: \"pass\" has a meaning of its own and is no tag of the model",
                       "did you mean \"PASS\"?"});
  expect_json_refused({R"([{"op": "place", "filter": {"": 0}, "devices": [0]}])", "\"\"", "place: a tag needs a name",
                       "write a name such as \"PP\""});
  expect_json_refused({R"([{"op": "place", "filter": {}, "devices": [0], "stream": 7}])", "7",
                       "place: \"stream\" must be a name", "write a string in double quotes, not empty"});
  expect_json_refused({R"([{"op": "place", "filter": {}, "devices": [0], "stream": "a\nb"}])", "\"a\\nb\"",
                       "place: \"stream\" must be a name", "write a string in double quotes, not empty"});
  expect_json_refused({R"([{"op": "replicate", "filter": {}, "devices": [0], "shard_grads": "yes"}])", "\"yes\"",
                       "replicate: \"shard_grads\" must be true or false", "write it without quotes"});
  expect_json_refused({R"([{"op": "replicate", "filter": {}, "devices": [0], "shard_params": true}])",
                       "\"shard_params\"", "replicate: \"shard_params\" goes with \"shard_grads\"",
                       "add \"shard_grads\": true (ZeRO-3), or take \"shard_params\" out"});
  expect_json_refused({R"([{"op": "split", "filter": {}, "dim_name": "PASS", "num_microbatches": 2}])", "\"PASS\"",
                       "split: \"PASS\" has a meaning of its own", "use another \"dim_name\", such as \"MB\""});
}

TEST(JsonSchedule, SplitOfEverythingByStar) {
  EXPECT_EQ(print(read_json(R"([{"op": "split", "filter": {"PP": "*"}, "dim_name": "MB", "num_microbatches": 2}])")),
            "devices(1)\nsplit(batch, parts=2, as=MB)\n");
}

void expect_bad_json(const std::string& text, int line, int column, const std::string& message) {
  SCOPED_TRACE(text);
  auto schedule = parse_json_schedule(make_source("s.json", text));
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().code, ErrorCode::E106);
  EXPECT_EQ(position_of(schedule.error().where).line, line) << render(schedule.error());
  EXPECT_EQ(position_of(schedule.error().where).column, column) << render(schedule.error());
  EXPECT_EQ(schedule.error().message, message);
}

TEST(JsonSchedule, NotJson) {
  expect_bad_json("", 1, 1, "bad JSON while parsing value: unexpected end of input; expected '[', '{', or a literal");
  expect_bad_json("[\n  {\"op\": place}]", 2, 10, "bad JSON while parsing value: invalid literal");
  expect_bad_json("[\n 1,\n]", 3, 1, "bad JSON while parsing value: unexpected ']'; expected '[', '{', or a literal");
  expect_bad_json("[1] x", 1, 5, "bad JSON while parsing value: invalid literal; expected end of input");
  expect_bad_json("[\"\xFF\"]", 1, 3, "bad JSON while parsing value: invalid string: ill-formed UTF-8 byte");
  expect_bad_json("[1e999]", 1, 6, "bad JSON number overflow parsing '1e999'");
}

TEST(JsonSchedule, ByteOrderMarkIsSkipped) {
  EXPECT_EQ(position_of(read_json("\xEF\xBB\xBF" + std::string(dp2_minimal)).directives[1].where).line, 2);
}

TEST(JsonSchedule, DeepAndLargeInputIsRefusedNotFatal) {
  for (const std::string bracket : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += bracket;
    expect_bad_json(deep, 1, 1 + static_cast<int>(16 * bracket.size()), "brackets are nested more than 16 deep");
  }
  std::string many = "[0";
  for (int i = 0; i < 2'000'000; ++i) many += ",0";
  auto schedule = parse_json_schedule(make_source("s.json", many + "]"));
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().code, ErrorCode::E113);
  std::string keys = "[{";
  for (int i = 0; i < 1000; ++i) keys += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  schedule = parse_json_schedule(make_source("s.json", keys + "}]"));
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().message, "an object has more than 64 keys");
}

// ---- writing

TEST(JsonSchedule, WritesOneDirectivePerLine) {
  auto written =
      print_json_schedule(read_text("devices(2)\n"
                                    "split(batch, parts=4, as=MB)\n"
                                    "place({PP=*}, devices=[0, 1])\n"
                                    "replicate({}, devices=[0, 1], zero=2, bucket=1500KB)\n"
                                    "order({MB=0, pass=F}, [{MB=1, pass=F}, {MB=0, pass=B}])\n"));
  ASSERT_TRUE(written) << render(written.error());
  EXPECT_EQ(*written,
            "[\n"
            R"(  {"op":"split","filter":{},"dim_name":"MB","num_microbatches":4},)"
            "\n"
            R"(  {"op":"place","filter":{"PP":"*"},"devices":[0,1],"stream":"p2p"},)"
            "\n"
            R"(  {"op":"replicate","filter":{},"devices":[0,1],"gather_stream":"dp","reduce_stream":"dp",)"
            R"("shard_grads":true,"shard_params":false,"bucket_size":1.5},)"
            "\n"
            R"(  {"op":"order","filters":[[{"MB":0,"PASS":"F"}],[{"MB":1,"PASS":"F"},{"MB":0,"PASS":"B"}]]})"
            "\n]\n");
}

TEST(JsonSchedule, BucketsSurviveToTheByte) {
  for (const int64_t bytes : {int64_t{1}, int64_t{123'456'789}, int64_t{25} << 20, (int64_t{1} << 50) + 1}) {
    Schedule schedule = read_text("devices(1)\nreplicate({}, devices=[0])");
    std::get<Replicate>(schedule.directives[1].body).bucket = bytes;
    expect_round_trip(schedule);
  }
}

struct Unwritable {
  std::string text;
  int column;
  std::string message;
};

TEST(JsonSchedule, WhatTheFormatCannotSay) {
  const Unwritable cases[] = {
      {"mesh(pp=2)", 1, "mesh: does not exist in the JSON format"},
      {"recompute({layer=0})", 1, "recompute: does not exist in the JSON format"},
      {"precision({layer=0})", 1, "precision: does not exist in the JSON format"},
      {"prefetch({comm=gather})", 1, "prefetch: does not exist in the JSON format"},
      {"use 1f1b()", 1, "use: does not exist in the JSON format"},
      {"replicate({}, devices=[0], zero=1)", 1, "replicate: zero=1 cannot be written in the JSON format"},
      {"replicate({}, devices=[0], release=step)", 1, "replicate: release=… cannot be written in the JSON format"},
      {"replicate({}, along=dp)", 15, "replicate: axes of a mesh cannot be written in the JSON format"},
      {"place({}, mesh={pp=0})", 11, "place: axes of a mesh cannot be written in the JSON format"},
      {"place({}, along=pp, stages=2)", 1, "place: stages=… cannot be written in the JSON format"},
      {"place({}, devices=[0], stream=x)", 1,
       "place: computations on the stream \"x\" cannot be written in the JSON format"},
      {"place({}, devices=[0], shape=v)", 1, "place: shape=… cannot be written in the JSON format"},
      {"shard({}, devices=[0] | [1])", 11, "shard: several lists of devices cannot be written in the JSON format"},
      {"place({layer=0..3}, devices=[0])", 8, "place: {layer=0..3} cannot be written in the JSON format"},
      {"place({layer=[0, 2]}, devices=[0])", 8, "place: {layer=[0, 2]} cannot be written in the JSON format"},
      {"order({pass=F}, {pass=R})", 18, "order: {pass=R} cannot be written in the JSON format"},
      {"order({pass=F}, {pass=[BI, BW]})", 18, "order: {pass=[BI, BW]} cannot be written in the JSON format"},
      {"order({pass=F}, {comm=reduce})", 18, "order: {comm=reduce} cannot be written in the JSON format"},
      {"order({pass=F}, {PASS=0})", 18, "order: {PASS=0} cannot be written in the JSON format"},
      {"split(batch, parts=2, as=PASS)", 1, "split: \"PASS\" has a meaning of its own there in the JSON format"},
      {"order({pass=F}, {pass=BI})", 17, "order: BI without BW of {}"},
      {"place({}, devices=[0], stream=compute, transfers=\"\xFF\")", 1, "place: a name is not UTF-8"},
  };
  for (const Unwritable& wanted : cases) {
    SCOPED_TRACE(wanted.text);
    auto written = print_json_schedule(read_text("devices(9)\n" + wanted.text));
    ASSERT_FALSE(written) << *written;
    EXPECT_EQ(written.error().code, ErrorCode::E107);
    EXPECT_EQ(written.error().message, wanted.message);
    EXPECT_EQ(position_of(written.error().where).line, 2);
    EXPECT_EQ(position_of(written.error().where).column, wanted.column) << render(written.error());
    EXPECT_FALSE(written.error().helps.empty());
  }
  auto written = print_json_schedule(read_text("devices(1)\nplace({}, devices=[3])"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "devices: there are 1, but device 3 is used");
}

// ---- files

TEST(LoadSchedule, ByTheEndOfTheName) {
  const fs::path folder = fs::path(testing::TempDir()) / "piper_load_schedule";
  fs::create_directories(folder);
  std::ofstream(folder / "a.json") << dp2_minimal;
  std::ofstream(folder / "a.piper") << print(read_json(dp2_minimal));
  auto json = load_schedule((folder / "a.json").string()), text = load_schedule((folder / "a.piper").string());
  ASSERT_TRUE(json && text);
  EXPECT_EQ(*json, *text);
  auto none = load_schedule((folder / "none.json").string());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::E108);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace piper
