#include "plan/bucket_part.h"

#include <algorithm>
#include <set>

namespace piper {

BucketPart part_at(const Plan& plan, const PlanBucket& bucket, int holder, int position) {
  const PlanHolder& in = bucket.holders[static_cast<size_t>(holder)];
  const PlanPartition& copies = plan.partitions[in.copies];
  const ShardCounts& shards = in.shards;
  BucketPart part;
  part.holder = holder;
  part.copies = copies.part_size;
  part.copy = position % copies.part_size;
  const int64_t parts = static_cast<int64_t>(copies.members.size()) / copies.part_size, equal = parts / shards.all();
  int64_t piece = position / copies.part_size;
  part.rank_in_sample = static_cast<int>(piece % equal);
  piece /= equal;
  for (size_t k = shards.of.size(); k-- > 0;) {  // the last kind varies fastest
    part.shards.of[k] = {shards.of[k], piece % shards.of[k]};
    piece /= shards.of[k];
  }
  part.sharded = in.sharded;
  for (const PlanParameter& parameter : bucket.parameters) part.elements += parameter.elements;
  const bool padded = part.sharded || bucket.holders.size() > 1;
  const int64_t range = (part.elements + part.copies - 1) / part.copies;
  part.padded = padded ? range * part.copies : part.elements;
  return part;
}

std::optional<BucketPart> part_of(const Plan& plan, const PlanBucket& bucket, int device) {
  for (size_t h = 0; h < bucket.holders.size(); ++h) {
    const DeviceList& members = plan.partitions[bucket.holders[h].copies].members;
    const auto found = std::find(members.begin(), members.end(), device);
    if (found != members.end())
      return part_at(plan, bucket, static_cast<int>(h), static_cast<int>(found - members.begin()));
  }
  return std::nullopt;
}

std::vector<OwnedPiece> owned_pieces(const Plan& plan, const PlanBucket& bucket) {
  std::vector<OwnedPiece> out;
  const PlanPartition& first = plan.partitions[bucket.holders[0].copies];
  const int pieces = static_cast<int>(first.members.size()) / first.part_size;
  int64_t elements = 0;
  for (const PlanParameter& parameter : bucket.parameters) elements += parameter.elements;
  std::set<int64_t> cuts = {0, elements};
  for (const PlanHolder& holder : bucket.holders) {
    const int copies = plan.partitions[holder.copies].part_size;
    const int64_t range = (elements + copies - 1) / copies;
    for (int c = 1; c < copies; ++c) cuts.insert(std::min(c * range, elements));
  }
  for (int piece = 0; piece < pieces; ++piece)
    for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
      OwnedPiece owned{{*cut, *std::next(cut) - *cut}, {}};
      for (const PlanHolder& holder : bucket.holders) {
        const PlanPartition& copies = plan.partitions[holder.copies];
        const int64_t range = (elements + copies.part_size - 1) / copies.part_size;
        owned.owners.push_back(copies.members[static_cast<size_t>(piece * copies.part_size + *cut / range)]);
      }
      out.push_back(std::move(owned));
    }
  return out;
}

int64_t offset_in(const BucketPart& part, int64_t buffer_elements, ElementRange range) {
  return buffer_elements == part.padded ? range.begin : range.begin - part.owned().begin;
}

}  // namespace piper
