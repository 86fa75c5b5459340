#include "recover/shrink.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "compile/compile.h"
#include "recover/ways_on.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// The schedule as it was before anything was lost; what was lost joins the others.
Schedule before_losses(Schedule schedule, DeviceList& lost) {
  for (const Directive& directive : schedule.directives)
    if (const auto* lose = std::get_if<Lose>(&directive.body))
      lost.insert(lost.end(), lose->devices.begin(), lose->devices.end());
  std::erase_if(schedule.directives, [](const Directive& d) { return std::holds_alternative<Lose>(d.body); });
  std::ranges::sort(lost);
  lost.erase(std::ranges::unique(lost).begin(), lost.end());
  return schedule;
}

Checked check_lost(const DeviceList& lost, int devices) {
  for (const int device : lost)
    if (device < 0 || device >= devices)
      return error(ErrorCode::E205, {},
                   fmt::format("device {} does not exist; there are devices 0 to {}", device, devices - 1))
          .help("name devices that the schedule has");
  if (static_cast<int>(lost.size()) == devices)
    return error(ErrorCode::E319, {}, fmt::format("all {} devices are lost", devices))
        .help("nothing can go on; start the job again from a checkpoint");
  return Ok{};
}

/// What was tried: the best of it, and why the rest is no answer.
class Choice {
 public:
  explicit Choice(const RunningStep& step) : step_(step) {}

  bool attempt(const Schedule& schedule) {
    auto evaluated = evaluate(step_.model, schedule, step_.cluster, step_.costs);
    if (!evaluated) {
      if (!refused_) refused_ = evaluated.error();
      return false;
    }
    auto& best = evaluated->fits ? best_ : smallest_;
    const bool first = !best;
    if (first || (evaluated->fits ? better(*evaluated, *best) : evaluated->memory.total < best->memory.total))
      best = std::move(*evaluated);
    return true;
  }
  bool fits() const { return best_.has_value(); }

  Result<Evaluated> answer(const DeviceList& lost) && {
    if (best_) return *std::move(best_);
    const std::string without = fmt::format("without {} {}", lost.size() == 1 ? "device" : "devices",
                                            lost.size() == 1 ? fmt::format("{}", lost[0]) : print_devices(lost));
    if (smallest_)
      return error(ErrorCode::E405, {},
                   fmt::format("{}, the step does not fit: of what was tried, the smallest needs {} on a device of {}",
                               without, human_bytes(smallest_->memory.total),
                               human_bytes(smallest_->capacity.value_or(0))))
          .help("recompute, a higher level of ZeRO or more microbatches leave room for a loss");
    Diagnostic nothing = error(ErrorCode::E319, {}, fmt::format("{}, no schedule was found", without));
    if (refused_)
      nothing.helps.push_back(
          fmt::format("what was tried first is refused: {}: {}", name(refused_->code), refused_->message));
    else
      nothing.helps.emplace_back("place the stages of lost devices on others by hand; the language can say more");
    return nothing;
  }

 private:
  const RunningStep& step_;
  std::optional<Evaluated> best_, smallest_;
  std::optional<Diagnostic> refused_;
};

}  // namespace

Result<Evaluated> shrink(const RunningStep& step, DeviceList lost) {
  const Schedule whole = before_losses(step.schedule, lost);
  PIPER_TRY(const TrainingDag placed, placed_dag(step.model, whole));
  PIPER_CHECK(check_lost(lost, placed.devices));
  Choice choice(step);
  try_ways_on(
      {whole, placed, lost}, [&](const Schedule& schedule) { return choice.attempt(schedule); },
      [&] { return choice.fits(); });
  return std::move(choice).answer(lost);
}

std::vector<SingleLoss> single_losses(const RunningStep& step, const std::vector<DeviceList>& alike) {
  std::vector<SingleLoss> out;
  for (const DeviceList& devices : alike) out.push_back({devices, shrink(step, {devices[0]})});
  return out;
}

}  // namespace piper
