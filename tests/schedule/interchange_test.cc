// Timelines from and to other systems: with communication, as CSV, notation and schedules; equal to PyTorch's lowering.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/csv.h"
#include "timelines/library.h"
#include "timelines/load_timeline.h"
#include "timelines/notation.h"
#include "timelines/rank_table.h"
#include "timelines/validate_actions.h"
#include "timelines/with_communication.h"

namespace piper {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path oracles = fs::path(PIPER_SOURCE_DIR) / "../shared/oracles";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  std::string text = out.str();
  std::erase(text, '\r');
  return text;
}

ActionTimeline actions(const std::string& csv) {
  Result<ParsedTimeline> parsed = parse_csv_actions(make_source("t.csv", csv));
  if (!parsed) ADD_FAILURE() << render(parsed.error());
  return parsed ? parsed->actions : ActionTimeline{};
}

/// Valid, or why not.
std::string verdict(const std::string& csv) {
  Result<ParsedTimeline> parsed = parse_csv_actions(make_source("t.csv", csv));
  if (!parsed) return render(parsed.error());
  Checked checked = validate(*parsed);
  return checked ? "valid" : render(checked.error());
}

// ---- published communication ---------------------------------------------------------------------------------------

TEST(PublishedCommunication, EveryFileInBothDirections) {
  if (!fs::exists(oracles)) GTEST_SKIP() << "no published timelines beside the project";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(oracles / "schedules/torch")) {
    const std::string path = entry.path().string();
    const size_t at = path.find("_sendrecv.csv");
    if (at == path.npos) continue;
    SCOPED_TRACE(entry.path().filename());
    const std::string with = read(path), without = read(path.substr(0, at) + "_compute.csv");
    EXPECT_EQ(verdict(with), "valid");
    EXPECT_EQ(print_csv(actions(with)), with);
    EXPECT_EQ(print_csv(strip(actions(with))), without);
    EXPECT_EQ(print_csv(with_transfers(strip(actions(without)))), with);
    // deferred receives are another order of the same, and sound too
    const std::string deferred = print_csv(defer_receives(actions(with)));
    EXPECT_EQ(verdict(deferred), "valid");
    EXPECT_EQ(print_csv(strip(actions(deferred))), without);
    ++files;
  }
  EXPECT_EQ(files, 30);
}

/// PyTorch's own test file: halves that stand together are merged, then sends and receives are put in.
TEST(PublishedCommunication, MergedZeroBubble) {
  if (!fs::exists(oracles)) GTEST_SKIP() << "no published timelines beside the project";
  const fs::path folder = oracles / "schedules/upstream";
  const Timeline passes = strip(actions(read(folder / "zb1p_2rank_2stagep_compute.csv")));
  const std::string with = read(folder / "zb1p_2rank_2stagep_comms.csv");
  EXPECT_EQ(print_csv(with_transfers(merge_backward(passes))), with);
  EXPECT_EQ(verdict(with), "valid");
}

/// One action per rank and step; ranks in order, those that were blocked once more; a receive needs its send.
int simulated_steps(const ActionTimeline& timeline, int stages) {
  std::vector<size_t> next(timeline.ranks.size(), 0);
  std::vector<std::set<std::string>> done(timeline.ranks.size());
  std::set<std::string> sent;
  const auto has_input = [&](const TimelineOp& op, size_t rank) {
    const auto here = [&](const std::string& action) { return done[rank].contains(action); };
    const std::string m = std::to_string(op.microbatch);
    if (op.pass == Pass::F && op.stage > 0)
      return here(std::to_string(op.stage) + "RECV_F" + m) || here(std::to_string(op.stage - 1) + "F" + m);
    if ((op.pass == Pass::B || op.pass == Pass::BI) && op.stage + 1 < stages)
      return here(std::to_string(op.stage) + "RECV_B" + m) || here(std::to_string(op.stage + 1) + "B" + m) ||
             here(std::to_string(op.stage + 1) + "I" + m);
    return true;
  };
  const auto ready = [&](const TimelineAction& action, size_t rank) {
    if (const auto* comm = std::get_if<CommAction>(&action))
      return !is_receive(comm->kind) || sent.contains(print(partner(*comm)));
    const TimelineCell& cell = std::get<TimelineCell>(action);
    return has_input(cell.first, rank) && (!cell.second || has_input(*cell.second, rank));
  };
  for (int steps = 0;; ++steps) {
    std::set<size_t> moved;
    bool finished = true;
    for (int turn = 0; turn < 2; ++turn)
      for (size_t rank = 0; rank < next.size(); ++rank) {
        if (next[rank] == timeline.ranks[rank].size()) continue;
        finished = false;
        const TimelineAction& action = timeline.ranks[rank][next[rank]];
        if (moved.contains(rank) || !ready(action, rank)) continue;
        moved.insert(rank);
        next[rank] += 1;
        if (const auto* comm = std::get_if<CommAction>(&action)) sent.insert(print(*comm));
        if (const auto* cell = std::get_if<TimelineCell>(&action)) {
          done[rank].insert(print(cell->first));
          if (cell->second) done[rank].insert(print(*cell->second));
        }
        if (const auto* comm = std::get_if<CommAction>(&action)) done[rank].insert(print(*comm));
      }
    if (finished) return steps;
    if (moved.empty()) return -1;
  }
}

