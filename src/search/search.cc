#include "search/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>

#include "base/in_parallel.h"
#include "search/bound.h"
#include "timelines/list_schedule.h"

namespace piper {
namespace {

/// Runs `work(i)` for all i below `count`.
void for_all(int threads, size_t count, const std::function<void(size_t)>& work) {
  (void)in_parallel(count, static_cast<size_t>(threads), [&](size_t i) -> Checked {
    work(i);
    return Ok{};
  });
}

/// How much more simulated schedules have taken than their bounds, at least.
struct Experience {
  bool made = false;
  double time = 1, memory = 1;
  void add(double of_time, double of_memory) {
    time = made ? std::min(time, of_time) : of_time;
    memory = made ? std::min(memory, of_memory) : of_memory;
    made = true;
  }
};

struct Waiting {
  Candidate candidate;
  double bound = 0;
  bool may_fit = true;  // if not: looked at only if nothing else is left
  double usual = 0;     // of an inner node: the least bound of its usual pipelines
  int64_t bytes = 0;    // of a leaf: its bound
  /// Of a leaf: of those with its pipeline and level of ZeRO, and of all with its timeline, recomputation and ZeRO.
  std::shared_ptr<Experience> own = {}, kind = {};
  size_t number = 0;  // in the order of their making

  const Experience* experience() const { return own && own->made ? own.get() : kind.get(); }
  double expected() const { return own ? bound * experience()->time : std::max(bound, usual); }
  bool is_large(double capacity) const {
    return !may_fit || (own && static_cast<double>(bytes) * experience()->memory > capacity);
  }
};

/// Few forms and timelines tell how good a mesh may be.
bool is_usual_form(const Candidate& form, const ModelFacts& model) {
  return (form.recompute.empty() || form.recompute == model.layers) && form.recomputed_stages == every_stage &&
         form.sequence == (form.tp > 1) && form.vocabulary == (form.tp > 1) && !form.heads && !form.regather;
}
bool is_usual_timeline(const Candidate& pipeline) {
  constexpr std::array<std::string_view, 3> names = {"1f1b", "interleaved-1f1b", "dualpipev"};
  return std::ranges::find(names, pipeline.timeline) != names.end() && pipeline.stages_per_rank <= 2 &&
         pipeline.order == Candidate().order;
}

/// Of the budget, for the other ideas.
constexpr double share_of_runners_up = 0.15;
/// Computations of a step that are too many to compile two of them at a time.
constexpr int64_t large_step = 300'000;
constexpr double tolerance_of_runners_up = 0.02;
constexpr size_t rounds_of_runners_up = 12;
constexpr size_t most_lists = 6;
/// How many of each kind a round takes: few of what is slow.
/// What is bounded between two looks at the budget.
constexpr size_t bounded_at_once = 64;
constexpr size_t meshes_per_round = 2, forms_per_round = 8, pipelines_per_round = 48, leaves_per_round = 4;

class Search {
 public:
  Search(const Problem& problem, const SearchOptions& options)
      : problem_(problem), options_(options), bounds_(problem), start_(std::chrono::steady_clock::now()) {
    for (const DeviceKind& kind : problem.cluster.kinds)
      capacity_ = std::max(capacity_, kind.memory ? static_cast<double>(*kind.memory) : 1e300);
  }

  Checked try_first(const std::vector<std::pair<std::string, Schedule>>& tried) {
    for (const auto& [name, schedule] : tried) {
      PIPER_TRY(Evaluated made, evaluate(problem_, name, schedule));
      note(std::move(made));
    }
    return Ok{};
  }

  SearchResult run() && {
    explore({problem_.limits, (1 - share_of_runners_up) * options_.budget, options_.tolerance});
    out_.bound = std::numeric_limits<double>::infinity();
    for (const auto* queue : queues_)
      for (const Waiting& waiting : *queue) out_.bound = std::min(out_.bound, waiting.bound);
    if (best() && !options_.first) {
      try_lists();
      add_runners_up();
    }
    std::ranges::stable_sort(out_.evaluated, better);
    out_.seconds = elapsed();
    out_.work = work();
    return std::move(out_);
  }

 private:
  /// A part of the space: all of it, or another idea than a candidate's.
  struct Region {
    SpaceLimits limits;
    double until = 0;  // of the budget
    double tolerance = 0;
    size_t rounds = std::numeric_limits<size_t>::max();
    std::optional<Idea> idea = {};
    Candidate base = {};
  };

