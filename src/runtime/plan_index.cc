#include "runtime/plan_index.h"

namespace piper {

PlanIndex::PlanIndex(const Plan& plan, const PlanTemplate& program, int device)
    : written(program.buffers.size(), 0), used(program.buffers.size(), 0) {
  for (const PlannedOp& op : program.ops) {
    for (const BufferId buffer : op.writes) written[buffer] = used[buffer] = 1;
    for (const BufferId buffer : op.reads) used[buffer] = 1;
  }
  for (const PlanBucket& bucket : plan.buckets) {
    buckets.emplace(bucket.name, HeldBucket{&bucket, part_of(plan, bucket, device)});
    int64_t offset = 0;
    for (const PlanParameter& parameter : bucket.parameters) {
      parameters.emplace(plan.names[parameter.name], ParameterPlace{bucket.name, offset, parameter.elements});
      offset += parameter.elements;
    }
  }
}

}  // namespace piper
