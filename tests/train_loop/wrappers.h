// Computations and communicators that do what they should, except where a test has them do something else.
#pragma once

#include "comm/communicator.h"
#include "runtime/passing_computations.h"
#include "runtime/progress.h"

namespace piper {

/// For JobOptions::share_progress: until something has happened, a watch sees devices that go on. Limits of a few
/// seconds are then those of what a test plants, and not of everything before it on a slow machine.
std::function<std::vector<DeviceProgress>(std::vector<DeviceProgress>)> shown_when(
    std::function<bool(const std::vector<DeviceProgress>&)> happened);

/// What runs instead of a computation; `as_usual` runs it.
using Intervention = std::function<void(const ComputationSite& site, const ComputationArguments& arguments,
                                        const std::function<void(const ComputationArguments&)>& as_usual)>;
std::unique_ptr<Computations> intervene(Computations& in, Intervention intervention);

/// Passes everything on.
class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(std::unique_ptr<Communicator> to) : to_(std::move(to)) {}
  int device() const override { return to_->device(); }
  int make_group(std::vector<int> members) override { return to_->make_group(std::move(members)); }
  void connect(int from, int to) override { to_->connect(from, to); }
  void send(int to, int64_t sequence, std::span<const std::byte> data) override { to_->send(to, sequence, data); }
  void receive(int from, int64_t sequence, std::span<std::byte> data) override { to_->receive(from, sequence, data); }
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    to_->all_reduce(group, sequence, data, dtype, how);
  }
  void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run,
                      std::span<std::byte> part, DataType dtype, Into into) override {
    to_->reduce_scatter(group, sequence, whole, run, part, dtype, into);
  }
  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    to_->all_gather(group, sequence, part, whole, run);
  }
  void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    to_->all_to_all(group, sequence, out, run_out, in, run_in);
  }
  void shift(int group, int64_t sequence, int by, std::span<const std::byte> out, std::span<std::byte> in) override {
    to_->shift(group, sequence, by, out, in);
  }
  void exchange(int group, int64_t sequence, int turn, std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) override {
    to_->exchange(group, sequence, turn, out, in);
  }
  void abort(const std::string& reason) override { to_->abort(reason); }
  std::optional<Trouble> trouble() override { return to_->trouble(); }

 protected:
  std::unique_ptr<Communicator> to_;
};

/// Keeps its part of one collective to itself, and gets zeros where it would get something of others.
class LeavesOut : public PassingCommunicator {
 public:
  LeavesOut(std::unique_ptr<Communicator> to, int64_t sequence)
      : PassingCommunicator(std::move(to)), sequence_(sequence) {}
  void all_reduce(int group, int64_t sequence, std::span<std::byte> data, DataType dtype, Combine how) override {
    if (sequence != sequence_) PassingCommunicator::all_reduce(group, sequence, data, dtype, how);
  }
  void reduce_scatter(int group, int64_t sequence, std::span<const std::byte> whole, int64_t run,
                      std::span<std::byte> part, DataType dtype, Into into) override {
    if (sequence != sequence_)
      return PassingCommunicator::reduce_scatter(group, sequence, whole, run, part, dtype, into);
    std::fill(part.begin(), part.end(), std::byte{0});
  }
  void all_gather(int group, int64_t sequence, std::span<const std::byte> part, std::span<std::byte> whole,
                  int64_t run) override {
    if (sequence != sequence_) return PassingCommunicator::all_gather(group, sequence, part, whole, run);
    std::fill(whole.begin(), whole.end(), std::byte{0});
  }
  void all_to_all(int group, int64_t sequence, std::span<const std::byte> out, int64_t run_out, std::span<std::byte> in,
                  int64_t run_in) override {
    if (sequence != sequence_) return PassingCommunicator::all_to_all(group, sequence, out, run_out, in, run_in);
    std::fill(in.begin(), in.end(), std::byte{0});
  }
  void shift(int group, int64_t sequence, int by, std::span<const std::byte> out, std::span<std::byte> in) override {
    if (sequence != sequence_) return PassingCommunicator::shift(group, sequence, by, out, in);
    std::fill(in.begin(), in.end(), std::byte{0});
  }

 private:
  int64_t sequence_;
};

}  // namespace piper