  /// Finds the best of a region; the queues then hold what was not looked at.
  void explore(Region region) {
    region_ = std::move(region);
    for (auto* queue : queues_) queue->clear();
    large_.reset();
    find_best();
    std::vector<Candidate> all = meshes(region_.limits);
    std::erase_if(all, [&](const Candidate& c) { return is_excluded(Idea::Mesh, c); });
    // what they have in common is asked for at one time
    std::ranges::stable_sort(
        all, {}, [&](const Candidate& c) { return std::tuple(c.tp, c.ep, samples_of(c, problem_.limits.batch)); });
    append(meshes_, bounded(std::move(all), 0, [&](const Candidate& mesh) -> Result<Waiting> {
             PIPER_TRY(const double seconds, bounds_.mesh(mesh));
             std::vector<Candidate> usual = forms(region_.limits, mesh);
             std::erase_if(usual, [&](const Candidate& c) { return !is_usual_form(c, facts_for(problem_, c)); });
             return Waiting{.candidate = mesh, .bound = seconds, .usual = least_usual(usual)};
           }));
    for (size_t round = 0; round < region_.rounds && waiting() > 0 && !over() && !(options_.first && best()); ++round) {
      expand_meshes();
      expand_forms();
      expand_pipelines();
      evaluate_leaves();
      prune();
      if (options_.progress) options_.progress({elapsed(), out_.evaluated.size(), waiting(), best()});
    }
  }

  /// Of those evaluated before that lie in the region.
  void find_best() {
    best_ = none;
    for (size_t i = 0; i < out_.evaluated.size(); ++i)
      if (const Evaluated& made = out_.evaluated[i];
          made.fits && lies_in_region(made.candidate) && (!best() || better(made, *best())))
        best_ = i;
  }
  bool lies_in_region(const std::optional<Candidate>& candidate) const {
    if (!region_.idea) return true;
    return candidate && allows(region_.limits.fixed, *candidate) && differs(*region_.idea, *candidate, region_.base);
  }
  /// Asked where the choice is made that the idea is about.
  bool is_excluded(Idea choice, const Candidate& candidate) const {
    return region_.idea == choice && !differs(choice, candidate, region_.base);
  }

  /// In place of the timelines of the best, one for each pipeline.
  void try_lists() {
    std::vector<const Evaluated*> all;
    for (const Evaluated& made : out_.evaluated)
      if (made.fits && made.candidate) all.push_back(&made);
    std::ranges::stable_sort(all, [](const Evaluated* a, const Evaluated* b) { return better(*a, *b); });
    std::vector<Candidate> lists;
    for (size_t i = 0; i < all.size() && lists.size() < most_lists; ++i)
      for (Candidate& made : by_costs(problem_.limits, *all[i]->candidate))
        if (std::ranges::none_of(lists, [&](const Candidate& c) { return is_same_pipeline(c, made); }))
          lists.push_back(std::move(made));
    evaluate_all(lists, [](size_t, const Evaluated&) {});
  }
  static bool is_same_pipeline(Candidate a, const Candidate& b) {
    a.zero = b.zero, a.bucket = b.bucket, a.prefetch = b.prefetch, a.gather_stream = b.gather_stream, a.order = b.order;
    return a == b;
  }

  void add_runners_up() {
    const SearchEnd end = out_.end;
    // rounds, not time: the same answer on every machine; time only if it is over anyway
    const double until = end == SearchEnd::Proved ? std::numeric_limits<double>::infinity() : options_.budget;
    const Evaluated* fastest = nullptr;
    for (const Evaluated& made : out_.evaluated)
      if (made.fits && made.candidate && (!fastest || better(made, *fastest))) fastest = &made;
    if (!fastest) return;
    const Candidate base = *fastest->candidate;
    for (const Idea idea : {Idea::Mesh, Idea::Timeline, Idea::Zero, Idea::Recomputation}) {
      out_.end = SearchEnd::Proved;
      explore({limits_for(idea, base), until, tolerance_of_runners_up, rounds_of_runners_up, idea, base});
      out_.hurried |= out_.end == SearchEnd::Time;
      if (best())
        out_.runners_up.push_back({idea, *best()});
      else if (large_)  // what it would take
        if (auto made = evaluate(problem_, *large_)) out_.runners_up.push_back({idea, *std::move(made)});
      if (is_stopped()) break;
    }
    out_.end = end;
  }

  /// Another mesh may change everything, another idea only that.
  SpaceLimits limits_for(Idea idea, const Candidate& base) const {
    SpaceLimits out = problem_.limits;
    if (idea == Idea::Mesh) return out;
    for (const Axis axis : all_axes) out.fixed.size[axis] = size_of(base, axis);
    out.fixed.order = base.order;
    if (idea == Idea::Zero) {
      out.fixed.microbatches = base.microbatches;
      out.fixed.timeline = base.timeline;
      out.fixed.stages = stages_of(base);
      out.fixed.recompute = base.recompute;
      out.fixed.recomputed_stages = base.recomputed_stages;
    }
    return out;
  }

