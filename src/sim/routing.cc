#include "sim/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "plan/communication_kinds.h"

namespace piper {

Result<Routing> parse_routing(const std::string& text) {
  constexpr std::string_view zipf = "zipf:";
  constexpr double most = 10;
  if (text == "balanced") return Routing{};
  Routing out;
  const char *begin = text.data() + std::min(zipf.size(), text.size()), *end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(begin, end, out.skew);
  if (text.starts_with(zipf) && problem == std::errc() && rest == end && out.skew >= 0 && out.skew <= most) return out;
  return error(ErrorCode::E111, {}, fmt::format("\"{}\" is no way to choose experts", text))
      .help(
          "balanced: all get equally many rows; zipf:1.2: the k-th gets k^-1.2 as many as the first (from 0 to 10); "
          "trace:FILE: as in a "
          "run that wrote FILE");
}

namespace sim {
namespace {

/// Numbers that are the same on every machine.
class Shuffler {
 public:
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[next() % i]);
  }

 private:
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t state_ = 1;
};

/// Of an all_gather of where the rows of experts end: those of all devices, and those that are here.
int64_t experts_of(const Communication& gather, int devices) {
  const int64_t numbers = gather.bytes / bytes_of(DType::Int32), n = devices;
  return numbers * n / (n * n + 1);
}

}  // namespace

RowLoad row_load(int devices, int64_t experts, int64_t buffer, const Routing& routing) {
  constexpr int placements = 200;
  const double room = static_cast<double>(buffer) / static_cast<double>(one_load);
  if (routing.balanced()) return {std::min(1.0, room), std::max(0.0, 1 - room), static_cast<int>(std::ceil(1 / room))};
  RowLoad out{0, 0, 1};
  const auto add = [&](const std::vector<double>& shares, double weight) {
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    const auto each = static_cast<std::ptrdiff_t>(experts / devices);
    double busiest = 0;
    for (auto first = shares.begin(); shares.end() - first >= each; first += each)
      busiest = std::max(busiest, std::accumulate(first, first + each, 0.0) / all * devices);
    out.first += std::min(busiest, room) * weight;
    out.further += std::max(0.0, busiest - room) * weight;
    out.rounds = std::max(out.rounds, static_cast<int>(std::ceil(busiest / room)));
  };
  for (const std::vector<double>& shares : routing.traced) add(shares, 1 / static_cast<double>(routing.traced.size()));
  if (!routing.traced.empty()) return out;
  std::vector<double> shares;
  for (int64_t k = 1; k <= experts; ++k) shares.push_back(std::pow(static_cast<double>(k), -routing.skew));
  Shuffler shuffler;
  for (int p = 0; p < placements; ++p) {
    shuffler.shuffle(shares);
    add(shares, 1.0 / placements);
  }
  return out;
}

Table<CommunicationId, RowLoad> row_loads(const Plan& plan, const Routing& routing) {
  const Table<CommunicationId, OpKind> kinds = kinds_of_communications(plan);
  std::map<std::pair<PartitionId, int64_t>, int64_t> experts;  // by what divides them, and its buffer
  for (const CommunicationId c : plan.communications.ids()) {
    const Communication& communication = plan.communications[c];
    if (communication.buffer > 0 && kinds[c] == OpKind::AllGather)
      experts[{communication.over, communication.buffer}] =
          experts_of(communication, plan.partitions[communication.over].part_size);
  }
  std::map<std::tuple<int, int64_t, int64_t>, RowLoad> known;
  Table<CommunicationId, RowLoad> out(plan.communications.size());
  for (const CommunicationId c : plan.communications.ids()) {
    const Communication& communication = plan.communications[c];
    const auto found = experts.find({communication.over, communication.buffer});
    if (communication.buffer == 0 || found == experts.end()) continue;
    const int devices = plan.partitions[communication.over].part_size;
    const auto [load, fresh] = known.try_emplace({devices, found->second, communication.buffer});
    if (fresh) load->second = row_load(devices, found->second, communication.buffer, routing);
    out[c] = load->second;
  }
  return out;
}

}  // namespace sim

Checked check_routing(const Plan& plan, const Routing& routing) {
  const Table<CommunicationId, OpKind> kinds = kinds_of_communications(plan);
  for (const CommunicationId c : plan.communications.ids()) {
    const Communication& communication = plan.communications[c];
    if (communication.buffer == 0 || kinds[c] != OpKind::AllGather) continue;
    const int64_t experts = sim::experts_of(communication, plan.partitions[communication.over].part_size);
    for (const std::vector<double>& loads : routing.traced)
      if (static_cast<int64_t>(loads.size()) != experts)
        return error(ErrorCode::E111, {},
                     fmt::format("the trace has loads of {} experts, the model has {}", loads.size(), experts))
            .help("take a trace of a run of this model");
  }
  return Ok{};
}

}  // namespace piper