class Vectors : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(oracles)) GTEST_SKIP() << "no vectors beside the project";
    all = nlohmann::json::parse(read(oracles / "vectors/pytorch_lowering_vectors.json"));
  }

  /// Cells of one rank, or of several by number.
  static ActionTimeline parse(const nlohmann::json& cells) {
    std::string text;
    const auto add = [&](const nlohmann::json& row) {
      for (const auto& cell : row) text += cell.get<std::string>() + ",";
      text += "\n";
    };
    if (cells.is_array()) add(cells);
    for (int rank = 0; cells.is_object() && rank < static_cast<int>(cells.size()); ++rank)
      add(cells.at(std::to_string(rank)));
    return actions(text);
  }

  nlohmann::json all;
};

TEST_F(Vectors, ActionsAreRead) {
  for (const auto& vector : all.at("action_parse")) {
    const std::string text = vector.at("text"), kind = vector.at("kind");
    const TimelineAction action = actions(text + "\n").ranks.at(0).at(0);
    const int microbatch = vector.at("mb").is_null() ? -1 : vector.at("mb").get<int>();
    EXPECT_EQ(print(action), text);
    if (const auto* comm = std::get_if<CommAction>(&action)) {
      EXPECT_EQ(name(comm->kind), kind);
      EXPECT_EQ(comm->stage, vector.at("stage"));
      EXPECT_EQ(comm->microbatch, microbatch);
    } else {
      const TimelineOp& op = std::get<TimelineCell>(action).first;
      EXPECT_EQ(op.stage, vector.at("stage"));
      EXPECT_EQ(op.microbatch, microbatch);
      EXPECT_EQ(kind, op.pass == Pass::BI ? "I" : op.pass == Pass::BW ? "W" : name(op.pass));
    }
  }
}

TEST_F(Vectors, ParametersAreGatheredAndReduced) {
  for (const auto& vector : all.at("unshard_reshard"))
    EXPECT_EQ(insert_unshards(parse(vector.at("compute")), 3), parse(vector.at("comms")));
  for (const auto& vector : all.at("reduce_grad"))
    EXPECT_EQ(insert_reductions(parse(vector.at("compute"))), parse(vector.at("comms")));
}

TEST_F(Vectors, HalvesAreMerged) {
  for (const auto& vector : all.at("merge_bw"))
    EXPECT_EQ(as_actions(merge_backward(strip(parse(vector.at("compute"))))), parse(vector.at("comms")));
}

/// Passes of a rank in their order, its communication without one, and what stands directly before each send.
std::vector<std::string> matched(const std::vector<TimelineAction>& row) {
  std::vector<std::string> passes, others;
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::holds_alternative<TimelineCell>(row[i])) passes.push_back(print(row[i]));
    const auto* comm = std::get_if<CommAction>(&row[i]);
    if (comm) others.push_back(print(*comm) + (is_send(comm->kind) ? " after " + print(row.at(i - 1)) : ""));
  }
  std::ranges::sort(others);
  passes.insert(passes.end(), others.begin(), others.end());
  return passes;
}

