// What executors of a device often look up in a plan, found once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/bucket_part.h"

namespace piper {

struct PlanIndex {
  PlanIndex(const Plan& plan, const PlanTemplate& program, int device);

  struct HeldBucket {
    const PlanBucket* bucket;
    std::optional<BucketPart> part;  // empty: the device does not hold it
  };
  struct ParameterPlace {
    NameId bucket;
    int64_t offset, elements;  // in the bucket
  };
  Table<BufferId, char> written;  // whether an operation does
  Table<BufferId, char> used;     // read or written
  std::map<NameId, HeldBucket> buckets;
  std::map<std::string, ParameterPlace, std::less<>> parameters;  // by name
};

}  // namespace piper
