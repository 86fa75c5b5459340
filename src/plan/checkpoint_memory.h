// Memory of the host that saving a checkpoint takes, known from the plan: copies of what each process writes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plan/bucket_part.h"

namespace piper {

/// Buckets with optimizer state.
std::set<NameId> buckets_with_state(const Plan& plan);

/// Elements of its part of a bucket that a device writes. Every element of a model is written by one device: equal
/// copies divide the work among them.
ElementRange written_range(const BucketPart& part);

/// The device that writes state kept per parameter, not per element (Adafactor): all devices of the bucket have it.
int writer_of_whole_state(const Plan& plan, const PlanBucket& bucket);

/// Bytes that each device writes, and so those of its copies: weights, and what the optimizer keeps for them. Tables
/// that a model computes and does not save, such as rotations, count too.
std::vector<int64_t> copied_bytes(const Plan& plan, const StepConfig& step);

/// Processes whose copies take the same memory.
struct EqualCopies {
  std::vector<int> processes;
  int64_t bytes = 0;  // of each
};
/// By the first of them. All devices of a process have their copies in it.
std::vector<EqualCopies> copies_by_process(const Plan& plan, const StepConfig& step, int processes);
/// The same for people.
std::string checkpoint_table(const Plan& plan, const StepConfig& step, int processes);

}  // namespace piper