/// Idle cells of these vectors shift receives by a place: communication is compared by matching.
TEST_F(Vectors, TransfersAreInserted) {
  for (const auto& vector : all.at("send_recv")) {
    const ActionTimeline got = insert_transfers(parse(vector.at("compute"))), wanted = parse(vector.at("comms"));
    ASSERT_EQ(got.ranks.size(), wanted.ranks.size());
    for (size_t rank = 0; rank < got.ranks.size(); ++rank)
      EXPECT_EQ(matched(got.ranks[rank]), matched(wanted.ranks[rank])) << vector.at("schedule");
    const int steps = simulated_steps(got, vector.at("num_stages"));
    EXPECT_EQ(simulated_steps(wanted, vector.at("num_stages")), vector.at("simulated_steps"));
    EXPECT_TRUE(0 < steps && steps <= vector.at("simulated_steps").get<int>());
  }
}

TEST_F(Vectors, ReceivesAreDeferred) {
  for (const auto& vector : all.at("defer_recv_ops"))
    EXPECT_EQ(defer_receives(parse(vector.at("input"))), parse(vector.at("expected"))) << vector.at("schedule");
}

TEST_F(Vectors, StagesStandWherePyTorchHasThem) {
  for (const auto& vector : all.at("stage_to_rank")) {
    const StageShape shape = vector.at("style") == "v" ? StageShape::V : StageShape::Loop;
    std::vector<int> ranks;
    for (int s = 0; s < vector.at("stages").get<int>(); ++s)
      ranks.push_back(stage_coordinate(shape, s, vector.at("ranks")));
    EXPECT_EQ(ranks, vector.at("map").get<std::vector<int>>());
  }
}

TEST_F(Vectors, WhatPyTorchAcceptsIsValid) {
  for (const auto& vector : all.at("validate")) {
    const Timeline timeline = strip(parse(vector.at("actions")));
    const TimelineExtent extent{vector.at("stages"), vector.at("microbatches")};
    EXPECT_EQ(bool(validate(timeline, {}, extent)), vector.at("ok").get<bool>()) << vector;
  }
}

TEST_F(Vectors, PlansOfManySizesAreSound) {
  for (const auto& vector : all.at("plan_cases_(local_stages,microbatches,ranks)"))
    for (const std::string name : {"interleaved-1f1b", "interleaved-zb", "looped-bfs"}) {
      const Result<Timeline> timeline = make_timeline(
          name, {.ranks = vector.at(2), .microbatches = vector.at(1), .stages_per_rank = vector.at(0)}, {});
      ASSERT_TRUE(timeline);
      const ActionTimeline lowered = with_transfers(*timeline);
      Checked checked = validate(ParsedTimeline{lowered, {}});
      EXPECT_TRUE(checked) << name << vector << render(checked.error());
      if (vector.at(1).get<int>() * vector.at(2).get<int>() > 64) continue;  // the test's simulation is slow
      EXPECT_GT(simulated_steps(lowered, vector.at(0).get<int>() * vector.at(2).get<int>()), 0) << name << vector;
    }
}

// ---- what is wrong with communication ------------------------------------------------------------------------------

const std::string sound =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";

/// `sound` with one piece of text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = sound;
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos);
  return text.replace(at, from.size(), to);
}

TEST(ValidateCommunication, AcceptsWhatIsSound) {
  EXPECT_EQ(verdict(sound), "valid");
  EXPECT_EQ(verdict("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n"), "valid");
  EXPECT_EQ(verdict("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0\n"), "valid");
  EXPECT_EQ(verdict("0F0,0B0\n1F0,1B0\n"), "valid") << "passes alone";
}

