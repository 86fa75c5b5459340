// The tables of a DAG's text: directives, devices, streams, residences, buckets; and the references to them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/saturate.h"
#include "base/suggest.h"
#include "ir/dag_parser.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Stages, parts and the like.
constexpr int64_t most = 1'000'000'000;

}  // namespace

template <class Number>
Checked DagParser::number_into(Number& into, std::string_view what, int64_t least, int64_t greatest) {
  PIPER_TRY(const int64_t number, reader_.number(what, least, greatest));
  into = static_cast<Number>(number);
  return Ok{};
}

Checked DagParser::directive() {
  PIPER_CHECK(reader_.numbered("directive", dag_.origins.size()));
  Origin origin;
  PIPER_TRY(origin.place, in_.name("the place of a directive"));
  const Token token = in_.peek();
  PIPER_TRY(origin.text, in_.name("the text of a directive"));
  origin.verb = verb_of(origin.text);
  origin.where = in_.range(token);
  dag_.origins.push_back(std::move(origin));
  return Ok{};
}

Checked DagParser::mesh() {
  const Token first = in_.peek();
  PIPER_TRY(dag_.mesh, axes(dag_.devices));
  if (dag_.mesh.empty()) return reader_.wrong(in_.range_from(first), "a mesh has at least one axis");
  return Ok{};
}

Checked DagParser::lost() {
  const Token first = in_.peek();
  PIPER_TRY(dag_.lost, reader_.devices());
  if (std::ranges::adjacent_find(dag_.lost, std::greater_equal()) != dag_.lost.end())
    return reader_.wrong(in_.range_from(first), "lost devices stand in rising order");
  if (dag_.lost.back() >= dag_.devices)
    return reader_.wrong(in_.range_from(first),
                         fmt::format("device {} does not exist; there are {}", dag_.lost.back(), dag_.devices));
  return Ok{};
}

Checked DagParser::remainder() {
  Remainder remainder;
  PIPER_TRY(remainder.group, group_id());
  PIPER_CHECK(in_.expect_word("of"));
  PIPER_TRY(remainder.of, group_id());
  PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(remainder.by, {"lose"}); }}}));
  dag_.remainders.push_back(remainder);
  return Ok{};
}

Checked DagParser::float8() {
  const Token token = in_.peek();
  PIPER_TRY(const int chunk, reader_.named(chunks_, "chunk"));
  DirectiveId by;
  PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(by, {"precision"}); }}}));
  if (dag_.float8.emplace(ChunkId(chunk), by).second) return Ok{};
  return reader_.wrong(in_.range(token), "is there twice");
}

Checked DagParser::shared(SampleAxis axis) {
  const Token token = in_.peek();
  PIPER_TRY(const std::string name, in_.name("the name of an axis"));
  const auto found = std::ranges::find(dag_.mesh, name, &MeshAxis::name);
  if (found == dag_.mesh.end())
    return reader_.wrong(in_.range(token), fmt::format("\"{}\" is not an axis of the mesh", name));
  dag_.shared[axis] = *found;
  if (!shared_axes_are_last(dag_))
    return reader_.wrong(in_.range(token), fmt::format("\"{}\" is not the last axis of the mesh", name));
  if (axis == SampleAxis::Cp && in_.accept_word("contiguous")) dag_.token_order = TokenOrder::Contiguous;
  return Ok{};
}

Checked DagParser::dim() {
  SliceDim dim;
  const Token first = in_.peek();
  PIPER_TRY(dim.name, in_.name("the name of a dim"));
  PIPER_TRY(const int64_t parts, reader_.number("the number of parts", 1, most));
  dim.parts = static_cast<int>(parts);
  // every slice has a node, so a text without them cannot ask for large tables
  const int64_t slices = dag_.slices() * parts;
  if (slices > 1 && (slices > static_cast<int64_t>(node_count_) || model_.step.batch % slices != 0))
    return reader_.wrong(in_.range_from(first), fmt::format("{} slices do not fit {} nodes and a batch of {}", slices,
                                                            node_count_, model_.step.batch));
  PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(dim.made_by, {"split"}); }}}));
  dims_.push_back({dim.name, dim.parts});
  dag_.dims.push_back(std::move(dim));
  return Ok{};
}

