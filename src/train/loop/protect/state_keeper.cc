#include "train/loop/protect/state_keeper.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/device_block.h"
#include "plan/lasting_state.h"
#include "runtime/packed.h"
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

void take_memory(at::Tensor& bytes, int64_t count) {
  if (!bytes.defined() || bytes.numel() != count) bytes = at::empty({count}, at::kByte);
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

void StateKeeper::Layout::add(const Device& device) {
  places[device.number] = {bytes, device.bytes};
  bytes += device.bytes;
}

StateKeeper::StateKeeper(TrainingRun& run, RecentStates& states) : run_(run), states_(states) {
  World& world = *run.world();
  ranks_ = std::move(world.make(world.ranks(), until_the_job_fails).at(0));
  run.job().when_it_fails([ranks = ranks_](const std::string& reason) { ranks->abort(reason); });
  std::vector<int> all(static_cast<size_t>(world.ranks()));
  std::iota(all.begin(), all.end(), 0);
  group_ = ranks_->make_group(all);
  writers_ = Writers(world, ranks_);
  std::vector<Device> here;
  for (DeviceRun* device : run.job().devices()) {
    Device one{.number = device->device(), .rank = world.rank()};
    for (const at::Tensor& tensor : tensors_of(*device)) one.bytes += static_cast<int64_t>(tensor.nbytes());
    one.has_buffers = !run.computations().states_of(device->device()).empty();
    here.push_back(one);
  }
  run.job().watched([&] { devices_ = devices_of_all(std::move(here)); });
  const auto is_alone = [&](const Device& device) {
    return std::ranges::none_of(
        devices_, [&](const Device& other) { return other.rank != device.rank && is_same(device, other); });
  };
  const int previous = (world.rank() + world.ranks() - 1) % world.ranks();
  for (const Device& device : devices_) {
    if (!is_alone(device)) continue;
    anybody_sends_ = true;
    if (device.rank == world.rank()) own_.add(device);
    if (device.rank == previous) previous_.add(device);
  }
  to_next_ = own_.bytes;
  for (const Device& device : devices_)
    if (device.rank == world.rank() && !own_.places.contains(device.number)) own_.add(device);
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
  if (a.has_own && a.progress.step == step) return a;
  if (b.has_own && b.progress.step == step) return b;
  if (!a.has_own || !b.has_own) return a.has_own ? b : a;
  return a.progress.step < b.progress.step ? a : b;
}

void StateKeeper::copy_own(StateVersion& version) {
  take_memory(version.own, own_.bytes);
  for (DeviceRun* device : run_.job().devices()) {
    int64_t at = own_.places.at(device->device()).begin;
    for (const at::Tensor& tensor : tensors_of(*device)) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      version.own.narrow(0, at, bytes).copy_(as_bytes(tensor));
      at += bytes;
    }
  }
}

void StateKeeper::copy_back(const StateVersion& version) {
  for (DeviceRun* device : run_.job().devices()) {
    int64_t at = own_.places.at(device->device()).begin;
    for (const at::Tensor& tensor : tensors_of(*device)) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      as_bytes(tensor).copy_(version.own.narrow(0, at, bytes));
      at += bytes;
    }
    device->processor().finish();
  }
}

void StateKeeper::keep(StatePosition progress) {
  StateVersion& version = version_for(progress.step);
  if (!version.has_own || version.progress.step != progress.step) {
    version.has_own = version.has_of_previous = false;
    copy_own(version);
    version.progress = progress;
    version.has_own = true;
  }
  if (anybody_sends_) {
    take_memory(version.of_previous, previous_.bytes);
    const auto ranks = static_cast<size_t>(run_.world()->ranks()), rank = static_cast<size_t>(run_.world()->rank());
    std::vector<std::span<const std::byte>> out(ranks);
    std::vector<std::span<std::byte>> in(ranks);
    out[(rank + 1) % ranks] = span_of(version.own, 0, to_next_);
    in[(rank + ranks - 1) % ranks] = span_of(version.of_previous, 0, previous_.bytes);
    run_.job().watched([&] { ranks_->exchange(group_, kept_++, 0, out, in); });
  }
  version.has_of_previous = true;
}

