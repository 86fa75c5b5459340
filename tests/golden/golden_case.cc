#include "golden_case.h"

#include <sstream>
#include <stdexcept>

#include "base/read_file.h"
#include "base/text/scanner.h"
#include "compile/compile.h"
#include "compile/explain.h"
#include "compile/grid.h"
#include "compile/timeline_of.h"
#include "compile/tried_hints.h"
#include "ir/dag_text.h"
#include "model/analytic/analytic_model.h"
#include "model/analytic/config_file.h"
#include "model/load_model.h"
#include "model/model_text.h"
#include "plan/checkpoint_memory.h"
#include "plan/memory_report.h"
#include "plan/plan_text.h"
#include "plan/verify_plan.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "timelines/as_schedule.h"
#include "timelines/csv.h"
#include "timelines/library.h"
#include "timelines/load_timeline.h"
#include "timelines/with_communication.h"
#include "trace/chrome.h"
#include "trace/compare.h"

namespace piper::golden {
namespace {

SourceFilePtr source(const Case& c, const std::string& name) {
  const Section* section = c.find(name);
  if (!section) throw std::runtime_error("the case has no section " + name);
  return make_source(name, section->text);
}

Outcome refused(const Diagnostic& problem) {
  return {true, render(problem)};
}

/// Every input that parses is printed, parsed and printed again.
template <class T, class Parse>
void check_round_trip(const T& item, Parse parse) {
  const std::string once = print(item);
  auto again = parse(make_source("printed", once));
  if (!again) throw std::runtime_error("what was printed cannot be parsed:\n" + render(again.error()) + once);
  if (print(*again) != once) throw std::runtime_error("printing twice gives another text:\n" + once);
}

Result<ModelGraph> read_model(const Case& c) {
  if (const Section* config = c.find("config")) {
    PIPER_TRY(const ConfigFile file, parse_config(make_source("config", config->text)));
    return analytic_model(file.model, resolve(file.step, file.model));
  }
  if (const Section* named = c.find("analytic")) {
    std::string name = named->text.substr(0, named->text.find('\n'));
    return load_model("analytic:" + name);
  }
  return parse_model(source(c, "model"));
}

Result<Schedule> read_schedule(const Case& c, const std::string& section) {
  if (section == "schedule" && c.find("json")) return parse_json_schedule(source(c, "json"));
  return parse_schedule(source(c, section));
}

Result<Compiled> compile_case(const Case& c, const std::string& schedule_section, std::string* dump,
                              const std::string& dump_after, PlanFor plan_for = PlanFor::Training) {
  PIPER_TRY(ModelGraph model, read_model(c));
  check_round_trip(model, [](const SourceFilePtr& file) { return parse_model(file); });
  PIPER_TRY(const Schedule schedule, read_schedule(c, schedule_section));
  check_round_trip(schedule, [](const SourceFilePtr& file) { return parse_schedule(file); });
  CompileOptions options;
  options.verify_every_pass = true;
  options.plan_for = plan_for;
  if (c.find("cluster")) {
    PIPER_TRY(options.cluster, parse_cluster(source(c, "cluster")));
  }
  if (c.find("costs")) {
    PIPER_TRY(options.costs, parse_cost_table(source(c, "costs")));
    check_round_trip(*options.costs, [](const SourceFilePtr& file) { return parse_cost_table(file); });
  }
  options.after_pass = [&](std::string_view pass, const TrainingDag& dag) {
    if (dump && pass == dump_after) *dump = print(dag);
  };
  return compile_with_hints(std::make_shared<const ModelGraph>(std::move(model)), schedule, options);
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::string after(const std::vector<std::string>& words, const std::string& flag, const std::string& usual) {
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == flag) return words[i + 1];
  return usual;
}

/// `--nodes`: only the node lines of a DAG, so that cases stay small.
std::string node_lines(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("%")) out += line + "\n";
  return out;
}

std::string op_lines(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("template") || line.starts_with("  ")) out += line + "\n";
  return out;
}

