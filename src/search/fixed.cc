// fixed_by: the choices that directives make.
#include <fmt/format.h>

#include <algorithm>

#include "base/overloaded.h"
#include "base/suggest.h"
#include "schedule/schedule_text.h"
#include "search/space.h"
#include "timelines/library.h"

namespace piper {
namespace {

Diagnostic not_searched(const Directive& directive, std::string_view what, std::string help) {
  return error(ErrorCode::E105, directive.where, fmt::format("--fix: a search does not choose {}", what))
      .help(std::move(help));
}

class Fixing {
 public:
  Result<Fixed> of(const Schedule& schedule) && {
    for (const Directive& directive : schedule.directives) {
      directive_ = &directive;
      PIPER_CHECK(std::visit([&](const auto& body) { return fix(body); }, directive.body));
    }
    return std::move(out_);
  }

 private:
  bool is_written(std::string_view argument) const { return directive_->arguments.find(argument) != nullptr; }

  template <class T, class U>
  Checked set(std::optional<T>& choice, const U& value, std::string_view what) {
    if (choice && *choice != T(value))
      return error(ErrorCode::E301, directive_->where, fmt::format("--fix: {} is fixed twice, differently", what))
          .help("leave one of them out");
    choice = T(value);
    return Ok{};
  }

  Checked fix(const Mesh& mesh) {
    std::vector<Axis> order;
    for (const MeshAxis& axis : mesh.axes) {
      const auto all = {Axis::Pp, Axis::Dp, Axis::Ep, Axis::Tp};
      const auto found = std::ranges::find(all, axis.name, [](Axis a) { return name(a); });
      if (found == all.end())
        return not_searched(*directive_, fmt::format("an axis \"{}\"", axis.name), "its axes are pp, dp, ep and tp");
      PIPER_CHECK(set(out_.size[static_cast<size_t>(*found)], axis.size, axis.name));
      if (*found != Axis::Tp) order.push_back(*found);
    }
    if (order.size() == 3) out_.order = {order[0], order[1], order[2]};
    return Ok{};
  }
  Checked fix(const Split& split) { return set(out_.microbatches, split.parts, "the number of microbatches"); }
  Checked fix(const Place& place) {
    if (place.stages == 0)
      return not_searched(*directive_, "placements without stages", "write place({}, along=pp, stages=8)");
    return set(out_.stages, place.stages, "the number of stages");
  }
  Checked fix(const Replicate& replicate) {
    if (is_written("zero")) PIPER_CHECK(set(out_.zero, replicate.zero, "zero"));
    if (is_written("bucket")) PIPER_CHECK(set(out_.bucket, replicate.bucket, "bucket"));
    return Ok{};
  }
  Checked fix(const Shard& shard) {
    if (is_written("sequence")) PIPER_CHECK(set(out_.sequence, shard.sequence == Sequence::On, "sequence"));
    if (is_written("vocabulary")) PIPER_CHECK(set(out_.vocabulary, shard.vocabulary, "vocabulary"));
    if (is_written("regather")) PIPER_CHECK(set(out_.regather, shard.regather, "regather"));
    return Ok{};
  }
  Checked fix(const Recompute& recompute) {
    if (recompute.what.conditions.size() != 1 || !recompute.what.conditions[0].any)
      return not_searched(*directive_, fmt::format("to recompute {}", print(recompute.what)),
                          "name one scope: recompute({layer=*})");
    return set(out_.recompute, recompute.what.conditions[0].tag, "recomputation");
  }
  Checked fix(const Prefetch& prefetch) {
    if (!prefetch.distance) return not_searched(*directive_, "to prefetch everything", "give a distance");
    return set(out_.prefetch, *prefetch.distance, "the distance of prefetch");
  }
  Checked fix(const Use& use) {
    const TimelineInfo* info = find_timeline(use.timeline);
    if (!info) {
      auto unknown = make_timeline(use.timeline, {}, directive_->where);
      return std::move(unknown.error());
    }
    return set(out_.timeline, info->name, "the timeline");
  }
  Checked fix(const Devices&) {
    return not_searched(*directive_, "devices without a mesh", "fix axes: mesh(tp=8); --devices gives their number");
  }
  Checked fix(const Order&) { return not_searched(*directive_, "orders one by one", "fix a timeline: use 1f1b()"); }

  const Directive* directive_ = nullptr;
  Fixed out_;
};

}  // namespace

Result<Fixed> fixed_by(const Schedule& schedule) {
  return Fixing().of(schedule);
}

}  // namespace piper
