#include "train/loop/protect/state_keeper.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/device_list.h"
#include "plan/lasting_state.h"
#include "runtime/packed.h"
#include "train/loop/protect/copy_holders.h"
#include "train/loop/together.h"

namespace piper {
namespace {

/// The same memory, as bytes.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.view({-1}).view(at::kByte);
}

std::span<std::byte> span_of(const at::Tensor& bytes, int64_t begin, int64_t count) {
  return {static_cast<std::byte*>(bytes.mutable_data_ptr()) + begin, static_cast<size_t>(count)};
}

/// Memory for what these devices hold.
void prepare(HeldState& state, const DevicePlaces& places) {
  state.whole = false;
  state.places = places;
  if (!state.bytes.defined() || state.bytes.numel() != places.bytes) state.bytes = at::empty({places.bytes}, at::kByte);
}

/// Its memory is used again.
void forget(StateVersion& version) {
  version.own.whole = false;
  for (HeldState& held : version.of_others) held.whole = false;
}

template <class T>
std::vector<T> unpack_vector(const std::string& bytes) {
  std::vector<T> out;
  Unpacking(bytes).take(out);
  return out;
}
template <class T>
std::string pack_vector(const std::vector<T>& values) {
  Packing packed;
  packed.add(values);
  return packed.take();
}

}  // namespace

StateKeeper::StateKeeper(TrainingRun& run, RecentStates& states, const std::vector<std::string>& hosts)
    : run_(run), states_(states), rank_(run.world()->rank()), count_(run.world()->ranks()) {
  World& world = *run.world();
  ranks_ = std::move(world.make(count_, until_the_job_fails).at(0));
  run.job().when_it_fails([ranks = ranks_](const std::string& reason) { ranks->abort(reason); });
  std::vector<int> all(static_cast<size_t>(count_));
  std::iota(all.begin(), all.end(), 0);
  group_ = ranks_->make_group(all);
  writers_ = Writers(world, ranks_);
  std::vector<Device> here;
  for (DeviceRun* device : run.job().devices()) {
    Device one{.number = device->device(), .rank = rank_};
    for (const at::Tensor& tensor : tensors_of(*device)) one.bytes += static_cast<int64_t>(tensor.nbytes());
    one.has_buffers = !run.computations().states_of(device->device()).empty();
    here.push_back(one);
  }
  run.job().watched([&] { devices_ = devices_of_all(std::move(here)); });
  find_places(lost_together(hosts));
}

/// A state is sent where no other device has the same that is not lost with it; of devices that are lost together and
/// have the same only the first sends it.
void StateKeeper::find_places(const std::vector<int>& lost_together) {
  distance_ = distance_of_copies(lost_together, 1);
  const auto place = [&](const Device& device) { return lost_together[static_cast<size_t>(device.rank)]; };
  const auto has_another = [&](const Device& device) {
    return std::ranges::any_of(devices_, [&](const Device& other) {
      return (place(other) != place(device) || other.number < device.number) && is_same(device, other);
    });
  };
  sent_.assign(static_cast<size_t>(count_), {});
  for (const Device& device : devices_)
    if (!has_another(device)) sent_[static_cast<size_t>(device.rank)].add(device.number, device.bytes);
  anybody_sends_ = std::ranges::any_of(sent_, [](const DevicePlaces& places) { return places.bytes > 0; });
  own_ = sent_[static_cast<size_t>(rank_)];
  for (const Device& device : devices_)
    if (device.rank == rank_ && !own_.of.contains(device.number)) own_.add(device.number, device.bytes);
}

/// By number.
std::vector<StateKeeper::Device> StateKeeper::devices_of_all(std::vector<Device> here) {
  std::vector<Device> all;
  for (const std::string& bytes : writers_.gather(pack_vector(here)))
    for (const Device& device : unpack_vector<Device>(bytes)) all.push_back(device);
  std::ranges::sort(all, {}, &Device::number);
  return unpack_vector<Device>(writers_.broadcast(pack_vector(all)));
}

