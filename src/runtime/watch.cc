#include "runtime/watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/device_run.h"

namespace piper {
namespace {

constexpr double long_pause = 2;    // between looks, which come several times a second: this process did not run
constexpr double fresh_enough = 2;  // silence up to which what a process said last is what it does

}  // namespace

Watch::Watch(const Plan& plan, const Timeouts& timeout, Predictions predictions, Judges judges)
    : plan_(plan), timeout_(timeout), predictions_(std::move(predictions)), judges_(judges), partners_(plan) {}

std::optional<std::string> Watch::look(const std::vector<DeviceProgress>& devices, double now) {
  if (!last_look_) {
    awake_since_ = quiet_since_ = now;
    in_progress_.clear();
  } else if (const double lost = now - *last_look_; lost > long_pause) {
    awake_since_ = now;  // what others have said in the meantime is still to be heard
    quiet_since_ += lost;
    for (auto& [where, here] : in_progress_) here.since += lost;
  }
  last_look_ = now;
  remember_silence(devices);
  if (auto silent = silent_for_too_long(devices, now)) return silent;
  return judges_ == Judges::All ? too_long_in_progress(devices, now) : std::nullopt;
}

void Watch::remember_silence(const std::vector<DeviceProgress>& devices) {
  for (const DeviceProgress& device : devices) {
    double &before = silence_[device.device], &longest = longest_silence_[device.device];
    if (device.silent < before) longest = std::max(longest, before);
    before = device.silent;
  }
}

std::optional<std::string> Watch::silent_for_too_long(const std::vector<DeviceProgress>& devices, double now) const {
  for (const DeviceProgress& device : devices) {
    const double silent = std::min(device.silent, now - awake_since_);
    if (silent <= timeout_.least + timeout_.factor * longest_silence_.at(device.device)) continue;
    const std::string all = describe_silent(devices);
    return fmt::format("nothing has come from a process for {:.1f} s: {}", silent,
                       all.empty() ? fmt::format("device {} ({})", device.device, device.where) : all);
  }
  if (now - awake_since_ > timeout_.first)
    for (const PlanTemplate& program : plan_.templates)
      for (const int device : program.devices)
        if ((judges_ == Judges::All || device == 0) &&  // who judges operations has the first device
            std::none_of(devices.begin(), devices.end(), [&](const auto& d) { return d.device == device; }))
          return fmt::format("nothing has ever come from the process of device {}", device);
  return {};
}

double Watch::limit_of(const PlannedOp& op, double longest) const {
  const auto at = [](const auto& seconds, auto id) { return seconds.contains(id) ? seconds[id] : 0; };
  return timeout_.limit(longest,
                        std::max(at(predictions_.works, op.work), at(predictions_.communications, op.communication)));
}

std::optional<std::string> Watch::too_long_in_progress(const std::vector<DeviceProgress>& devices, double now) {
  std::map<std::pair<int, size_t>, InProgress> in_progress;
  int64_t progress = 0;
  for (const DeviceProgress& device : devices) {
    progress += device.ended + device.moved;
    if (device.silent > fresh_enough) continue;  // it may be farther than it could say
    const PlanTemplate& program = program_of(plan_, device.device);
    for (size_t stream = 0; stream < device.streams.size(); ++stream) {
      const DeviceProgress::Last& last = device.streams[stream];
      if (!last.op.valid() || last.ended || !partners_.missing(devices, device, last.op).empty()) continue;
      const PlannedOp& op = program.ops[last.op];
      InProgress& here = in_progress[{device.device, stream}] = {last.op, device.step, device.moved, now};
      const auto before = in_progress_.find({device.device, stream});
      if (before != in_progress_.end() && before->second.op == here.op && before->second.step == here.step &&
          (before->second.moved == here.moved || !is_communication(op.kind)))
        here.since = before->second.since;
      const double limit = limit_of(op, last.longest);
      if (now - here.since <= limit) continue;
      const std::string silent = describe_silent(devices);
      return fmt::format("an operation takes {:.1f} s{}: {}{}{} does not end", now - here.since,
                         last.longest > 0 ? fmt::format(" instead of {:.1f} s", last.longest) : "", silent,
                         silent.empty() ? "" : "; ", describe_op(plan_, device.device, last.op));
    }
  }
  in_progress_ = std::move(in_progress);
  if (progress != progress_ || !in_progress_.empty()) {
    longest_quiet_ = std::max(longest_quiet_, now - quiet_since_);
    progress_ = progress;
    quiet_since_ = now;
  }
  if (now - quiet_since_ <= timeout_.limit(0, longest_quiet_)) return {};
  const std::string silent = describe_silent(devices);
  return fmt::format("nothing has ended for {:.1f} s{}{}", now - quiet_since_, silent.empty() ? "" : ": ", silent);
}

}  // namespace piper