Checked DagParser::stages() {
  StageTags stages;
  const Token first = in_.peek();
  PIPER_TRY(stages.tag, in_.name("the tag of the stages"));
  PIPER_CHECK(reader_.list([&]() -> Checked {
    PIPER_TRY(const int64_t stage, reader_.number("a stage", -1, most));
    stages.of_chunk.push_back(static_cast<int>(stage));
    return Ok{};
  }));
  if (stages.of_chunk.size() != model_.chunks.size())
    return reader_.wrong(in_.range_from(first),
                         fmt::format("{} stages for {} chunks", stages.of_chunk.size(), model_.chunks.size()));
  dag_.stages.push_back(std::move(stages));
  return Ok{};
}

Checked DagParser::stream() {
  const Token token = in_.peek();
  PIPER_TRY(const std::string name, in_.name("the name of a stream"));
  if (streams_.find(name) >= 0) return reader_.wrong(in_.range(token), fmt::format("stream {} stands twice", name));
  streams_.add(name);
  dag_.streams.push_back(name);
  return Ok{};
}

Checked DagParser::group() {
  const Token first = in_.peek();
  const size_t next = dag_.groups.group_count();
  PIPER_CHECK(reader_.numbered('g', "group", next));
  DeviceGroup group;
  PIPER_TRY(group.devices, reader_.devices());
  DeviceList sorted = group.devices;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.back() >= dag_.devices)
    return reader_.wrong(in_.range_from(first),
                         fmt::format("device {} does not exist; there are {}", sorted.back(), dag_.devices));
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return reader_.wrong(in_.range_from(first), "a device stands twice in one group");
  PIPER_TRY(group.axes, axes(group.size()));
  if (const GroupId same = dag_.groups.intern(std::move(group)); same.index() != next)
    return reader_.wrong(in_.range_from(first), fmt::format("g{} is equal to g{}", next, same.value));
  return Ok{};
}

Checked DagParser::partition() {
  const Token first = in_.peek();
  const size_t next = dag_.groups.partition_count();
  PIPER_CHECK(reader_.numbered('p', "partition", next));
  Partition partition;
  PIPER_TRY(partition.group, group_id());
  PIPER_CHECK(in_.expect_word("size"));
  PIPER_CHECK(in_.expect("=", "before the size of a part"));
  PIPER_TRY(const int64_t size, reader_.number("the size of a part", 1, most_devices_in_text));
  partition.part_size = static_cast<int>(size);
  PIPER_TRY(partition.members, reader_.devices());
  DeviceList members = partition.members, devices = dag_.groups[partition.group].devices;
  std::sort(members.begin(), members.end());
  std::sort(devices.begin(), devices.end());
  if (members != devices || members.size() % static_cast<size_t>(size) != 0)
    return reader_.wrong(in_.range_from(first),
                         fmt::format("p{} does not cut g{} into parts of {}", next, partition.group.value, size));
  if (const PartitionId same = dag_.groups.intern(std::move(partition)); same.index() != next)
    return reader_.wrong(in_.range_from(first), fmt::format("p{} is equal to p{}", next, same.value));
  return Ok{};
}

Checked DagParser::residence() {
  PIPER_TRY(const int chunk, reader_.named(chunks_, "chunk"));
  Residence r;
  PIPER_TRY(r.group, group_id());
  PIPER_CHECK(reader_.options({{"transfers", [&] { return stream_into(r.transfer_stream); }}}));
  dag_.residences.resize(model_.chunks.size());
  last_residence_ = {static_cast<size_t>(chunk), dag_.residences[static_cast<size_t>(chunk)].size()};
  dag_.residences[static_cast<size_t>(chunk)].push_back(r);
  return Ok{};
}