bool StateKeeper::is_same(const Device& one, const Device& other) const {
  if (one.number == other.number) return true;
  return !one.has_buffers && !other.has_buffers && keep_the_same(run_.plan(), one.number, other.number);
}

std::vector<at::Tensor> StateKeeper::tensors_of(DeviceRun& device) const {
  std::vector<at::Tensor> out;
  for (const BufferId buffer : lasting_state(device.program()))
    if (const at::Tensor& tensor = device.frame()[buffer]; tensor.defined() && tensor.numel() > 0)
      out.push_back(tensor);
  for (const auto& [name, tensor] : run_.computations().states_of(device.device()))
    if (tensor.numel() > 0) out.push_back(tensor);
  return out;
}

/// The one of that step; or else the older one.
StateVersion& StateKeeper::version_for(int64_t step) {
  auto& [a, b] = states_.versions;
  if (a.own.whole && a.progress.step == step) return a;
  if (b.own.whole && b.progress.step == step) return b;
  if (!a.own.whole || !b.own.whole) return a.own.whole ? b : a;
  return a.progress.step < b.progress.step ? a : b;
}

void StateKeeper::copy_own(StateVersion& version) {
  prepare(version.own, own_);
  for (DeviceRun* device : run_.job().devices()) {
    int64_t at = own_.of.at(device->device()).begin;
    for (const at::Tensor& tensor : tensors_of(*device)) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      version.own.bytes.narrow(0, at, bytes).copy_(as_bytes(tensor));
      at += bytes;
    }
  }
  version.own.whole = true;
}

void StateKeeper::copy_back(const StateVersion& version) {
  for (DeviceRun* device : run_.job().devices()) {
    int64_t at = version.own.places.of.at(device->device()).begin;
    for (const at::Tensor& tensor : tensors_of(*device)) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      as_bytes(tensor).copy_(version.own.bytes.narrow(0, at, bytes));
      at += bytes;
    }
    device->processor().finish();
  }
}

void StateKeeper::keep(StatePosition progress) {
  StateVersion& version = version_for(progress.step);
  const bool is_new = !version.own.whole || version.progress.step != progress.step;
  if (is_new) {
    const bool first = !states_.versions[0].own.whole && !states_.versions[1].own.whole;
    forget(version);
    version.progress = progress;
    if (!first) ++states_.done;
  }
  if (is_new || version.own.places != own_) copy_own(version);
  if (anybody_sends_) exchange_copies(version);
}

void StateKeeper::exchange_copies(StateVersion& version) {
  const auto ranks = static_cast<size_t>(count_), rank = static_cast<size_t>(rank_),
             distance = static_cast<size_t>(distance_);
  const size_t previous = (rank + ranks - distance) % ranks;
  version.of_others.resize(1);
  HeldState& of_previous = version.of_others[0];
  prepare(of_previous, sent_[previous]);
  std::vector<std::span<const std::byte>> out(ranks);
  std::vector<std::span<std::byte>> in(ranks);
  out[(rank + distance) % ranks] = span_of(version.own.bytes, 0, sent_[rank].bytes);
  in[previous] = span_of(of_previous.bytes, 0, of_previous.places.bytes);
  run_.job().watched([&] { ranks_->exchange(group_, kept_++, 0, out, in); });
  of_previous.whole = true;
}

std::vector<StateKeeper::Held> StateKeeper::held_here() const {
  std::vector<Held> out;
  for (const StateVersion& version : states_.versions) {
    const auto add = [&](const HeldState& held) {
      if (!held.whole) return;
      for (const auto& [device, place] : held.places.of) out.push_back({rank_, device, version.progress});
    };
    if (version.progress.plan != hash(run_.plan())) continue;
    add(version.own);
    for (const HeldState& held : version.of_others) add(held);
  }
  return out;
}

/// None: nobody has what that device held after that step.
std::optional<StateKeeper::Delivery> StateKeeper::delivery(const Device& device, const std::vector<Held>& held,
                                                           int64_t step) const {
  const Held* best = nullptr;
  for (const Held& one : held) {
    if (one.progress.step != step || !is_same(device, devices_[static_cast<size_t>(one.device)])) continue;
    const bool here = one.rank == device.rank && one.device == device.number;
    if (!best || here) best = &one;
  }
  if (!best) return {};
  return Delivery{device.number, best->device, best->rank};
}