TEST(ValidateCommunication, NamesCellRankAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with(",0SEND_F1", ""),
       "t.csv:1:14: error[E314]: 0SEND_F1 is missing: 0F1 at rank 0, cell 2 computes what stage "
       "1 on rank 1 needs"},
      {with("1RECV_F0,", ""), "1RECV_F0 is missing: 1F0 at rank 1, cell 0 needs what stage 0 on rank 0 computes"},
      {with("1SEND_B0,", ""), "1SEND_B0 is missing: 1B0 at rank 1, cell 3 computes what stage 0 on rank 0 needs"},
      {with("0F0,0SEND_F0", "0SEND_F0,0F0"), "0SEND_F0 at rank 0, cell 0 sends what 0F0 at rank 0, cell 1 computes"},
      {with("0RECV_B0,0B0", "0B0,0RECV_B0"), "0RECV_B0 at rank 0, cell 5 receives what 0B0 at rank 0, cell 4 uses"},
      {with("0SEND_F1", "0SEND_F0"), "0SEND_F0 at rank 0, cell 3 is there already at rank 0, cell 1"},
      {with("0SEND_F1", "1SEND_F1"), "1SEND_F1 at rank 0, cell 3 is on the wrong rank: 1F1 runs on rank 1"},
      {with("0SEND_F1", "0SEND_F7"), "0SEND_F7 at rank 0, cell 3 is outside of 2 stages and 2 microbatches"},
      {with("1RECV_F0,", "1RECV_F0,1RECV_B0,"), "1RECV_B0 at rank 1, cell 1 has no partner: stage 1 is the last"},
      {with("1RECV_F0,1F0,1RECV_F1", "1RECV_F1,1RECV_F0,1F0"),
       "1RECV_F1 at rank 1, cell 0 is received out of order: 0SEND_F0 at rank 0, cell 1 comes first"},
      {"0F0,0SEND_F0,1F0,1B0,0B0\n", "0SEND_F0 at rank 0, cell 1 is not needed: stage 1 is on the same rank"},
      {"0UNSHARD,0F0,0RESHARD,0B0\n", "0B0 at rank 0, cell 3 runs while stage 0 is sharded"},
      {"0F0,0B0,0RESHARD\n", "0RESHARD at rank 0, cell 2: the stage is not unsharded"},
      {"0UNSHARD,0UNSHARD,0F0,0B0\n", "0UNSHARD at rank 0, cell 1: the stage is unsharded already, at rank 0, cell 0"},
      {"0F0,0REDUCE_GRAD,0B0\n", "0B0 at rank 0, cell 2 comes after the gradients of its stage are reduced"},
      {"0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", "0REDUCE_GRAD at rank 0, cell 3 is there already at rank 0, cell 2"},
      {"0F0,0B0\n1F0,1B0,0UNSHARD\n", "0UNSHARD at rank 1, cell 2 is on the wrong rank: stage 0 runs on rank 0"},
      {",0F0,,0B0,0B0\n", "t.csv:1:11: error[E314]: 0B0 at rank 0, cell 4 is there already at rank 0, cell 3"},
      {"0F0,0B0\n\n1F0,1B0\n", "rank 1 has no passes"},
  };
  for (const auto& [text, part] : cases) EXPECT_THAT(verdict(text), HasSubstr(part)) << text;
}

/// Passes that could run, but a send stands behind a pass that waits for its answer.
TEST(ValidateCommunication, TellsTheCycleOfADeadlock) {
  const std::string text = verdict(
      "0F0,0RECV_B0,0B0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
  EXPECT_THAT(text,
              HasSubstr("deadlock: 0B0 at rank 0, cell 2 waits for 1SEND_B0 at rank 1, cell 3, which comes later"));
  EXPECT_THAT(text, HasSubstr("1F0 at rank 1, cell 1 waits for 0SEND_F0 at rank 0, cell 3, which comes later"));
}

TEST(ReadingActions, SuggestsWhatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0f3", "0F3"},
      {"0SNED_F3", "0SEND_F3"},
      {"0RECVB3", "0RECV_B3"},
      {"0UNSHRAD", "0UNSHARD"},
      {"0REDUCEGRAD", "0REDUCE_GRAD"},
      {"(0F1;0B0)", "(0F1;0B0)OVERLAP_F_B"},
      {"(0F1;0B0)OVERLAP_F", "(0F1;0B0)OVERLAP_F_B"},
  };
  for (const auto& [wrong, right] : cases) {
    Result<ParsedTimeline> parsed = parse_csv_actions(make_source("t.csv", "0F0,0B0\n1F0," + wrong + "\n"));
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_THAT(render(parsed.error()), HasSubstr("t.csv:2:5: error[E101]: rank 1, cell 1: expected a pass"));
    EXPECT_THAT(render(parsed.error()), HasSubstr("did you mean \"" + right + "\"?"));
  }
}

// ---- every form ----------------------------------------------------------------------------------------------------