Outcome run_compile(const Case& c, const std::vector<std::string>& arguments) {
  std::string dump;
  const std::string dump_after = after(arguments, "--dump-after", "");
  const bool evaluation = std::find(arguments.begin(), arguments.end(), "--evaluation") != arguments.end();
  auto compiled = compile_case(c, "schedule", &dump, dump_after, evaluation ? PlanFor::Evaluation : PlanFor::Training);
  if (!compiled) return refused(compiled.error());
  if (c.find("expect-same-plan")) {
    auto other = compile_case(c, "expect-same-plan", nullptr, "");
    if (!other) return refused(other.error());
    Plan one = compiled->plan, two = other->plan;
    one.origins = two.origins = {};
    for (Plan* plan : {&one, &two})
      for (PlanTemplate& t : plan->templates)
        for (PlannedOp& op : t.ops) op.origin = {};
    return {false, print(one) == print(two) ? "" : "the plans differ"};
  }
  if (!dump_after.empty()) return {false, node_lines(dump)};
  const std::string emit = after(arguments, "--emit", "plan");
  if (emit == "schedule") return {false, print(compiled->schedule)};
  if (emit == "dag") return {false, print(compiled->linear.dag)};
  if (emit == "nodes") return {false, node_lines(print(compiled->linear.dag))};
  if (emit == "timeline") return {false, print_timeline(timed_rows(compiled->linear))};
  if (emit == "grid") return {false, print_grid(timed_rows(compiled->linear), {.columns = 80})};
  if (emit == "memory") return {false, memory_table(compiled->plan)};
  if (emit == "checkpoint")
    return {false, checkpoint_table(compiled->plan, compiled->linear.dag.model->step,
                                    std::stoi(after(arguments, "--processes", "1")))};
  if (emit == "ops") return {false, op_lines(print(compiled->plan))};
  return {false, print(compiled->plan)};
}

Outcome run_check_plan(const Case& c) {
  auto plan = parse_plan(source(c, "plan"));
  if (!plan) return refused(plan.error());
  check_round_trip(*plan, [](const SourceFilePtr& file) { return parse_plan(file); });
  if (auto sound = verify(*plan); !sound) return refused(sound.error());
  if (c.find("cluster")) {
    auto cluster = parse_cluster(source(c, "cluster"));
    if (!cluster) return refused(cluster.error());
    if (auto fits = check_capacity(*plan, *cluster); !fits) return refused(fits.error());
  }
  return {false, "sound\n"};
}

/// A timeline of the library, or one in a section `timeline` with the name of a file: `timeline t.csv`.
Result<ParsedTimeline> read_timeline(const Case& c, const std::vector<std::string>& arguments) {
  for (const Section& section : c.sections)
    if (section.name.starts_with("timeline ")) return parse_timeline(make_source(section.name.substr(9), section.text));
  TimelineRequest request;
  request.ranks = std::stoi(after(arguments, "--ranks", "4"));
  request.microbatches = std::stoi(after(arguments, "--microbatches", "8"));
  request.stages_per_rank = std::stoi(after(arguments, "--stages-per-rank", "0"));
  PIPER_TRY(const Timeline timeline, make_timeline(arguments.at(1), request, {}));
  return ParsedTimeline{as_actions(timeline), {}};
}

/// Escape characters as \e, so that a case is plain text.
std::string visible(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\x1b' ? std::string("\\e") : std::string(1, c);
  return out;
}

Outcome run_timeline(const Case& c, const std::vector<std::string>& arguments) {
  auto parsed = read_timeline(c, arguments);
  if (!parsed) return refused(parsed.error());
  const Timeline timeline = strip(parsed->actions);
  const std::string emit = after(arguments, "--emit", "grid");
  if (emit == "csv") return {false, print_csv(timeline)};
  if (emit == "communication") return {false, print_csv(with_transfers(timeline))};
  if (emit == "schedule") {
    auto schedule = as_schedule(timeline, parsed->source.whole);
    return schedule ? Outcome{false, print(*schedule)} : refused(schedule.error());
  }
  GridOptions options{.columns = std::stoi(after(arguments, "--columns", "80")), .time = GridTime::Units};
  if (c.run.find("--color") != std::string::npos) options.color = GridColor::Ansi;
  return {false, visible(print_grid(timed_rows(timeline, {}), options))};
}