  static bool differs(Idea idea, const Candidate& candidate, const Candidate& base) {
    switch (idea) {
      case Idea::Mesh:
        return std::ranges::any_of(all_axes, [&](Axis a) { return size_of(candidate, a) != size_of(base, a); });
      case Idea::Timeline:
        return candidate.timeline != base.timeline;
      case Idea::Zero:
        return candidate.zero != base.zero;
      case Idea::Recomputation:
        return candidate.recompute != base.recompute;
    }
    return false;
  }

  /// The least bound of the usual pipelines of these forms: infinite if none fits, 0 if there are none.
  double least_usual(const std::vector<Candidate>& forms) {
    double out = 0;
    for (const Candidate& form : forms)
      for (const Candidate& pipeline : pipelines(region_.limits, form)) {
        if (!is_usual_timeline(pipeline)) continue;
        if (out == 0) out = std::numeric_limits<double>::infinity();
        if (const auto bound = bounds_.pipeline(pipeline); bound && bound->fits) out = std::min(out, bound->seconds);
      }
    return out;
  }

  size_t waiting() const {
    size_t count = 0;
    for (const auto* queue : queues_) count += queue->size();
    return count;
  }
  void append(std::vector<Waiting>& queue, std::vector<Waiting> more) {
    for (Waiting& waiting : more) waiting.number = made_++;
    queue.insert(queue.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  bool is_stopped() const { return options_.stop && *options_.stop; }
  /// Of the budget: that of two threads.
  double work() const { return (bounds_.work() + evaluating_) / 2; }
  bool over() {
    if (is_stopped())
      out_.end = SearchEnd::Stopped;
    else if (elapsed() > options_.time)
      out_.end = SearchEnd::Time;
    else if (work() > region_.until)
      out_.end = SearchEnd::Budget;
    return out_.end != SearchEnd::Proved;
  }

  const Evaluated* best() const { return best_ < out_.evaluated.size() ? &out_.evaluated[best_] : nullptr; }
  /// What is not below this is left out.
  double limit() const {
    return best() ? best()->report.seconds * (1 - region_.tolerance) : std::numeric_limits<double>::infinity();
  }

  void note(Evaluated made) {
    out_.evaluated.push_back(std::move(made));
    const Evaluated& last = out_.evaluated.back();
    if (last.fits && lies_in_region(last.candidate) && (!best() || better(last, *best())))
      best_ = out_.evaluated.size() - 1;
  }

  void refuse(const Diagnostic& why) {
    if (reasons_.insert(why.code).second) out_.refused.push_back(why);
  }

  /// The first `count` of a queue in the order of what is expected of them.
  std::vector<Waiting> take(std::vector<Waiting>& queue, size_t count) {
    const auto place = [&](const Waiting& w) { return std::tuple(w.is_large(capacity_), w.expected(), w.number); };
    count = std::min(count, queue.size());
    const auto last = queue.rbegin() + static_cast<std::ptrdiff_t>(count);  // they come to the end: the rest stays
    std::partial_sort(queue.rbegin(), last, queue.rend(),
                      [&](const Waiting& a, const Waiting& b) { return place(a) < place(b); });
    std::vector<Waiting> out(std::make_move_iterator(queue.rbegin()), std::make_move_iterator(last));
    queue.resize(queue.size() - count);
    return out;
  }

  /// All of them with their bounds, made side by side; those that are refused are left out. When the budget is over the
  /// rest keeps the bound that all of them have.
  std::vector<Waiting> bounded(std::vector<Candidate> candidates, double at_least,
                               const std::function<Result<Waiting>(const Candidate&)>& with_bound) {
    std::vector<std::optional<Result<Waiting>>> made(candidates.size());
    for (size_t first = 0; first < candidates.size() && !over(); first += bounded_at_once)
      for_all(options_.threads, std::min(bounded_at_once, candidates.size() - first),
              [&](size_t i) { made[first + i] = with_bound(candidates[first + i]); });
    std::vector<Waiting> out;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (made[i] && !*made[i]) {
        refuse(made[i]->error());
        continue;
      }
      Waiting waiting = made[i] ? **std::move(made[i]) : Waiting{.candidate = std::move(candidates[i])};
      waiting.bound = std::max(waiting.bound, at_least);
      if (waiting.bound < limit()) out.push_back(std::move(waiting));
    }
    out_.considered += candidates.size();
    return out;
  }

  void expand_meshes() {
    for (const Waiting& taken : take(meshes_, meshes_per_round)) {
      std::vector<Candidate> all = forms(region_.limits, taken.candidate);
      std::erase_if(all, [&](const Candidate& c) { return is_excluded(Idea::Recomputation, c); });
      append(forms_, bounded(std::move(all), taken.bound, [&](const Candidate& form) -> Result<Waiting> {
               PIPER_TRY(const double seconds, bounds_.form(form));
               Waiting out{.candidate = form, .bound = seconds};
               if (seconds >= limit()) return out;
               out.may_fit = bounds_.may_fit(form);
               if (out.may_fit) out.usual = least_usual({form});
               return out;
             }));
    }
  }

  /// With the cuts that balance stages as well as even ones.
  std::vector<Candidate> pipelines_of(const Candidate& form) {
    std::vector<Candidate> out;
    for (Candidate& pipeline : pipelines(region_.limits, form)) {
      if (is_excluded(Idea::Timeline, pipeline)) continue;
      const bool staged = stages_of(pipeline) > 1 && pipeline.at.empty();
      if (const auto cuts = staged ? bounds_.balanced_cuts(pipeline) : Result<std::vector<int>>(std::vector<int>{});
          cuts && !cuts->empty()) {
        out.push_back(pipeline);
        out.back().at = *cuts;
      }
      out.push_back(std::move(pipeline));
    }
    return out;
  }

  void expand_forms() {
    for (const Waiting& taken : take(forms_, forms_per_round))
      append(pipelines_,
             bounded(pipelines_of(taken.candidate), taken.bound, [&](const Candidate& pipeline) -> Result<Waiting> {
               PIPER_TRY(const Bound bound, bounds_.pipeline(pipeline));
               return Waiting{.candidate = pipeline, .bound = bound.seconds, .may_fit = bound.fits};
             }));
  }

  void expand_pipelines() {
    const std::vector<Waiting> taken = take(pipelines_, pipelines_per_round);
    std::vector<std::vector<Waiting>> found(taken.size());
    std::vector<std::vector<std::pair<Candidate, Bound>>> large(taken.size());
    std::vector<std::optional<Diagnostic>> problems(taken.size());
    for_all(options_.threads, taken.size(), [&](size_t i) {
      const auto clock = bounds_.clock(taken[i].candidate);
      if (!clock) {
        problems[i] = clock.error();  // the timeline has no such sizes
        return;
      }
      for (Candidate& leaf : replications(region_.limits, taken[i].candidate)) {
        if (is_excluded(Idea::Zero, leaf)) continue;
        const Bound bound = bounds_.replication(leaf, **clock);
        if (bound.fits)
          found[i].push_back(
              {.candidate = std::move(leaf), .bound = std::max(bound.seconds, taken[i].bound), .bytes = bound.bytes});
        else
          large[i].emplace_back(std::move(leaf), bound);
      }
    });
    for (size_t i = 0; i < taken.size(); ++i) {
      if (problems[i]) refuse(*problems[i]);
      for (Waiting& leaf : found[i]) {
        if (leaf.bound >= limit()) continue;
        set_experience(leaf);
        append(leaves_, {std::move(leaf)});
      }
      for (auto& [candidate, bound] : large[i]) note_large(std::move(candidate), bound.bytes);
      out_.considered += found[i].size() + large[i].size();
    }
  }

  /// Orders of axes and buckets matter little, so that one tells about the others.
  void set_experience(Waiting& leaf) {
    const Candidate& c = leaf.candidate;
    auto& own = own_[{{c.pp, c.dp, c.ep, c.cp, c.tp, c.microbatches, c.stages_per_rank, c.zero, c.recomputed_stages},
                      {c.sequence, c.vocabulary, c.heads, c.regather},
                      c.recompute,
                      c.timeline,
                      c.at}];
    auto& kind = kinds_[{c.timeline, c.recompute, c.zero}];
    for (auto* experience : {&own, &kind})
      if (!*experience) *experience = std::make_shared<Experience>();
    leaf.own = own;
    leaf.kind = kind;
  }

  void note_large(Candidate candidate, int64_t bytes) {
    if (!large_ || bytes < large_bytes_) large_ = candidate, large_bytes_ = bytes;
    if (out_.smallest && bytes >= out_.smallest_bytes) return;
    out_.smallest = std::move(candidate);
    out_.smallest_bytes = bytes;
  }

  void evaluate_leaves() {
    const std::vector<Waiting> taken = take(leaves_, leaves_per_round);
    std::vector<Candidate> candidates;
    for (const Waiting& leaf : taken) candidates.push_back(leaf.candidate);
    evaluate_all(candidates, [&](size_t i, const Evaluated& made) {
      for (const auto& experience : {taken[i].own, taken[i].kind})
        experience->add(
            made.report.seconds / taken[i].bound,
            static_cast<double>(made.memory.total) / static_cast<double>(std::max<int64_t>(taken[i].bytes, 1)));
      if (!made.fits) note_large(taken[i].candidate, made.memory.total);
    });
  }

  /// Compiles and simulates them side by side, large steps one at a time; then tells of those that are not refused.
  void evaluate_all(const std::vector<Candidate>& candidates,
                    const std::function<void(size_t, const Evaluated&)>& tell) {
    std::vector<std::optional<Result<Evaluated>>> made(candidates.size());
    const bool large = std::ranges::any_of(
        candidates, [&](const Candidate& c) { return c.microbatches * bounds_.chunks() > large_step; });
    for_all(large ? 1 : options_.threads, candidates.size(),
            [&](size_t i) { made[i] = evaluate(problem_, candidates[i]); });
    for (size_t i = 0; i < candidates.size(); ++i) {
      evaluating_ += evaluation_work(*made[i], candidates[i]);
      if (!*made[i]) {
        refuse(made[i]->error());
        continue;
      }
      tell(i, **made[i]);
      note(std::move(**made[i]));
    }
  }

  /// Seconds of a core, counted.
  double evaluation_work(const Result<Evaluated>& made, const Candidate& c) const {
    constexpr double of_node = 3e-6, of_visit = 5e-9, of_refusal = 1e-3;
    if (!made) return of_refusal;
    const double passes = 3.0 * c.microbatches * stages_of(c);
    const timelines::ListEffort effort;
    const double visits = c.timeline == "list" ? std::min(effort.visits, effort.visits_per_pass * passes) : 0;
    return of_node * static_cast<double>(made->nodes) + of_visit * visits;
  }

  void prune() {
    if (!best()) return;
    for (auto* queue : queues_)
      std::erase_if(*queue, [&](const Waiting& waiting) { return !waiting.may_fit || waiting.bound >= limit(); });
  }

  const Problem& problem_;
  const SearchOptions& options_;
  Bounds bounds_;
  std::chrono::steady_clock::time_point start_;
  std::vector<Waiting> meshes_, forms_, pipelines_, leaves_;  // candidates whose choices are made so far
  std::array<std::vector<Waiting>*, 4> queues_ = {&meshes_, &forms_, &pipelines_, &leaves_};
  using OwnKey = std::tuple<std::array<int, 9>, std::array<bool, 4>, std::string, std::string, std::vector<int>>;
  std::map<OwnKey, std::shared_ptr<Experience>> own_;
  std::map<std::tuple<std::string, std::string, int>, std::shared_ptr<Experience>> kinds_;
  double capacity_ = 0;    // of the largest device
  double evaluating_ = 0;  // seconds of a core, counted
  size_t made_ = 0;        // candidates that have waited
  std::set<ErrorCode> reasons_;
  Region region_;
  std::optional<Candidate> large_;  // of the region: does not fit, but needs least
  int64_t large_bytes_ = 0;
  static constexpr size_t none = std::numeric_limits<size_t>::max();
  size_t best_ = none;  // of the region, into out_.evaluated
  SearchResult out_;
};

}  // namespace

std::string_view name(Idea idea) {
  constexpr std::array<std::string_view, 4> names = {"mesh", "timeline", "ZeRO", "recomputation"};
  return names[static_cast<size_t>(idea)];
}

Result<SearchResult> search(const Problem& problem, const std::vector<std::pair<std::string, Schedule>>& tried,
                            const SearchOptions& options) {
  Search made(problem, options);
  PIPER_CHECK(made.try_first(tried));
  SearchResult result = std::move(made).run();
  const bool empty = result.evaluated.empty() && !result.smallest && result.end == SearchEnd::Proved;
  if (empty && !result.refused.empty()) {
    const bool only_tp = std::ranges::all_of(meshes(problem.limits), [](const Candidate& mesh) { return mesh.tp > 1; });
    if (!only_tp || problem.limits.fixed.size[Axis::Tp]) return result.refused[0];
    return no_layout(problem.limits).note({}, result.refused[0].message);
  }
  if (empty) return error(ErrorCode::E105, {}, "--fix: no schedule has all of this on these devices").help("fix less");
  return result;
}

}  // namespace piper