std::vector<StateKeeper::Held> StateKeeper::held_here() const {
  const int rank = run_.world()->rank();
  std::vector<Held> out;
  for (const StateVersion& version : states_.versions) {
    const auto add = [&](const at::Tensor& bytes, const Layout& layout) {
      if (layout.bytes > 0 && (!bytes.defined() || bytes.numel() != layout.bytes)) return;
      for (const auto& [device, place] : layout.places) out.push_back({rank, device, version.progress});
    };
    if (version.progress.plan != hash(run_.plan())) continue;
    if (version.has_own) add(version.own, own_);
    if (version.has_of_previous) add(version.of_previous, previous_);
  }
  return out;
}

/// None: nobody has what some device held after that step.
std::optional<std::vector<StateKeeper::Delivery>> StateKeeper::deliveries(const std::vector<Held>& held,
                                                                          int64_t step) const {
  std::vector<Delivery> out;
  for (const Device& device : devices_) {
    const Held* best = nullptr;
    for (const Held& one : held) {
      if (one.progress.step != step || !is_same(device, devices_[static_cast<size_t>(one.device)])) continue;
      const bool here = one.rank == device.rank && one.device == device.number;
      if (!best || here) best = &one;
    }
    if (!best) return {};
    out.push_back({device.number, best->device, best->rank});
  }
  return out;
}

/// Where this process has what a device held after that step.
std::span<std::byte> StateKeeper::bytes_here(int64_t step, int device) {
  for (StateVersion& version : states_.versions) {
    if (version.progress.step != step) continue;
    if (const auto place = own_.places.find(device); version.has_own && place != own_.places.end())
      return span_of(version.own, place->second.begin, place->second.bytes);
    if (const auto place = previous_.places.find(device); version.has_of_previous && place != previous_.places.end())
      return span_of(version.of_previous, place->second.begin, place->second.bytes);
  }
  return {};
}

void StateKeeper::deliver(const std::vector<Delivery>& deliveries, const StatePosition& progress) {
  const int rank = run_.world()->rank();
  StateVersion& version = version_for(progress.step);
  take_memory(version.own, own_.bytes);
  for (const auto& [device, source, from] : deliveries) {
    const int to = devices_[static_cast<size_t>(device)].rank;
    const int64_t sequence = delivered_++;
    if (from == rank && to == rank && device == source) continue;
    if (from == rank && to != rank) writers_.send(to, sequence, bytes_here(progress.step, source));
    if (to != rank) continue;
    const Place& place = own_.places.at(device);
    const std::span<std::byte> into = span_of(version.own, place.begin, place.bytes);
    if (from == rank)
      std::ranges::copy(bytes_here(progress.step, source), into.begin());
    else
      writers_.receive(from, sequence, into);
  }
  version.progress = progress;
  version.has_own = true;
  for (StateVersion& newer : states_.versions)
    if (newer.progress.step > progress.step) newer.has_own = newer.has_of_previous = false;
  copy_back(version);
}

Result<std::optional<StatePosition>> StateKeeper::restore() {
  std::optional<StatePosition> found;
  bool nobody = true;
  run_.job().watched([&] {
    std::vector<Held> held;
    for (const std::string& bytes : writers_.gather(pack_vector(held_here())))
      for (const Held& one : unpack_vector<Held>(bytes)) held.push_back(one);
    held = unpack_vector<Held>(writers_.broadcast(pack_vector(held)));
    nobody = held.empty();
    std::ranges::stable_sort(held, std::greater(), [](const Held& one) { return one.progress.step; });
    for (const Held& one : held) {
      if (found) break;
      const auto possible = deliveries(held, one.progress.step);
      if (!possible) continue;
      found = one.progress;
      deliver(*possible, one.progress);
    }
  });
  if (found || nobody) return found;
  return error(ErrorCode::E805, {}, "what some of the devices held is lost with the processes that had it")
      .help("resume from the newest checkpoint");
}

}  // namespace piper
