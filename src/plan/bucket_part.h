// Which part of a bucket's parameters a device holds, and which range of it the device updates.
#pragma once

#include <optional>
#include <vector>

#include "plan/plan.h"

namespace piper {

/// A range of the elements of a bucket, in the order of its flat buffers.
struct ElementRange {
  int64_t begin = 0, count = 0;
  int64_t end() const { return begin + count; }
};

struct BucketPart {
  int holder = 0;            // into PlanBucket::holders
  LocalShards shards;        // of every parameter
  int copy = 0, copies = 1;  // of equal ones
  int rank_in_sample = 0;    // of devices that have the same samples, and so the same gradients
  /// Whether it contributes its elements to the norm of all gradients: every element is counted once.
  bool counts() const { return holder == 0 && rank_in_sample == 0 && (sharded || copy == 0); }
  bool sharded = false;         // every copy updates its own range
  int64_t elements = 0;         // of the piece
  int64_t padded = 0;           // the same, padded so that the copies have equal ranges
  ElementRange range() const {  // of this copy
    const int64_t size = padded / copies;
    return sharded ? ElementRange{copy * size, size} : ElementRange{0, padded};
  }
  /// The range whose sum of gradients this copy completes: one of `copies` equal ones, with or without ZeRO.
  ElementRange owned() const {
    const int64_t size = padded / copies;
    return {copy * size, size};
  }
};

/// Of the device at a position among the members of a holder's partition.
BucketPart part_at(const Plan& plan, const PlanBucket& bucket, int holder, int position);
/// Nothing if the device does not hold the bucket.
std::optional<BucketPart> part_of(const Plan& plan, const PlanBucket& bucket, int device);

/// A range of the bucket that the same devices own, one of each group, in the order of the groups.
struct OwnedPiece {
  ElementRange range;
  std::vector<int> owners;
};
/// The common refinement of the ranges that the copies of all groups own, piece by piece.
std::vector<OwnedPiece> owned_pieces(const Plan& plan, const PlanBucket& bucket);

/// Offset of a range of elements in a buffer that holds the whole bucket, or only the range of this copy.
int64_t offset_in(const BucketPart& part, int64_t buffer_elements, ElementRange range);

}  // namespace piper
