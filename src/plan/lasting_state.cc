#include "plan/lasting_state.h"

#include <algorithm>

#include "plan/bucket_part.h"

namespace piper {
namespace {

bool equal(const ElementRange& a, const ElementRange& b) {
  return a.begin == b.begin && a.count == b.count;
}

}  // namespace

std::vector<BufferId> lasting_state(const PlanTemplate& program) {
  std::vector<BufferId> out;
  for (const BufferId b : program.buffers.ids()) {
    const PlanBuffer& buffer = program.buffers[b];
    if (buffer.persistent && (buffer.category == Category::Weights || buffer.category == Category::Optimizer))
      out.push_back(b);
  }
  return out;
}

bool keep_the_same(const Plan& plan, int one, int other) {
  const std::vector<TemplateId> of = template_of_device(plan);
  if (of[static_cast<size_t>(one)] != of[static_cast<size_t>(other)]) return false;
  const PlanTemplate& program = plan.templates[of[static_cast<size_t>(one)]];
  return std::ranges::all_of(lasting_state(program), [&](BufferId id) {
    const PlanBuffer& buffer = program.buffers[id];
    const auto bucket =
        std::ranges::find_if(plan.buckets, [&](const PlanBucket& of) { return of.name == buffer.label.name; });
    if (bucket == plan.buckets.end()) return false;
    const auto a = part_of(plan, *bucket, one), b = part_of(plan, *bucket, other);
    if (!a || !b || a->shards.of != b->shards.of) return false;
    if (buffer.category == Category::Optimizer) return equal(a->range(), b->range());
    const bool whole = buffer.bytes == a->padded * bytes_of(bucket->weights);
    return whole || equal(a->owned(), b->owned());
  });
}

}  // namespace piper
