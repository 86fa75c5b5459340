#include "property/random_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace piper::property {
namespace {

/// Consecutive layers (or the encoders, or the head) on one list of devices.
struct Cell {
  std::string scopes;  // "layer=0..1"
  std::vector<int> devices;
  bool has_layers = false;
};

class ListWriter {
 public:
  explicit ListWriter(Random& random) : random_(random) {}

  Scenario write() {
    microbatches_ = random_.between(1, 4);
    sizes_ = random_.percent(50) ? std::vector<int>{random_.pick<int>({1, 2, 4})} : std::vector<int>{1, 2, 4};
    const int largest = *std::max_element(sizes_.begin(), sizes_.end());
    ModelWish wish{.batch = int64_t{microbatches_} * largest * random_.between(1, 2), .most_layers = 5};
    wish.splits_backward = random_.percent(40);
    wish.aux = sizes_.size() == 1;
    scenario_.model = random_model(random_, wish);
    make_cells();
    add("devices({})", devices_);
    add("split(batch, parts={}, as=mb)", microbatches_);
    for (const Cell& cell : cells_) add("place({{{}}}, devices=[{}])", cell.scopes, fmt::join(cell.devices, ", "));
    for (const Cell& cell : cells_) replicate(cell);
    if (scenario_.model.has_experts)
      for (const Cell& cell : cells_) shard(cell);
    scenario_.schedule += random_recompute(random_, scenario_.model);
    if (gathers_ && random_.percent(60)) scenario_.schedule += random_prefetch(random_);
    if (random_.percent(60)) add_orders();
    return std::move(scenario_);
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    scenario_.schedule += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }

  /// Fresh devices, the ones of another cell, or (rarely) some of both.
  std::vector<int> choose_devices() {
    if (!cells_.empty() && random_.percent(25)) return random_.pick(cells_).devices;
    const int size = random_.pick(sizes_);
    std::vector<int> devices(static_cast<size_t>(size));
    const int first = devices_ > 0 && random_.percent(10) ? devices_ - 1 : devices_;
    std::iota(devices.begin(), devices.end(), first);
    devices_ = first + size;
    if (random_.percent(30)) random_.shuffle(devices);
    return devices;
  }

  void make_cells() {
    const auto cell = [&](std::string scopes, bool layers) {
      cells_.push_back({std::move(scopes), choose_devices(), layers});
    };
    cell("encoder=*", false);
    for (int first = 0; first < scenario_.model.layers;) {
      const int last = std::min(scenario_.model.layers - 1, first + random_.below(3));
      cell(fmt::format("layer={}..{}", first, last), true);
      first = last + 1;
    }
    cell("head=0", false);
    if (scenario_.model.shares && random_.percent(85)) share_devices();
  }

  /// Parameters that several cells use should live on equal or on distinct devices.
  void share_devices() {
    if (random_.percent(50)) {
      for (Cell& cell : cells_) cell.devices = cells_[0].devices;
      devices_ = *std::max_element(cells_[0].devices.begin(), cells_[0].devices.end()) + 1;
      return;
    }
    devices_ = 0;
    for (Cell& cell : cells_) {
      std::iota(cell.devices.begin(), cell.devices.end(), devices_);
      devices_ += static_cast<int>(cell.devices.size());
    }
  }

  void replicate(const Cell& cell) {
    const bool together = scenario_.model.shares && std::all_of(cells_.begin(), cells_.end(), [&](const Cell& c) {
                            return c.devices == cell.devices;
                          });
    if (together && &cell != &cells_[0]) return;  // chunks that share a parameter need the same directive
    if (cell.devices.size() == 1 && random_.percent(70)) return;
    ReplicaChoice choice = random_replicas(random_);
    if (cell.devices.size() == 1) choice = {};  // nothing can be divided
    add("replicate({{{}}}, devices=[{}]{})", together ? "" : cell.scopes, fmt::join(cell.devices, ", "),
        choice.arguments);
    gathers_ = gathers_ || (choice.zero == 3 && cell.devices.size() > 1);
  }

  bool has_experts(const Cell& cell) const {
    for (const Chunk& chunk : scenario_.model.graph.chunks)
      if (chunk.scopes.size() > 1)
        for (int l = 0; l < scenario_.model.layers; ++l)
          if (chunk.scopes[0].index == l && inside(cell, l)) return true;
    return false;
  }
  static bool inside(const Cell& cell, int layer) {
    int first = 0, last = -1;
    if (std::sscanf(cell.scopes.c_str(), "layer=%d..%d", &first, &last) != 2) return false;
    return first <= layer && layer <= last;
  }

  /// All devices of the list hold some of the experts, or pairs of them do.
  void shard(const Cell& cell) {
    if (!cell.has_layers || cell.devices.size() == 1 || !has_experts(cell) || !random_.percent(75)) return;
    std::string lists = fmt::format("[{}]", fmt::join(cell.devices, ", "));
    if (cell.devices.size() == 4 && random_.percent(50)) {
      const auto& d = cell.devices;
      lists = random_.percent(50) ? fmt::format("[{}, {}] | [{}, {}]", d[0], d[1], d[2], d[3])
                                  : fmt::format("[{}, {}] | [{}, {}]", d[0], d[2], d[3], d[1]);
    }
    add("shard({{{}, experts=*}}, devices={})", cell.scopes, lists);
  }

  static std::string filter(const Cell& cell, const Task& task) {
    return fmt::format("{{{}, mb={}, pass={}}}", cell.scopes, task.mb, task.pass);
  }

  /// What a data-legal order of everything says about each list of devices.
  void add_orders() {
    const auto tasks =
        random_tasks(random_, cells_.size(), microbatches_, scenario_.model.splits_backward && random_.percent(70));
    std::vector<std::vector<int>> done;
    for (const Cell& cell : cells_) {
      if (std::find(done.begin(), done.end(), cell.devices) != done.end()) continue;
      done.push_back(cell.devices);
      std::vector<Task> here;
      for (const Task& task : tasks)
        if (cells_[task.cell].devices == cell.devices) here.push_back(task);
      if (random_.percent(80) && here.size() > 1) add("order({})", elements(here));
    }
  }

  std::string elements(const std::vector<Task>& tasks) {
    std::vector<std::string> out;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::string one = filter(cells_[tasks[i].cell], tasks[i]);
      const bool pair = i + 1 < tasks.size() && tasks[i].mb != tasks[i + 1].mb && tasks[i].pass != tasks[i + 1].pass;
      if (pair && random_.percent(30)) {
        ++i;
        out.push_back(fmt::format("[{}, {}]", one, filter(cells_[tasks[i].cell], tasks[i])));
      } else {
        out.push_back(one);
      }
    }
    return fmt::format("{}", fmt::join(out, ", "));
  }

  Random& random_;
  Scenario scenario_;
  std::vector<Cell> cells_;
  std::vector<int> sizes_;
  int microbatches_ = 1;
  int devices_ = 0;
  bool gathers_ = false;
};

}  // namespace

std::string random_recompute(Random& random, const RandomModel& model) {
  if (!random.percent(40)) return "";
  std::vector<std::string> choices = {"layer=*", fmt::format("layer={}", random.below(model.layers)), "head=0",
                                      fmt::format("layer=*, mb=0")};
  if (model.has_experts) choices.push_back("layer=*, experts=*");
  return fmt::format("recompute({{{}}})\n", random.pick(choices));
}

Scenario random_lists(Random& random) {
  return ListWriter(random).write();
}

}  // namespace piper::property