Result<Residence*> DagParser::residence_above(const Token& token) {
  if (dag_.residences.empty()) return reader_.wrong(in_.range(token), "stands below no residence");
  return &dag_.residences[last_residence_.first][last_residence_.second];
}

Checked DagParser::replicated() {
  const Token first = in_.peek();
  PIPER_TRY(Residence * residence, residence_above(first));
  Replication r;
  std::optional<PartitionId> over;
  PIPER_CHECK(reader_.options({{"over", [&] { return partition_into(over); }},
                               {"zero", [&] { return number_into(r.zero, "the ZeRO level", 0, 3); }},
                               {"bucket", [&] { return number_into(r.bucket, "the bytes of a bucket", 1, saturated); }},
                               {"release", [&] { return release_into(r.release); }},
                               {"gather", [&] { return name_into(r.gather_stream); }},
                               {"reduce", [&] { return name_into(r.reduce_stream); }},
                               {"by", [&] { return directive_into(r.by, {"replicate"}); }}}));
  if (!over || r.gather_stream.empty() || r.reduce_stream.empty() || r.bucket == 0)
    return reader_.wrong(in_.range_from(first), "replicated needs over=, bucket=, gather= and reduce=");
  r.over = *over;
  residence->replication = r;
  return Ok{};
}

Checked DagParser::sharded() {
  const Token first = in_.peek();
  PIPER_TRY(Residence * residence, residence_above(first));
  const auto rule =
      std::ranges::find_if(shard_rules, [&](const ShardRule& known) { return in_.accept_word(known.name); });
  if (rule == shard_rules.end()) return in_.unexpected(shard_kinds_in_words());
  Sharding s;
  s.kind = rule->kind;
  PIPER_CHECK(reader_.options({{"along", [&] { return partition_into(s.along); }},
                               {"stream", [&] { return name_into(s.stream); }},
                               {"regather",
                                [&]() -> Checked {
                                  s.regather = true;
                                  return in_.expect_word("on");
                                }},
                               {"buffer",
                                [&]() -> Checked {
                                  const Token token = in_.take();
                                  s.buffer = parse_load(token.text).value_or(0);
                                  if (s.buffer > 0) return Ok{};
                                  return reader_.wrong(in_.range(token), "buffer is a number above 0, such as 1.5");
                                }},
                               {"by", [&] { return directive_into(s.by, {"shard"}); }}}));
  if (s.stream.empty()) return reader_.wrong(in_.range_from(first), "sharded needs stream=");
  if (residence->find(s.kind) || (rule->axis && residence->find(*rule->axis)))
    return reader_.wrong(in_.range_from(first), "is there twice");
  residence->shardings.push_back(s);
  return Ok{};
}

Checked DagParser::bucket() {
  PIPER_CHECK(reader_.numbered('k', "bucket", dag_.buckets.size()));
  Bucket bucket;
  const Token token = in_.peek();
  PIPER_TRY(const std::string text, in_.name("a dtype"));
  const auto dtype = dtype_named(text);
  if (!dtype)
    return reader_.wrong(in_.range(token), fmt::format("unknown dtype \"{}\"", text))
        .help(did_you_mean(text, dtype_names()));
  bucket.dtype = *dtype;
  bucket.matrices = in_.accept_word("matrices");
  bucket.trainable = bucket.matrices || in_.accept_word("trainable");
  if (!bucket.trainable) PIPER_CHECK(in_.expect_word("frozen"));
  PIPER_TRY(bucket.elements, reader_.number("the number of elements", 0, saturated));
  PIPER_CHECK(reader_.list([&]() -> Checked {
    PIPER_TRY(const int parameter, reader_.named(parameters_, "parameter"));
    bucket.parameters.push_back(ParameterId(parameter));
    return Ok{};
  }));
  dag_.buckets.push_back(std::move(bucket));
  return Ok{};
}

