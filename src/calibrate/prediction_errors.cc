#include "calibrate/prediction_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text_table.h"

namespace piper {
namespace {

/// One prediction of an observation.
struct Predicted {
  const Observation* observation = nullptr;
  double seconds = 0;
  int fold = 0;  // plans are chosen among those of one fold
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::vector<double> regrets(const std::vector<Predicted>& all) {
  std::map<std::pair<int, std::string>, std::vector<const Predicted*>> jobs;
  for (const Predicted& one : all) jobs[{one.fold, one.observation->job}].push_back(&one);
  std::vector<double> out;
  for (const auto& [job, plans] : jobs) {
    if (plans.size() < 2) continue;
    const auto chosen = *std::ranges::min_element(plans, {}, [](const Predicted* one) { return one->seconds; });
    const auto best =
        *std::ranges::min_element(plans, {}, [](const Predicted* one) { return one->observation->seconds; });
    out.push_back(chosen->observation->seconds / best->observation->seconds - 1);
  }
  return out;
}

PredictionErrors errors_in(const std::string& set, const std::vector<Predicted>& all) {
  PredictionErrors out;
  out.set = set;
  out.rows = static_cast<int>(all.size());
  for (const Predicted& one : all) {
    const double error = one.seconds / one.observation->seconds - 1;
    out.mean += std::abs(error) / out.rows;
    out.bias += error / out.rows;
    out.worst = std::max(out.worst, std::abs(error));
  }
  const std::vector<double> regret = regrets(all);
  out.jobs = static_cast<int>(regret.size());
  for (const double one : regret) {
    out.regret_mean += one / out.jobs;
    out.regret_worst = std::max(out.regret_worst, one);
  }
  out.regret_median = median(regret);
  return out;
}

std::vector<PredictionErrors> errors_of(const std::vector<Predicted>& all) {
  std::vector<std::string> sets;
  std::map<std::string, std::vector<Predicted>> by_set;
  for (const Predicted& one : all) {
    const std::string& set = one.observation->set;
    if (by_set[set].empty()) sets.push_back(set);
    by_set[set].push_back(one);
  }
  std::vector<PredictionErrors> out;
  for (const std::string& set : sets) out.push_back(errors_in(set, by_set[set]));
  return out;
}

/// The part of each observation. Jobs stay whole, unless a set has too few of them.
std::vector<int> parts_of(const std::vector<Observation>& observations, int folds) {
  std::map<std::string, std::map<std::string, int>> jobs;  // by set, numbered in order of appearance
  std::map<std::string, int> rows;
  for (const Observation& o : observations) jobs[o.set].try_emplace(o.job, static_cast<int>(jobs[o.set].size()));
  std::vector<int> out;
  for (const Observation& o : observations) {
    const bool whole = static_cast<int>(jobs[o.set].size()) >= 3 * folds;
    out.push_back((whole ? jobs[o.set][o.job] : rows[o.set]++) % folds);
  }
  return out;
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

std::vector<PredictionErrors> errors_of(const std::vector<Observation>& observations,
                                        const std::vector<double>& predicted) {
  std::vector<Predicted> all;
  for (size_t i = 0; i < observations.size(); ++i) all.push_back({&observations[i], predicted[i], 0});
  return errors_of(all);
}

Result<std::vector<PredictionErrors>> cross_validate(const std::vector<Observation>& observations, const Cluster& start,
                                                     int folds) {
  const std::vector<int> parts = parts_of(observations, folds);
  std::vector<Predicted> all;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<Observation> seen;
    for (size_t i = 0; i < observations.size(); ++i)
      if (parts[i] == fold) seen.push_back(observations[i]);
    PIPER_TRY(const Cluster fitted, fit_cluster(seen, start));
    PIPER_TRY(const std::vector<double> predicted, predict(observations, fitted));
    for (size_t i = 0; i < observations.size(); ++i)
      if (parts[i] != fold) all.push_back({&observations[i], predicted[i], fold});
  }
  return errors_of(all);
}

std::string print(const std::vector<PredictionErrors>& errors) {
  TextTable table({"set", "rows", "mean error", "bias", "worst", "jobs", "mean regret", "median", "worst"});
  for (const PredictionErrors& e : errors)
    table.add({e.set, fmt::format("{}", e.rows), percent(e.mean), percent(e.bias), percent(e.worst),
               fmt::format("{}", e.jobs), percent(e.regret_mean), percent(e.regret_median), percent(e.regret_worst)});
  return table.print();
}

}  // namespace piper
