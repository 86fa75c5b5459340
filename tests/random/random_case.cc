#include "random/random_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "property/random_directives.h"
#include "random/random_model_lines.h"
#include "random/text_moves.h"

namespace piper::random {
namespace {

using property::PipelineSizes;
using property::Random;
using property::ReplicaChoice;
using property::Task;

constexpr int most_devices = 8;

/// Some of the model on devices of its own, given as an argument of place, replicate and shard.
struct Cell {
  std::string scopes;  // "layer=0..1"
  std::string devices;
  std::vector<int> list;
  std::vector<int> second;  // for the second half of the microbatches, if they run elsewhere
};

class CaseWriter {
 public:
  explicit CaseWriter(Random& random) : random_(random), model_(random_small_model(random)) {}

  Case write() {
    if (random_.percent(60))
      write_mesh();
    else
      write_lists();
    out_.model = model_.lines;
    out_.model.push_back(fmt::format("layers = {}", layers_));
    const int spare = random_.pick<int>({1, 1, 2});
    out_.step = {fmt::format("batch = {}", microbatches_ * widest_ * spare),
                 fmt::format("optimizer = \"{}\"", random_.pick<std::string>({"adamw", "adamw", "sgd", "momentum"}))};
    out_.issue = random_.percent(30) ? Issue::Serial : Issue::Ahead;
    if (random_.percent(10)) make_a_mistake();
    return std::move(out_);
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_.directives.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  /// `, NAME=…` with a stream of another role, or nothing.
  std::string stream(const std::string& name, int chance = 15) {
    if (!random_.percent(chance)) return "";
    return fmt::format(", {}={}", name, random_.pick<std::string>({"compute", "p2p", "dp", "ep", "tp", "other"}));
  }

  // ---- along the axes of a mesh

  void write_mesh() {
    PipelineSizes sizes = property::random_pipeline(random_);
    microbatches_ = sizes.microbatches;
    dp_ = random_.pick<int>({1, 1, 2, 2, 3});
    ep_ = model_.experts ? random_.pick<int>({1, 2, 2, 4}) : 1;
    const bool context = random_.percent(model_.experts ? 5 : 35);
    cp_ = context ? random_.pick<int>({1, 2, 2, 2, 2, 4}) : 1;
    tp_ = random_.percent(context ? 5 : 45) ? random_.pick<int>({2, 2, 4}) : 1;
    while (sizes.pp * dp_ * ep_ * cp_ * tp_ > most_devices) {
      int& largest = dp_ > 1 ? dp_ : ep_ > 2 ? ep_ : tp_ > 1 ? tp_ : cp_ > 1 ? cp_ : ep_;
      largest = largest > 2 ? largest / 2 : 1;
    }
    layers_ = std::max(2, sizes.stages) + random_.below(2);
    if (model_.branches) layers_ = std::max(layers_, 2);
    add_axes(sizes.pp, context);
    add_split();
    const bool by_coordinates = !model_.branches && sizes.pp > 1 && random_.percent(20);
    if (by_coordinates)
      place_by_coordinates(sizes.pp);
    else
      place_along(sizes);
    widest_ = dp_ * ep_;
    if (context) add_context();
    if (model_.experts) shard_along();
    if (tp_ > 1 || random_.percent(5)) add_cut();
    add_recompute();
    if (gathers_ && random_.percent(60)) add_prefetch();
    if (by_coordinates) return add_orders();
    if (!sizes.timeline.empty() && random_.percent(85))
      add("use {}(stages=stage, microbatches=mb{})", sizes.timeline, use_options(sizes.timeline));
    else if (random_.percent(40) && sizes.shape != "two_way")
      add_stage_orders(sizes);
  }

  void add_axes(int pp, bool context) {
    std::vector<std::pair<std::string, int>> axes = {{"pp", pp}, {"dp", dp_}, {"ep", ep_}};
    std::erase_if(axes,
                  [&](const auto& axis) { return axis.first != "pp" && axis.second == 1 && random_.percent(60); });
    if (random_.percent(25)) random_.shuffle(axes);
    if (context) axes.insert(random_.percent(3) ? axes.begin() : axes.end(), {"cp", cp_});
    if (tp_ > 1) axes.insert(random_.percent(3) ? axes.begin() : axes.end(), {"tp", tp_});
    std::vector<std::string> written;
    for (const auto& [name, size] : axes) {
      written.push_back(fmt::format("{}={}", name, size));
      if (name == "dp" || name == "ep" || (name == "cp" && !random_.percent(3))) copies_.push_back(name);
    }
    add("mesh({})", fmt::join(written, ", "));
  }

  void add_split() {
    if (microbatches_ % 2 == 0 && random_.percent(8)) {  // every microbatch in two
      add("split(batch, parts={}, as=mb)", microbatches_);
      add("split(batch, parts=2, as=half)");
      microbatches_ *= 2;  // of the batch; orders name one of the two
      halves_of_microbatches_ = true;
      return;
    }
    if (microbatches_ > 1 || random_.percent(80)) add("split(batch, parts={}, as=mb)", microbatches_);
  }

  void place_along(const PipelineSizes& sizes) {
    std::string how = fmt::format("shape={}", sizes.shape);
    if (sizes.shape != "two_way" && random_.percent(15)) {  // the same, or another, by a list
      std::vector<int> ranks;
      for (int s = 0; s < sizes.stages; ++s) {
        const int turn = s % (2 * sizes.pp);
        ranks.push_back(sizes.shape == "v" && turn >= sizes.pp ? 2 * sizes.pp - 1 - turn : s % sizes.pp);
      }
      if (random_.percent(20)) random_.shuffle(ranks);
      how = fmt::format("ranks=[{}]", fmt::join(ranks, ", "));
    }
    add("place({{}}, along=pp, stages={}, {}{}{}{})", sizes.stages, how, starts(sizes.stages), stream("stream", 5),
        stream("transfers"));
    cells_.clear();
    if (copies_.empty()) return;
    const std::string along = copies_.size() == 1 ? copies_[0] : fmt::format("[{}]", fmt::join(copies_, ", "));
    const int size = dp_ * ep_ * cp_;
    if (random_.percent(70)) return replicate("", "along=" + along, size);
    for (const std::string& part : outermost()) replicate(part, "along=" + along, size);
  }

  /// Where the stages begin, sometimes.
  std::string starts(int stages) {
    if (stages == 1 || stages > layers_ || model_.branches || !random_.percent(20)) return "";
    std::vector<int> first(static_cast<size_t>(layers_) - 1);
    std::iota(first.begin(), first.end(), 1);
    random_.shuffle(first);
    first.resize(static_cast<size_t>(stages) - 1);
    std::sort(first.begin(), first.end());
    return fmt::format(", at=[{}]", fmt::join(first, ", "));
  }

  /// Cells at coordinates of the mesh, of equal or different size.
  void place_by_coordinates(int pp) {
    const bool uneven = dp_ > 1 && random_.percent(40);
    for (const std::string& scopes : random_parts()) {
      std::string where = fmt::format("pp={}", random_.below(pp));
      const bool one = uneven && random_.percent(50);
      if (one) where += fmt::format(", dp={}", random_.below(dp_));
      cells_.push_back({scopes, fmt::format("mesh={{{}}}", where), {}, {}});
      add("place({{{}}}, mesh={{{}}}{})", scopes, where, stream("transfers"));
      std::vector<std::string> axes = copies_;
      if (one) std::erase(axes, "dp");
      if (axes.empty()) continue;
      replicate(scopes, axes.size() == 1 ? "along=" + axes[0] : fmt::format("along=[{}]", fmt::join(axes, ", ")),
                (one ? 1 : dp_) * ep_ * cp_);
    }
  }

  void shard_along() {
    if (copies_.empty() || !random_.percent(75)) return;
    std::string along = std::ranges::find(copies_, "ep") != copies_.end() ? "ep" : "dp";
    if (copies_.size() == 2 && 4 % (dp_ * ep_) == 0 && random_.percent(30))
      along = fmt::format("[{}]", fmt::join(copies_, ", "));
    add("shard({{{}experts=*}}, along={}{}{})", random_.percent(15) ? "layer=1, " : "", along, buffer(),
        stream("stream"));
  }

  /// Room for rows, from much too small to what never overflows. Of slots nobody says it, or hardly anybody.
  std::string buffer() {
    if (!random_.percent(model_.dropless ? 70 : 2)) return "";
    return fmt::format(", buffer={}", random_.pick<std::string>({"0.25", "0.5", "1", "1.25", "2", "4"}));
  }

  /// Tokens are divided in all of the model.
  void add_context() {
    std::string more = random_.percent(40) ? "heads" : "gather";
    if (random_.percent(cp_ == 4 ? 80 : 30)) more += ", order=contiguous";  // four tokens are not eight blocks
    if (random_.percent(30)) more += ", regather=on";
    add("shard({{{}}}, along=cp, sequence={}{})", random_.percent(3) ? "layer=*" : "", more, stream("stream"));
  }

  void add_cut() {
    const bool vocabulary = random_.percent(30), sequence = random_.percent(35);
    std::string what =
        vocabulary ? "" : random_.pick<std::string>({"layer=*", "layer=*", "layer=*", "", "layer=0", "layer=1.."});
    if (what == "layer=1..") what = fmt::format("layer=1..{}", layers_ - 1);
    std::string more;
    if (vocabulary) more += ", vocabulary=on";
    if (sequence) more += random_.percent(40) ? ", sequence=on, regather=on" : ", sequence=on";
    if (!vocabulary && random_.percent(15)) more += ", parameters=\"" + parameters() + "\"";
    add("shard({{{}}}, along=tp{}{})", what, more, stream("stream"));
  }

  /// Of attention, of the feed-forward layer, or of both; by names that all or some models have.
  std::string parameters() {
    const bool reference = model_.lines[0].find("reference") != std::string::npos;
    const std::string attention = reference ? "*.wo: 1" : "*.attention.out.weight: 1",
                      feed = reference ? "*.w_down: 1" : "*.mlp.down.weight: 1";
    return random_.pick<std::string>({attention, feed, attention + ", " + feed});
  }

  // ---- on lists of devices

  void write_lists() {
    microbatches_ = random_.between(1, 4);
    layers_ = random_.between(2, 4);
    sizes_ = random_.percent(50) ? std::vector<int>{random_.pick<int>({1, 2, 4})} : std::vector<int>{1, 2, 4};
    next_device_ = random_.percent(10) ? 1 : 0;  // the first is idle
    const std::vector<std::string> parts = random_parts();
    const bool apart = random_.percent(40);  // so that a timeline can order them
    for (const std::string& scopes : parts) cells_.push_back({scopes, "", choose_devices(apart), {}});
    if (model_.tied && random_.percent(70)) cells_.back().list = cells_.front().list;
    int devices = 0;
    widest_ = 1;
    const bool both_ways = microbatches_ > 1 && random_.percent(12);
    if (both_ways) send_some_elsewhere();
    for (Cell& cell : cells_) {
      cell.devices = fmt::format("devices=[{}]", fmt::join(cell.list, ", "));
      if (!cell.second.empty()) cell.devices += fmt::format(" | [{}]", fmt::join(cell.second, ", "));
      devices = std::max(devices, *std::ranges::max_element(cell.list) + 1);
      widest_ = std::lcm(widest_, static_cast<int>(cell.list.size()));
    }
    add("devices({})", devices + (random_.percent(10) ? 1 : 0));
    add_split();
    const bool staged = apart && !both_ways && random_.percent(60);
    for (size_t c = 0; c < cells_.size(); ++c) {
      const Cell& cell = cells_[c];
      const std::string more = (staged ? fmt::format(", stage={}", c) : "") + stream("stream", 5) + stream("transfers");
      if (cell.second.empty()) {
        add("place({{{}}}, {}{})", cell.scopes, cell.devices, more);
        continue;
      }
      const int half = parts_of_the_batch() / 2;
      add("place({{{}, mb=0..{}}}, devices=[{}]{})", cell.scopes, half - 1, fmt::join(cell.list, ", "), more);
      add("place({{{}, mb={}..{}}}, devices=[{}])", cell.scopes, half, parts_of_the_batch() - 1,
          fmt::join(cell.second, ", "));
    }
    for (const Cell& cell : cells_)
      if (cell.list.size() > 1 || random_.percent(20))
        replicate(cell.scopes, cell.devices, static_cast<int>(cell.list.size()));
    if (model_.experts)
      for (const Cell& cell : cells_) shard_list(cell);
    add_recompute();
    if (gathers_ && random_.percent(60)) add_prefetch();
    if (staged && random_.percent(70)) {
      const std::string timeline =
          random_.pick<std::string>({"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-1p", "list", "list"});
      add("use {}(stages=stage, microbatches=mb{})", timeline, use_options(timeline));
    } else if (!both_ways && random_.percent(70)) {
      add_orders();
    }
  }

  /// For half of the microbatches some cells have the devices of others, as many as their own.
  void send_some_elsewhere() {
    for (Cell& cell : cells_) {
      const Cell& other = random_.pick(cells_);
      if (random_.percent(50) && other.list.size() == cell.list.size() && other.list != cell.list)
        cell.second = other.list;
    }
  }

  /// Fresh devices, the ones of another cell, or (rarely) some of both; in any order.
  std::vector<int> choose_devices(bool apart) {
    const bool full = next_device_ >= most_devices;
    if (!cells_.empty() && (full || (!apart && random_.percent(30)))) return random_.pick(cells_).list;
    const int size = std::min(random_.pick(sizes_), most_devices - next_device_);
    std::vector<int> devices(static_cast<size_t>(size));
    const int first = !apart && next_device_ > 0 && random_.percent(8) ? next_device_ - 1 : next_device_;
    std::iota(devices.begin(), devices.end(), first);
    next_device_ = first + size + (random_.percent(5) ? 1 : 0);
    if (random_.percent(25)) random_.shuffle(devices);
    return devices;
  }

  /// All devices of the list hold some of the experts, or pairs of them do.
  void shard_list(const Cell& cell) {
    if (cell.scopes.find("layer") == std::string::npos || cell.scopes.find("attention=*") != std::string::npos) return;
    if (cell.list.size() == 1 || !random_.percent(70)) return;
    std::string lists = cell.devices.substr(cell.devices.find('['));
    if (cell.list.size() == 4 && cell.second.empty() && random_.percent(50)) {
      const auto& d = cell.list;
      lists = random_.percent(50) ? fmt::format("[{}, {}] | [{}, {}]", d[0], d[1], d[2], d[3])
                                  : fmt::format("[{}, {}] | [{}, {}]", d[0], d[2], d[3], d[1]);
    }
    add("shard({{{}, experts=*}}, devices={}{}{})", cell.scopes, lists, buffer(), stream("stream"));
  }

  // ---- both

  /// As the first split says.
  int parts_of_the_batch() const { return halves_of_microbatches_ ? microbatches_ / 2 : microbatches_; }

  /// The outermost scopes.
  std::vector<std::string> outermost() const {
    if (model_.branches)
      return {"left=*", "right=*", "join=*", "embed=*, left=none, right=none", "layer=*, left=none, right=none",
              "head=*"};
    return {"embed=*", "layer=*", "head=*"};
  }

  /// All of the model in parts that are placed one by one, in order of execution.
  std::vector<std::string> random_parts() {
    if (model_.branches) return outermost();
    std::vector<std::string> out = {"embed=*"};
    for (int first = 0; first < layers_;) {
      const int last = std::min(layers_ - 1, first + random_.below(3));
      if (first == last && random_.percent(15)) {  // inside of a layer
        out.push_back(fmt::format("layer={}, attention=*", first));
        out.push_back(fmt::format("layer={}, attention=none", first));
      } else {
        out.push_back(first == last ? fmt::format("layer={}", first) : fmt::format("layer={}..{}", first, last));
      }
      first = last + 1;
    }
    out.push_back("head=*");
    return out;
  }

  void replicate(const std::string& what, const std::string& devices, int size) {
    const ReplicaChoice choice = property::random_replicas(random_);
    std::string more = choice.arguments;
    if (more.find("reduce_stream") == std::string::npos) more += stream("reduce_stream", 10);
    add("replicate({{{}}}, {}{})", what, devices, more);
    gathers_ = gathers_ || (choice.zero == 3 && size > 1);
  }

  void add_recompute() {
    if (!random_.percent(35)) return;
    std::vector<std::string> what = {"layer=*", "layer=*",       fmt::format("layer={}", random_.below(layers_)),
                                     "head=*",  "layer=*, mb=0", "layer=*, attention=*",
                                     ""};
    if (model_.experts) what.insert(what.end(), {"layer=*, experts=*", "experts=*"});
    add("recompute({{{}}})", random_.pick(what));
  }

  void add_prefetch() {
    std::string text = property::random_prefetch(random_);
    text.pop_back();  // the end of the line
    add("{}", text);
  }

  std::string use_options(const std::string& timeline) {
    if (!random_.percent(25)) return "";
    if (timeline.starts_with("interleaved")) return fmt::format(", group={}", random_.between(1, 4));
    if (timeline == "zb-1p" || timeline == "zb-2p") return fmt::format(", memory_limit={}", random_.between(1, 8));
    if (timeline == "list")
      return random_.percent(50) ? ", backward=whole" : fmt::format(", memory_limit={}", random_.between(2, 8));
    return "";
  }

  /// What a data-legal order of everything says about each place.
  void add_orders() {
    if (model_.branches && random_.percent(80)) return;  // the two encoders are in no order
    const std::vector<Task> tasks =
        property::random_tasks(random_, cells_.size(), parts_of_the_batch(), random_.percent(50));
    std::set<std::string> done;
    for (const Cell& cell : cells_) {
      if (!done.insert(cell.devices).second) continue;
      std::vector<Task> here;
      for (const Task& task : tasks)
        if (cells_[task.cell].devices == cell.devices) here.push_back(task);
      if (here.size() > 1 && random_.percent(80)) add("order({})", elements(here));
    }
  }

  void add_stage_orders(const PipelineSizes& sizes) {
    cells_.clear();
    for (int s = 0; s < sizes.stages; ++s) {
      const int turn = s % (2 * sizes.pp);
      const int rank = sizes.shape == "v" && turn >= sizes.pp ? 2 * sizes.pp - 1 - turn : s % sizes.pp;
      cells_.push_back({fmt::format("stage={}", s), fmt::format("{}", rank), {}, {}});
    }
    add_orders();
  }

  std::string elements(const std::vector<Task>& tasks) {
    const bool several = random_.percent(30);  // brackets
    const auto filter = [&](const Task& task) {
      const std::string mb = microbatches_ == 1 && !has_split() ? "" : fmt::format(", mb={}", task.mb);
      return fmt::format("{{{}{}, pass={}}}", cells_[task.cell].scopes, mb, task.pass);
    };
    std::vector<std::string> out;
    for (size_t i = 0; i < tasks.size(); ++i) {
      const bool pair = i + 1 < tasks.size() && tasks[i].mb != tasks[i + 1].mb && tasks[i].pass != tasks[i + 1].pass;
      if (several && pair && random_.percent(40)) {
        out.push_back(fmt::format("[{}, {}]", filter(tasks[i]), filter(tasks[i + 1])));
        ++i;
      } else {
        out.push_back(filter(tasks[i]));
      }
    }
    return fmt::format("{}", fmt::join(out, ", "));
  }

  bool has_split() const {
    return std::ranges::any_of(out_.directives, [](const std::string& line) { return line.starts_with("split"); });
  }

  /// One of the moves that shrink cases, whether the result makes sense or not.
  void make_a_mistake() {
    const size_t line = static_cast<size_t>(random_.below(static_cast<int>(out_.directives.size())));
    std::vector<std::string> changed = smaller(out_.directives[line]);
    if (changed.empty() || random_.percent(20))
      out_.directives.erase(out_.directives.begin() + static_cast<std::ptrdiff_t>(line));
    else
      out_.directives[line] = random_.pick(changed);
  }

  Random& random_;
  SmallModel model_;
  Case out_;
  std::vector<Cell> cells_;
  std::vector<std::string> copies_;  // axes along which parameters are replicated
  std::vector<int> sizes_;           // of lists
  int layers_ = 2, microbatches_ = 1, widest_ = 1;
  int dp_ = 1, ep_ = 1, cp_ = 1, tp_ = 1, next_device_ = 0;
  bool gathers_ = false, halves_of_microbatches_ = false;
};

}  // namespace

Case random_case(uint64_t seed) {
  Random random(seed);
  return CaseWriter(random).write();
}

}  // namespace piper::random