/// None: nobody has what some device held after that step.
std::optional<std::vector<StateKeeper::Delivery>> StateKeeper::deliveries(const std::vector<Held>& held,
                                                                          int64_t step) const {
  std::vector<Delivery> out;
  for (const Device& device : devices_) {
    const auto one = delivery(device, held, step);
    if (!one) return {};
    out.push_back(*one);
  }
  return out;
}

/// Where this process has what a device held after that step.
std::span<std::byte> StateKeeper::bytes_here(int64_t step, int device) {
  for (StateVersion& version : states_.versions) {
    if (version.progress.step != step) continue;
    const auto found = [&](const HeldState& held) { return held.whole && held.places.of.contains(device); };
    const auto bytes = [&](const HeldState& held) {
      const BytePlace& place = held.places.of.at(device);
      return span_of(held.bytes, place.begin, place.bytes);
    };
    if (found(version.own)) return bytes(version.own);
    for (const HeldState& held : version.of_others)
      if (found(held)) return bytes(held);
  }
  return {};
}

void StateKeeper::deliver(const std::vector<Delivery>& deliveries, const StatePosition& progress) {
  StateVersion& version = version_for(progress.step);
  const bool has_own = version.own.whole && version.progress.step == progress.step;
  if (!has_own) {  // what it has is of another step
    forget(version);
    prepare(version.own, own_);
  }
  for (const auto& [device, source, from] : deliveries) {
    const int to = devices_[static_cast<size_t>(device)].rank;
    const int64_t sequence = delivered_++;
    if (to == rank_ && has_own) continue;
    if (from == rank_ && to != rank_) writers_.send(to, sequence, bytes_here(progress.step, source));
    if (to != rank_) continue;
    const BytePlace& place = version.own.places.of.at(device);
    const std::span<std::byte> into = span_of(version.own.bytes, place.begin, place.bytes);
    if (from == rank_)
      std::ranges::copy(bytes_here(progress.step, source), into.begin());
    else
      writers_.receive(from, sequence, into);
  }
  version.progress = progress;
  version.own.whole = true;
  for (StateVersion& newer : states_.versions)
    if (newer.progress.step > progress.step) forget(newer);
  copy_back(version);
}

/// Of the newest step that anybody has something of; all of it, if nobody has anything.
Diagnostic StateKeeper::what_is_lost(const std::vector<Held>& held) const {
  DeviceList lost;
  for (const Device& device : devices_)
    if (held.empty() || !delivery(device, held, held.front().progress.step)) lost.push_back(device.number);
  const std::string who =
      lost.size() == 1 ? fmt::format("device {}", lost[0]) : fmt::format("devices {}", print_devices(lost));
  const std::string after =
      held.empty() ? fmt::format("{} updates", states_.done) : fmt::format("step {}", held.front().progress.step);
  return error(ErrorCode::E805, {},
               fmt::format("what {} held after {} is lost: no process is left that has a copy", who, after))
      .help("start again from the newest checkpoint")
      .help("a copy is with the next process: those two must not be lost at once");
}

Result<std::optional<StatePosition>> StateKeeper::restore() {
  std::optional<StatePosition> found;
  std::vector<Held> held;
  run_.job().watched([&] {
    for (const std::string& bytes : writers_.gather(pack_vector(held_here())))
      for (const Held& one : unpack_vector<Held>(bytes)) held.push_back(one);
    held = unpack_vector<Held>(writers_.broadcast(pack_vector(held)));
    std::ranges::stable_sort(held, std::greater(), [](const Held& one) { return one.progress.step; });
    for (const Held& one : held) {
      if (found) break;
      const auto possible = deliveries(held, one.progress.step);
      if (!possible) continue;
      found = one.progress;
      deliver(*possible, one.progress);
    }
  });
  if (found) return found;
  if (states_.done > 0) return what_is_lost(held);
  for (StateVersion& version : states_.versions) forget(version);
  return found;
}

}  // namespace piper