Outcome run_trace_diff(const Case& c) {
  std::vector<Trace> traces;
  for (const std::string name : {"predicted", "measured"}) {
    auto trace = parse_chrome(source(c, name));
    if (!trace) return refused(trace.error());
    traces.push_back(*std::move(trace));
  }
  auto comparison = compare(traces[0], traces[1]);
  if (!comparison) return refused(comparison.error());
  return {false, print(*comparison)};
}

}  // namespace

const Section* Case::find(const std::string& name) const {
  for (const Section& section : sections)
    if (section.name == name) return &section;
  return nullptr;
}

namespace {

Section open_section(const std::string& header) {
  const size_t at = header.find(" @");
  if (at == std::string::npos) return {header, ""};
  Section section{header.substr(0, at), "", header.substr(at + 2)};
  auto file = read_file(PIPER_SOURCE_DIR "/tests/golden/models/" + section.file + ".model", "model");
  if (!file) throw std::runtime_error(render(file.error()));
  section.text = (*file)->text;
  return section;
}

}  // namespace

Case parse_case(const std::string& text) {
  Case c;
  std::istringstream in(text);
  bool have_run = false;
  for (std::string line; std::getline(in, line);) {
    if (!have_run && line.starts_with("run: ")) {
      c.run = line.substr(5);
      have_run = true;
    } else if (!have_run) {
      c.comment += line + "\n";
    } else if (line.starts_with("--- ")) {
      c.sections.push_back(open_section(line.substr(4)));
    } else if (!c.sections.empty()) {
      c.sections.back().text += line + "\n";
    }
  }
  if (!have_run) throw std::runtime_error("no line starts with 'run: '");
  if (!c.comment.starts_with("# ")) throw std::runtime_error("the first line must say what must hold: # …");
  return c;
}

std::string print_case(const Case& c) {
  std::string out = c.comment + "run: " + c.run + "\n";
  for (const Section& section : c.sections)
    out += "--- " + section.name + (section.file.empty() ? "\n" + section.text : " @" + section.file + "\n");
  return out;
}

Outcome run_case(const Case& c) {
  const std::vector<std::string> arguments = words(c.run);
  if (arguments.empty()) throw std::runtime_error("run: names no command");
  if (arguments[0] == "compile") return run_compile(c, arguments);
  if (arguments[0] == "check-plan") return run_check_plan(c);
  if (arguments[0] == "timeline") return run_timeline(c, arguments);
  if (arguments[0] == "trace-diff") return run_trace_diff(c);
  if (arguments[0] == "read-trace") {
    auto trace = parse_chrome(source(c, "trace"));
    if (!trace) return refused(trace.error());
    return {false, print_chrome(*trace)};
  }
  if (arguments[0] == "load-model") {
    auto model = load_model(arguments.size() > 1 ? arguments[1] : "");
    if (!model) return refused(model.error());
    return {false, print(*model)};
  }
  if (arguments[0] == "parse-dag") {
    auto model = read_model(c);
    if (!model) return refused(model.error());
    auto dag = parse_dag(source(c, "dag"), std::make_shared<const ModelGraph>(*std::move(model)));
    if (!dag) return refused(dag.error());
    return {false, print(*dag)};
  }
  if (arguments[0] == "explain") {
    auto compiled = compile_case(c, "schedule", nullptr, "");
    if (!compiled) return refused(compiled.error());
    auto text = explain(*compiled, c.run.substr(8));
    if (!text) return refused(text.error());
    return {false, *text};
  }
  throw std::runtime_error("run: unknown command " + arguments[0]);
}

}  // namespace piper::golden
