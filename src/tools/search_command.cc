#include "tools/search_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>

#include "base/read_file.h"
#include "base/time_text.h"
#include "base/write_file.h"
#include "cost/load_cluster.h"
#include "model/load_model.h"
#include "schedule/load_schedule.h"
#include "schedule/schedule_text.h"
#include "search/answer.h"
#include "tools/front_page.h"

namespace piper {
namespace {

std::atomic<bool> interrupted = false;

/// Ctrl-C ends the search with the best so far; a second one ends the program.
class Interrupt {
 public:
  Interrupt() : before_(std::signal(SIGINT, note)) {}
  ~Interrupt() { std::signal(SIGINT, before_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

 private:
  static void note(int) {
    interrupted = true;
    std::signal(SIGINT, SIG_DFL);
  }
  void (*before_)(int);
};

/// On a terminal, one line that changes.
class SearchLine {
 public:
  void show(const SearchProgress& now) {
    if (!terminal_ || now.seconds - last_ < 0.2) return;
    last_ = now.seconds;
    fmt::print(stderr, "\r{:.0f} s  {} simulated, {} waiting  best {}\x1b[K", now.seconds, now.evaluated, now.waiting,
               now.best ? human_seconds(now.best->report.seconds) : "none yet");
    std::fflush(stderr);
  }
  ~SearchLine() {
    if (last_ > 0) std::fputs("\r\x1b[K", stderr);
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO);
  double last_ = 0;
};

Result<Fixed> load_fixed(const std::vector<std::string>& directives) {
  std::string text;
  for (const std::string& directive : directives) text += directive + "\n";
  if (text.empty()) return Fixed{};
  PIPER_TRY(const Schedule schedule, parse_schedule(make_source("--fix", text)));
  return fixed_by(schedule);
}

Result<Problem> load_problem(const SearchCommand& command) {
  const auto load = [spec = command.input.model, step = command.input.step](
                        LayerForm form, TokenForm tokens) -> Result<std::shared_ptr<const ModelGraph>> {
    PIPER_TRY(ModelGraph model, load_model(spec, step, form, tokens));
    return std::make_shared<const ModelGraph>(std::move(model));
  };
  PIPER_TRY(Cluster cluster, load_cluster(command.input.cluster));
  std::optional<CostTable> costs;
  if (!command.input.costs.empty()) {
    PIPER_TRY(const SourceFilePtr file, read_file(command.input.costs, "cost table"));
    PIPER_TRY(costs, parse_cost_table(file));
  }
  PIPER_TRY(Fixed fixed, load_fixed(command.fixed));
  return make_problem(load, std::move(cluster), std::move(costs), command.devices, command.memory, std::move(fixed));
}

struct Searched {
  Problem problem;
  SearchResult result;
  std::vector<WayOut> ways_out;
};

Result<Searched> search_all(const SearchCommand& command) {
  Searched out;
  PIPER_TRY(out.problem, load_problem(command));
  PIPER_CHECK(check_space(out.problem.limits));
  std::vector<std::pair<std::string, Schedule>> tried;
  for (const std::string& file : command.tried) {
    PIPER_TRY(Schedule schedule, load_schedule(file));
    tried.emplace_back(file, std::move(schedule));
  }
  const Interrupt interrupt;
  SearchLine line;
  SearchOptions options;
  options.budget = command.budget;
  options.time = command.time.value_or(command.budget);
  options.stop = &interrupted;
  options.progress = [&](const SearchProgress& now) { line.show(now); };
  PIPER_TRY(out.result, search(out.problem, tried, options));
  if (!out.result.best()) out.ways_out = ways_out(out.problem, out.result, options);
  return out;
}

}  // namespace

int run(const SearchCommand& command) {
  auto searched = search_all(command);
  if (!searched) return report(command.input, searched.error());
  const auto& [problem, result, ways] = *searched;
  put(command.input.format == "json" ? print_json(problem, result, ways) : print(problem, result, ways));
  const Evaluated* best = result.best();
  std::string plot;
  if (!command.plot.empty())
    plot = command.plot.ends_with(".html") ? front_page(problem, result) : front_svg(problem, result);
  for (const auto& [file, text] :
       {std::pair(command.output, best ? explained(problem, *best) : std::string()), std::pair(command.plot, plot)}) {
    if (file.empty() || text.empty()) continue;
    if (auto written = write_file(file, text); !written) {
      report(command.input, written.error());
      return run_failed;
    }
  }
  return best ? fine : refused;
}

}  // namespace piper