Checked DagParser::holder() {
  const Token first = in_.peek();
  PIPER_TRY(const BucketId bucket, bucket_id());
  Holder h;
  std::optional<PartitionId> over;
  PIPER_TRY(h.group, group_id());
  std::vector<BoundedReader::Option> options = {{"over", [&] { return partition_into(over); }},
                                                {"sums", [&] { return partition_into(h.sums); }},
                                                {"zero", [&] { return number_into(h.zero, "the ZeRO level", 0, 3); }},
                                                {"release", [&] { return release_into(h.release); }},
                                                {"gather", [&] { return stream_into(h.gather_stream); }},
                                                {"reduce", [&] { return stream_into(h.reduce_stream); }},
                                                {"by", [&] { return directive_into(h.by, {"replicate"}); }}};
  for (const ShardRule& rule : shard_rules)
    options.push_back({rule.name, [&, kind = rule.kind] {
                         return number_into(h.shards[kind], "a number of shards", 1, most_devices_in_text);
                       }});
  PIPER_CHECK(reader_.options(std::move(options)));
  if (!over || !h.gather_stream.valid() || !h.reduce_stream.valid())
    return reader_.wrong(in_.range_from(first), "a holder needs over=, gather= and reduce=");
  h.copies = *over;
  dag_.buckets[bucket.index()].holders.push_back(h);
  return Ok{};
}

Result<std::vector<MeshAxis>> DagParser::axes(int size) {
  const Token first = in_.peek();
  std::vector<MeshAxis> axes;
  int64_t product = 1;
  PIPER_CHECK(reader_.list([&]() -> Checked {
    MeshAxis axis;
    PIPER_TRY(axis.name, in_.name("the name of an axis"));
    PIPER_CHECK(in_.expect("=", "after the name of an axis"));
    PIPER_TRY(const int64_t length, reader_.number("the size of an axis", 1, most_devices_in_text));
    axis.size = static_cast<int>(length);
    product = std::min<int64_t>(product * length, most_devices_in_text + 1);
    axes.push_back(std::move(axis));
    return Ok{};
  }));
  if (product != size)
    return reader_.wrong(in_.range_from(first), fmt::format("the axes do not make {} devices", size));
  return axes;
}

Result<GroupId> DagParser::group_id() {
  PIPER_TRY(const int index, reader_.reference('g', "group", dag_.groups.group_count()));
  return GroupId(index);
}

Result<BucketId> DagParser::bucket_id() {
  PIPER_TRY(const int index, reader_.reference('k', "bucket", dag_.buckets.size()));
  return BucketId(index);
}

Checked DagParser::partition_into(std::optional<PartitionId>& into) {
  PIPER_TRY(const int index, reader_.reference('p', "partition", dag_.groups.partition_count()));
  into = PartitionId(index);
  return Ok{};
}

Checked DagParser::name_into(std::string& into) {
  PIPER_TRY(into, in_.name("the name of a stream"));
  return Ok{};
}

Checked DagParser::stream_into(StreamId& into) {
  PIPER_TRY(const int index, reader_.named(streams_, "stream"));
  into = StreamId(index);
  return Ok{};
}

Checked DagParser::release_into(Release& into) {
  PIPER_TRY(const int found, reader_.one_of({release_words.begin(), release_words.end()}, "use, pass or step"));
  into = static_cast<Release>(found);
  return Ok{};
}

Checked DagParser::directive_into(DirectiveId& into, const std::vector<std::string_view>& verbs) {
  const Token token = in_.peek();
  PIPER_TRY(const int64_t index, reader_.number("a directive", 0, static_cast<int64_t>(dag_.origins.size()) - 1));
  into = DirectiveId(static_cast<int32_t>(index));
  const std::string& found = dag_.origins[into.index()].verb;
  if (verbs.empty() || std::find(verbs.begin(), verbs.end(), found) != verbs.end()) return Ok{};
  return reader_.wrong(in_.range(token), fmt::format("directive {} is {}, expected {}", index, found, verbs[0]));
}

}  // namespace piper
