#include "calibrate/fit_cluster.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/least_squares.h"
#include "calibrate/step_path.h"

namespace piper {
namespace {

constexpr double scale = 0.1;  // errors far above count by their size

Result<StepPath> simulated_path(const Observation& observation, const Cluster& cluster) {
  if (observation.work) return path_of(*observation.work);
  PIPER_TRY(const Simulation simulation, simulate(*observation.plan, cluster));
  return path_of(*observation.plan, cluster, simulation);
}

double predicted(const Observation& observation, const std::vector<StepPath>& paths, const Cluster& cluster) {
  double longest = 0;
  for (const StepPath& path : paths) longest = std::max(longest, seconds(path, cluster));
  return longest + (observation.work ? 0 : cluster.step);
}

/// The parameters as coordinates in [0, 1].
class Coordinates {
 public:
  explicit Coordinates(const Cluster& cluster) : start_(cluster), parameters_(parameters_of(cluster)) {}

  std::vector<double> of(const Cluster& cluster) const {
    std::vector<double> out;
    for (const FittedParameter& p : parameters_)
      out.push_back(std::clamp((p.get(cluster) - p.least) / (p.most - p.least), 0.0, 1.0));
    return out;
  }
  Cluster at(const std::vector<double>& point) const {
    Cluster cluster = start_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const FittedParameter& p = parameters_[i];
      p.set(cluster, p.least + point[i] * (p.most - p.least));
    }
    return cluster;
  }

 private:
  Cluster start_;
  std::vector<FittedParameter> parameters_;
};

class Fit {
 public:
  Fit(const std::vector<Observation>& observations, const Cluster& start)
      : observations_(observations), coordinates_(start), paths_(observations.size()) {
    std::map<std::string, size_t> rows;
    for (const Observation& observation : observations) ++rows[observation.set];
    size_t most = 0;
    for (const auto& [set, count] : rows) most = std::max(most, count);
    for (const Observation& observation : observations)
      weights_.push_back(std::sqrt(static_cast<double>(most) / static_cast<double>(rows[observation.set])));
  }

  Result<Cluster> run(const Cluster& start) {
    constexpr int most_rounds = 10;
    constexpr double enough = 1e-3;  // relative change of the sum between two rounds
    std::vector<double> best = coordinates_.of(start), next = best;
    double least = INFINITY;
    for (int round = 0; round < most_rounds; ++round) {
      PIPER_TRY(const double sum, simulate_all(coordinates_.at(next)));
      const bool better = sum < least * (1 - enough);
      if (sum < least) {
        least = sum;
        best = next;
      }
      if (!better && round > 1) break;
      next = least_squares([&](const std::vector<double>& at) { return residuals(coordinates_.at(at)); }, best, scale);
    }
    return coordinates_.at(best);
  }

 private:
  /// Finds the critical path of every step there; the sum of the errors.
  Result<double> simulate_all(const Cluster& cluster) {
    for (size_t i = 0; i < observations_.size(); ++i) {
      PIPER_TRY(StepPath path, simulated_path(observations_[i], cluster));
      if (!observations_[i].work || paths_[i].empty()) paths_[i].push_back(std::move(path));
    }
    return robust_sum(residuals(cluster), scale);
  }

  std::vector<double> residuals(const Cluster& cluster) const {
    std::vector<double> out;
    for (size_t i = 0; i < observations_.size(); ++i)
      out.push_back(weights_[i] * (predicted(observations_[i], paths_[i], cluster) / observations_[i].seconds - 1));
    return out;
  }

  const std::vector<Observation>& observations_;
  Coordinates coordinates_;
  std::vector<std::vector<StepPath>> paths_;  // of every observation: those found so far
  std::vector<double> weights_;
};

}  // namespace

Result<Cluster> fit_cluster(const std::vector<Observation>& observations, const Cluster& start) {
  return Fit(observations, start).run(start);
}

Result<std::vector<double>> predict(const std::vector<Observation>& observations, const Cluster& cluster) {
  std::vector<double> out;
  for (const Observation& observation : observations) {
    PIPER_TRY(const StepPath path, simulated_path(observation, cluster));
    out.push_back(predicted(observation, {path}, cluster));
  }
  return out;
}

}  // namespace piper
