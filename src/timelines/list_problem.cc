#include "timelines/list_problem.h"

#include <algorithm>
#include <limits>

namespace piper::timelines {
namespace {

/// By rank: the most stages of one direction.
std::vector<int> chunks_of(const ListProblem& problem) {
  std::vector<int> most(problem.ranks, 0);
  for (const std::vector<int>& way : problem.rank_of) {
    std::vector<int> here(problem.ranks, 0);
    for (const int rank : way) most[rank] = std::max(most[rank], ++here[rank]);
  }
  return most;
}

}  // namespace

int least_limit(const ListProblem& problem) {
  return std::ranges::max(chunks_of(problem));
}

double usual_limit(const ListProblem& problem) {
  return 1.0 * problem.ranks * least_limit(problem) + (problem.rank_of.size() == 2 ? 1 : 0);
}

ListPasses::ListPasses(const ListProblem& problem)
    : ranks(problem.ranks),
      stages(problem.stages()),
      microbatches(problem.microbatches),
      limit(problem.limit),
      whole_backward(problem.whole_backward.empty() ? std::vector<char>(stages, 0) : problem.whole_backward),
      turn(microbatches),
      next(microbatches, none),
      count(ranks, 0),
      work(ranks, 0),
      chunks(chunks_of(problem)) {
  all.resize(size_t(3) * stages * microbatches);
  const int directions = static_cast<int>(problem.rank_of.size());
  std::vector<int> last(directions, none);  // microbatch
  for (int m = 0; m < microbatches; ++m) {
    const int direction = problem.direction_of.empty() ? 0 : problem.direction_of[m];
    const std::vector<int>& way = problem.rank_of[direction];
    if (last[direction] == none) {
      turn[m] = direction;
      first.push_back(m);
    } else {
      turn[m] = turn[last[direction]] + directions;
      next[last[direction]] = m;
    }
    last[direction] = m;
    for (int s = 0; s < stages; ++s) {
      const StageCosts costs = problem.costs.at(s);
      const auto add = [&](int kind, double seconds, double activations, int needed, int from) {
        One& pass = all[id(s, kind, m)];
        pass.rank = way[s];
        pass.time = seconds;
        pass.memory = activations;
        count[way[s]] += 1;
        work[way[s]] += seconds;
        if (needed == none) return;
        pass.before = needed;
        pass.lag = from == way[s] ? 0 : problem.costs.comm;
        all[needed].after = id(s, kind, m);
      };
      add(F, costs.F, 1, s == 0 ? none : id(s - 1, F, m), s == 0 ? none : way[s - 1]);
      const int above = s + 1 == stages ? none : id(s + 1, I, m), from = above == none ? none : way[s + 1];
      if (whole_backward[s]) {
        add(I, costs.I + costs.W, -1, above, from);
        continue;
      }
      add(I, costs.I, -problem.freed_by_I, above, from);
      add(W, costs.W, problem.freed_by_I - 1, none, none);
    }
  }
  rounding = 1e-10 * *std::ranges::max_element(work);
}

double lower_bound(const ListPasses& passes) {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<double> first(passes.ranks, never), rest(passes.ranks, never);
  double longest = 0;
  for (const int m : passes.first) {  // the others of its direction are like it
    double t = 0;
    for (int s = 0; s < passes.stages; ++s) {
      const int forward = passes.id(s, ListPasses::F, m), r = passes[forward].rank;
      t += passes[forward].lag;
      first[r] = std::min(first[r], t);
      t += passes[forward].time;
    }
    for (int s = passes.stages - 1; s >= 0; --s) {
      const int input = passes.id(s, ListPasses::I, m), weight = passes.id(s, ListPasses::W, m);
      t += passes[input].lag + passes[input].time;
      longest = std::max(longest, t + passes[weight].time);
    }
    double below = 0;  // from the end of a stage's backward to the end of its microbatch
    for (int s = 0; s < passes.stages; ++s) {
      const int input = passes.id(s, ListPasses::I, m), r = passes[input].rank;
      // What a rank does last may be a W; a B is followed by those of the stages before.
      rest[r] = std::min(rest[r], passes.whole_backward[s] ? below : 0);
      below += passes[input].lag + passes[input].time;
    }
  }
  for (int r = 0; r < passes.ranks; ++r)
    if (passes.count[r] > 0) longest = std::max(longest, first[r] + passes.work[r] + rest[r]);
  return longest;
}

Timeline as_timeline(const ListPasses& passes, const ListOrder& order) {
  Timeline timeline;
  for (const std::vector<int>& row : order) {
    std::vector<TimelineCell>& cells = timeline.ranks.emplace_back();
    for (const int pass : row) {
      const int stage = passes.stage(pass), kind = ListPasses::kind(pass);
      const Pass name = kind == ListPasses::F          ? Pass::F
                        : kind == ListPasses::W        ? Pass::BW
                        : passes.whole_backward[stage] ? Pass::B
                                                       : Pass::BI;
      cells.push_back({{stage, name, passes.microbatch(pass)}, {}});
    }
  }
  return timeline;
}

ListOrder as_order(const ListPasses& passes, const Timeline& timeline) {
  ListOrder order;
  for (const std::vector<TimelineCell>& cells : timeline.ranks) {
    std::vector<int>& row = order.emplace_back();
    const auto add = [&](const TimelineOp& op) {
      const auto pass = [&](int kind) { return passes.id(op.stage, kind, op.microbatch); };
      if (op.pass == Pass::F) row.push_back(pass(ListPasses::F));
      if (op.pass == Pass::B || op.pass == Pass::BI) row.push_back(pass(ListPasses::I));
      if ((op.pass == Pass::B || op.pass == Pass::BW) && !passes.whole_backward[op.stage])
        row.push_back(pass(ListPasses::W));
    };
    for (const TimelineCell& cell : cells) {
      add(cell.first);
      if (cell.second) add(*cell.second);
    }
  }
  return order;
}

}  // namespace piper::timelines
