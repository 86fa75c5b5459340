#include "property/step_rules.h"

#include <algorithm>

#include "ir/local_size.h"

namespace piper::property {

StepRules::StepRules(const TrainingDag& dag) : dag_(dag), bucket_of_(dag.model->parameters.size()) {
  for (size_t b = 0; b < dag.buckets.size(); ++b)
    for (const ParameterId p : dag.buckets[b].parameters) bucket_of_[p.index()] = BucketId(b);
  make_pieces();
  make_complete();
}

Samples StepRules::cut(int slice, GroupId group, int position) const {
  const int64_t microbatch = dag_.model->step.batch / dag_.slices(), part = microbatch / dag_.groups[group].size();
  return {slice * microbatch + position * part, part};
}

int StepRules::position(GroupId group, int device) const {
  const DeviceList& devices = dag_.groups[group].devices;
  return static_cast<int>(std::find(devices.begin(), devices.end(), device) - devices.begin());
}

std::optional<PartitionId> StepRules::experts(ChunkId chunk, GroupId group) const {
  return dag_.residence(chunk, group).expert_group();
}

int StepRules::index_in_part(PartitionId over, int device) const {
  const Partition& partition = dag_.groups[over];
  const auto found = std::find(partition.members.begin(), partition.members.end(), device);
  return found == partition.members.end() ? -1
                                          : static_cast<int>(found - partition.members.begin()) % partition.part_size;
}

std::vector<Samples> StepRules::slots(const Node& compute, int device) const {
  const auto over = experts(compute.tags.chunk, compute.group);
  if (!over) return {cut(compute.tags.slice, compute.group, position(compute.group, device))};
  const Partition& partition = dag_.groups[*over];
  const auto self = std::find(partition.members.begin(), partition.members.end(), device);
  const auto first = self - index_in_part(*over, device);
  std::vector<Samples> out;
  for (auto member = first; member != first + partition.part_size; ++member)
    out.push_back(cut(compute.tags.slice, compute.group, position(compute.group, *member)));
  return out;
}

Tensor StepRules::tensor(const Node& compute, int device, ValueId id) const {
  const Dim* expert = labelled((*dag_.model)[id].shape, expert_label);
  Tensor out{id, 0, expert ? expert->size : 0, slots(compute, device)};
  if (const auto over = experts(compute.tags.chunk, compute.group); over && expert) {
    out.experts /= dag_.groups[*over].part_size;
    out.first_expert = index_in_part(*over, device) * out.experts;
  }
  return out;
}

Sum StepRules::contributions(const Node& compute, int device, ParameterId parameter) const {
  Sum out;
  const auto over = experts(compute.tags.chunk, compute.group);
  const bool divided = over && labelled((*dag_.model)[parameter].shape, expert_label);
  // where the region is cut and the parameter is not, every device adds what its own experts say
  const int block = over && !divided ? index_in_part(*over, device) : 0;
  for (const Samples& samples : slots(compute, device))
    out[{compute.tags.chunk, *compute.tags.pass, samples, block}] = 1;
  return out;
}

const Holder* StepRules::holder(BucketId bucket, int device) const {
  for (const Holder& holder : dag_[bucket].holders)
    if (position(holder.group, device) < dag_.groups[holder.group].size()) return &holder;
  return nullptr;
}

int StepRules::block(BucketId bucket, int device) const {
  const Holder* here = holder(bucket, device);
  if (!here) return -1;
  for (size_t c = 0; c < dag_.model->chunks.size(); ++c)
    for (const Residence& residence : dag_.residences[c]) {
      if (residence.group != here->group || !residence.expert_group()) continue;
      for (const auto& work : dag_.model->chunks[c].work)
        for (const ParameterId p : work ? work->parameters : std::vector<ParameterId>{})
          if (bucket_of(p) == bucket && labelled((*dag_.model)[p].shape, expert_label))
            return index_in_part(*residence.expert_group(), device);
    }
  return 0;
}

int StepRules::owner(BucketId bucket, const Piece& piece, int members) const {
  const int64_t shard = (dag_[bucket].elements + members - 1) / members;
  return static_cast<int>(piece.begin / shard);
}

bool StepRules::owns(BucketId bucket, const Holder& holder, int device, const Piece& piece) const {
  return owner(bucket, piece, dag_.groups[holder.copies].part_size) == index_in_part(holder.copies, device);
}

/// Devices among which the bucket's parameters are cut by experts.
int64_t StepRules::divided(BucketId bucket) const {
  int highest = 0;
  for (const int device : dag_.groups[dag_[bucket].holders[0].group].devices)
    highest = std::max(highest, block(bucket, device));
  return highest + 1;
}

void StepRules::make_pieces() {
  for (size_t b = 0; b < dag_.buckets.size(); ++b) {
    const Bucket& bucket = dag_.buckets[b];
    std::set<int64_t> borders = {0, bucket.elements};
    std::vector<std::pair<int64_t, ParameterId>> starts;
    int64_t at = 0;
    for (const ParameterId p : bucket.parameters) {
      starts.emplace_back(at, p);
      borders.insert(at);
      at += elements((*dag_.model)[p].shape, 0) / divided(BucketId(b));
    }
    for (size_t p = 0; p < dag_.groups.partition_count(); ++p) {
      const int64_t members = dag_.groups[PartitionId(p)].part_size, shard = (bucket.elements + members - 1) / members;
      for (int64_t cut = shard; cut < bucket.elements; cut += shard) borders.insert(cut);
    }
    std::vector<Piece>& out = pieces_.emplace_back();
    for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
      const auto start = std::upper_bound(starts.begin(), starts.end(), *border,
                                          [](int64_t value, const auto& entry) { return value < entry.first; });
      out.push_back({*border, *std::next(border), std::prev(start)->second});
    }
  }
}

void StepRules::make_complete() {
  complete_.resize(dag_.model->parameters.size());
  for (const Node& node : dag_.nodes)
    if (is_compute(node) && node.tags.pass != Pass::F && node.tags.pass != Pass::R) add_complete(node);
}

void StepRules::add_complete(const Node& node) {
  const auto over = experts(node.tags.chunk, node.group);
  for (const ParameterId p : work_of(dag_, node).gradients) {
    const bool divided = over && labelled((*dag_.model)[p].shape, expert_label);
    const int blocks = over && !divided ? dag_.groups[*over].part_size : 1;
    for (int position = 0; position < dag_.groups[node.group].size(); ++position)
      for (int block = 0; block < blocks; ++block)
        complete_[p.index()][{node.tags.chunk, *node.tags.pass, cut(node.tags.slice, node.group, position), block}] = 1;
  }
}

}  // namespace piper::property