TEST(Notation, LabelsAndCommentsAreOptional) {
  const auto read = [](const std::string& text) {
    Result<ParsedTimeline> parsed = parse_notation(make_source("t", text));
    return parsed ? print_notation(parsed->actions) : render(parsed.error());
  };
  EXPECT_EQ(read("0F0 (1F0;0B0)\t2I3\n\n2W3\n"), "0F0 (1F0;0B0) 2I3\n2W3\n");
  EXPECT_EQ(read("# a comment\nrank 0: 0F0  0B0 # the end\nrank 1:1F0 1SEND_B0\r\n"), "0F0 0B0\n1F0 1SEND_B0\n");
  EXPECT_THAT(read("0F0 0B0\n1F0 1b0\n"), HasSubstr("t:2:5: error[E101]: rank 1, cell 1"));
  EXPECT_THAT(read("(0F1;0B0)OVERLAP_F_B"), HasSubstr("did you mean \"(0F1;0B0)\"?"));
  EXPECT_THAT(read("\n# nothing\n"), HasSubstr("found nothing"));
}

/// Every timeline of the library survives every form of text, and lowering.
TEST(Interchange, EveryFormGivesTheTimelineBack) {
  for (const TimelineInfo& info : timeline_library()) {
    SCOPED_TRACE(info.name);
    Result<Timeline> timeline = make_timeline(info.name, {.ranks = 4, .microbatches = 8}, {});
    ASSERT_TRUE(timeline);
    const auto expect_same = [&](const std::string& file, const std::string& text) {
      Result<ParsedTimeline> parsed = parse_timeline(make_source(file, text));
      ASSERT_TRUE(parsed) << file << render(parsed.error());
      EXPECT_EQ(strip(parsed->actions), *timeline) << file;
    };
    const Schedule schedule = *as_schedule(*timeline, {});
    expect_same("t.csv", print_csv(*timeline));
    expect_same("t", print_csv(*timeline));
    expect_same("t", print_notation(as_actions(*timeline)));
    expect_same("t.json", *print_json_schedule(as_original_schedule(*timeline)));
    expect_same("t", *print_json_schedule(as_original_schedule(*timeline)));
    expect_same("t.piper", print(schedule));
    expect_same("t.csv", print_csv(with_transfers(*timeline)));
    expect_same("t", print_notation(with_transfers(*timeline)));
    const ActionTimeline all = insert_transfers(insert_reductions(insert_unshards(as_actions(*timeline), 1)));
    expect_same("t.csv", print_csv(all));
  }
}

TEST(Interchange, PlacesStagesAsTheTimelineHasThem) {
  const auto place = [](const std::string& csv) {
    Result<Place> found = place_of(strip(actions(csv)), {});
    return found ? print(DirectiveBody(*found)) : render(found.error());
  };
  EXPECT_EQ(place("0F0,0B0\n1F0,1B0\n"), "place({}, along=pp, stages=2)");
  EXPECT_EQ(place("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n"), "place({}, along=pp, stages=4)");
  EXPECT_EQ(place("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"), "place({}, along=pp, stages=4, shape=v)");
  EXPECT_EQ(place("0F0,0B0,1F1,1B1\n1F0,1B0,0F1,0B1\n"), "place({}, along=pp, stages=2, shape=two_way)");
  EXPECT_EQ(place("1F0,1B0\n0F0,2F0,2B0,0B0\n"), "place({}, along=pp, stages=3, ranks=[1, 0, 1])");
  EXPECT_THAT(place("0F0,0B0,1F1,1B1,0F2,0B2\n1F0,1B0,0F1,0B1,1F2,1B2\n"), HasSubstr("error[E313]"));
}

TEST(Interchange, SchedulesThatAreNoTimelinesSayWhy) {
  const auto load = [](const std::string& text) {
    Result<ParsedTimeline> parsed = parse_timeline(make_source("s.piper", text));
    return parsed ? "accepted" : render(parsed.error());
  };
  EXPECT_THAT(load("devices(1)\nplace({}, devices=[0])\n"), HasSubstr("E104]: the schedule has no orders"));
  EXPECT_THAT(load("use 1f1b()\n"), HasSubstr("E105]: use 1f1b is not written out"));
  EXPECT_THAT(load("order({mb=0, pass=F}, {mb=0, pass=B})\n"), HasSubstr("s.piper:1:7: error[E105]: {mb=0, pass=F}"));
  EXPECT_THAT(load("order({stage=0..1, mb=0, pass=F}, {mb=0, pass=B})\n"), HasSubstr("is no cell of a timeline"));
}

}  // namespace
}  // namespace piper
