// fixed_by: the choices that directives make.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/overloaded.h"
#include "base/suggest.h"
#include "schedule/schedule_text.h"
#include "schedule/shard_target.h"
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
    if (out_.gather_stream.value_or(false) && out_.zero.value_or(3) != 3)
      return error(ErrorCode::E301, directive_->where,
                   fmt::format("--fix: with zero={} no parameters are gathered beside reductions", *out_.zero))
          .help("fix zero=3, or no stream of gathers");
    if (out_.prefetch && out_.zero.value_or(3) != 3)
      return error(ErrorCode::E301, directive_->where,
                   fmt::format("--fix: with zero={} no parameters are gathered ahead", *out_.zero))
          .help("fix zero=3, or no prefetch");
    return std::move(out_);
  }

 private:
  bool is_written(std::string_view argument) const { return directive_->arguments.find(argument) != nullptr; }

  /// Nothing that is written may go unheard. Filters have no names: each directive looks at its own.
  Checked only(std::initializer_list<std::string_view> chosen) const {
    for (const ArgumentPlace& argument : directive_->arguments.all)
      if (!argument.name.empty() && std::ranges::find(chosen, argument.name) == chosen.end())
        return error(ErrorCode::E105, argument.where,
                     fmt::format("--fix: a search does not choose {} of {}", argument.name, verb(directive_->body)))
            .help("leave it out; --try compares schedules that have it");
    return Ok{};
  }
  /// Names that all candidates have.
  Checked is_named(std::string_view argument, std::string_view found, std::string_view name) const {
    if (found == name) return Ok{};
    return not_searched(*directive_, fmt::format("{}={}", argument, found),
                        fmt::format("write {}={}, or leave it out", argument, name));
  }
  Checked is_everything(const Filter& what) const {
    if (what.conditions.empty()) return Ok{};
    return not_searched(*directive_, fmt::format("to {} {}", verb(directive_->body), print(what)), "write {}");
  }
  Checked is_along(const DeviceChoice& devices, std::initializer_list<std::string_view> axes) const {
    const bool known = std::ranges::all_of(
        devices.along, [&](const std::string& axis) { return std::ranges::find(axes, axis) != axes.end(); });
    if (known && !devices.along.empty()) return Ok{};
    return not_searched(*directive_, fmt::format("to {} on other devices", verb(directive_->body)),
                        fmt::format("write along={}", fmt::join(axes, " or along=")));
  }
  /// The scope of `{layer=*}`; empty for `{}`.
  Result<std::string> scope(const Filter& what) const {
    if (what.conditions.empty()) return std::string();
    if (what.conditions.size() == 1 && what.conditions[0].any) return what.conditions[0].tag;
    return not_searched(*directive_, fmt::format("to {} {}", verb(directive_->body), print(what)),
                        fmt::format("name one scope: {}({{layer=*}}, …)", verb(directive_->body)));
  }

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
      const auto found = std::ranges::find(all_axes, axis.name, [](Axis a) { return name(a); });
      if (found == all_axes.end())
        return not_searched(*directive_, fmt::format("an axis \"{}\"", axis.name),
                            "its axes are pp, dp, ep, cp and tp");
      PIPER_CHECK(set(out_.size[*found], axis.size, axis.name));
      if (*found != Axis::Cp && *found != Axis::Tp) order.push_back(*found);
    }
    if (order.size() == 3) out_.order = {order[0], order[1], order[2]};
    return Ok{};
  }
  Checked fix(const Split& split) {
    PIPER_CHECK(is_named("as", split.as, Split().as));
    return set(out_.microbatches, split.parts, "the number of microbatches");
  }
  Checked fix(const Place& place) {
    if (place.stages == 0)
      return not_searched(*directive_, "placements without stages", "write place({}, along=pp, stages=8)");
    PIPER_CHECK(only({"along", "stages", "at", "shape", "as"}));
    PIPER_CHECK(is_everything(place.what));
    PIPER_CHECK(is_along(place.devices, {"pp"}));
    PIPER_CHECK(is_named("as", place.as, Place().as));
    if (is_written("at")) PIPER_CHECK(set(out_.at, place.at, "where stages begin"));
    if (is_written("shape")) PIPER_CHECK(set(out_.shape, place.shape, "the shape"));
    return set(out_.stages, place.stages, "the number of stages");
  }
  Checked fix(const Replicate& replicate) {
    PIPER_CHECK(only({"along", "zero", "bucket", "gather_stream"}));
    PIPER_CHECK(is_everything(replicate.what));
    PIPER_CHECK(is_along(replicate.devices, {"dp", "ep", "cp"}));
    if (is_written("gather_stream")) {
      const bool own = replicate.gather_stream == "gather";
      if (!own) PIPER_CHECK(is_named("gather_stream", replicate.gather_stream, Replicate().gather_stream));
      PIPER_CHECK(set(out_.gather_stream, own, "the stream of gathers"));
    }
    if (is_written("zero")) PIPER_CHECK(set(out_.zero, replicate.zero, "zero"));
    if (is_written("bucket")) PIPER_CHECK(set(out_.bucket, replicate.bucket, "bucket"));
    return Ok{};
  }
  Checked fix(const Shard& shard) {
    if (divides_context(shard)) return fix_context(shard);
    PIPER_CHECK(only({"along", "sequence", "vocabulary", "regather"}));
    PIPER_CHECK(is_along(shard.devices, {"tp", "ep"}));
    const bool tensors = shard.devices.along[0] == "tp";
    if (shard.devices.along.size() > 1 || (!tensors && names_parameters(shard)))
      return not_searched(*directive_, "experts and tensors divided along the same axes",
                          "write one directive along=ep, one along=tp");
    PIPER_TRY(const std::string scope, this->scope(shard.what));
    PIPER_CHECK(set(out_.divided[tensors ? Axis::Tp : Axis::Ep], scope, "what is divided"));
    if (is_written("sequence")) PIPER_CHECK(set(out_.sequence, shard.sequence == Sequence::On, "sequence"));
    if (is_written("vocabulary")) PIPER_CHECK(set(out_.vocabulary, shard.vocabulary, "vocabulary"));
    if (is_written("regather")) PIPER_CHECK(set(out_.regather, shard.regather, "regather"));
    return Ok{};
  }
  Checked fix_context(const Shard& shard) {
    if (shard.sequence == Sequence::Ring)
      return not_searched(*directive_, "sequence=ring",
                          "write sequence=gather or heads; --try compares schedules with any");
    PIPER_CHECK(only({"along", "sequence", "regather"}));
    PIPER_CHECK(is_everything(shard.what));
    PIPER_CHECK(is_along(shard.devices, {"cp"}));
    PIPER_CHECK(set(out_.divided[Axis::Cp], std::string(), "what is divided"));
    if (is_written("regather")) PIPER_CHECK(set(out_.regather, shard.regather, "regather"));
    return set(out_.heads, shard.sequence == Sequence::Heads, "how attention has all tokens");
  }
  /// In all stages, or in the first: {layer=*, stage=0..3}.
  Checked fix(const Recompute& recompute) {
    Filter what = recompute.what;
    int stages = every_stage;
    if (const TagCondition* stage = what.find("stage"); stage && what.conditions.size() == 2) {
      if (stage->indices.size() != 1 || stage->indices[0].low != 0)
        return not_searched(*directive_, fmt::format("to recompute {}", print(what)),
                            "name the first stages: recompute({layer=*, stage=0..3})");
      stages = stage->indices[0].high + 1;
      std::erase_if(what.conditions, [](const TagCondition& condition) { return condition.tag == "stage"; });
    }
    PIPER_TRY(const std::string scope, this->scope(what));
    if (scope.empty()) return not_searched(*directive_, "to recompute {}", "name one scope: recompute({layer=*})");
    PIPER_CHECK(set(out_.recomputed_stages, stages, "recomputation"));
    return set(out_.recompute, scope, "recomputation");
  }
  Checked fix(const Precision&) {
    return not_searched(*directive_, "in which numbers layers are computed", "--try compares schedules that say it");
  }
  Checked fix(const Prefetch& prefetch) {
    const auto& what = prefetch.what.conditions;
    if (what.size() != 1 || what[0].tag != "comm" || what[0].words != std::vector<std::string>{"gather"})
      return not_searched(*directive_, fmt::format("to prefetch {}", print(prefetch.what)), "write {comm=gather}");
    if (!prefetch.distance) return not_searched(*directive_, "to prefetch everything", "give a distance");
    return set(out_.prefetch, *prefetch.distance, "the distance of prefetch");
  }
  Checked fix(const Use& use) {
    PIPER_CHECK(only({"timeline", "stages", "microbatches"}));
    PIPER_CHECK(is_named("stages", use.stages, Use().stages));
    PIPER_CHECK(is_named("microbatches", use.microbatches, Use().microbatches));
    if (use.timeline == "file")
      return not_searched(*directive_, "use file", "fix a timeline of the library; --try compares schedules with any");
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
  Checked fix(const Lose&) {
    return not_searched(*directive_, "lost devices", "search without them, then simulate the failure of a device");
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
