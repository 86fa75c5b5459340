#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "base/saturate.h"
#include "base/suggest.h"
#include "ir/bounded_reader.h"
#include "ir/dag_text.h"
#include "ir/verify_dag.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// Stages, distances and the like.
constexpr int64_t most = 1'000'000'000;

bool is_node_name(const Token& token) {
  return token.kind == TokenKind::Word && token.text.starts_with('%');
}

class Parser {
 public:
  Parser(Scanner scanner, std::shared_ptr<const ModelGraph> model)
      : reader_(std::move(scanner), ErrorCode::E410), in_(reader_.in), model_(*model) {
    dag_.model = std::move(model);
    for (const Chunk& chunk : model_.chunks) chunks_.add(chunk.name);
    for (const Value& value : model_.values) values_.add(value.name);
    for (const Parameter& parameter : model_.parameters) parameters_.add(parameter.name);
    for (size_t i = 0; in_.peek(i).kind != TokenKind::End; ++i)
      node_count_ += in_.peek(i).first_on_line && is_node_name(in_.peek(i));
  }

  Result<TrainingDag> parse() {
    const Token first = in_.peek();
    PIPER_CHECK(header());
    const SourceRange where = in_.range_from(first);
    while (!in_.at_end()) {
      PIPER_CHECK(in_.end_of_line());
      PIPER_CHECK(line());
    }
    if (dag_.nodes.size() != node_count_)
      return reader_.wrong(where, "the name of a node starts a line that is no node");
    if (auto sound = verify(dag_); !sound) {
      Diagnostic problem = std::move(sound.error());
      if (!problem.where) problem.where = where;
      return problem;
    }
    return std::move(dag_);
  }

 private:
  // ---- lines

  struct Line {
    std::string_view word;
    Checked (Parser::*read)();
    int section;  // never falls from line to line, so that everything is declared before it is named
  };
  static constexpr std::array<Line, 13> lines();

  Checked line() {
    const Token first = in_.peek();
    const auto known = lines();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Line& l) {
      return l.word == "%" ? is_node_name(first) : in_.is_word(l.word);
    });
    if (found == known.end()) {
      std::vector<std::string> words;
      for (const Line& l : known) words.emplace_back(l.word);
      return in_.unexpected("a table, a node such as %0, bracket or prefetch").help(did_you_mean(first.text, words));
    }
    if (found->section < section_)
      return error(ErrorCode::E101, in_.range(first), fmt::format("{} stands too late", first.text))
          .help("every table comes before those that refer to it; see docs/dag.md");
    section_ = found->section;
    if (found->word != "%") in_.take();
    return (this->*found->read)();
  }

  Checked header() {
    PIPER_CHECK(in_.expect_word("dag"));
    const Token token = in_.peek();
    PIPER_TRY(const std::string name, in_.name("the model's name"));
    if (name != model_.name)
      return reader_.wrong(in_.range(token), fmt::format("the DAG is of model {}, not {}", name, model_.name));
    PIPER_CHECK(in_.expect_word("devices"));
    PIPER_CHECK(in_.expect("=", "before the number of devices"));
    PIPER_TRY(const int64_t devices, reader_.number("the number of devices", 0, most_devices_in_text));
    dag_.devices = static_cast<int>(devices);
    return Ok{};
  }

  Checked directive() {
    PIPER_CHECK(reader_.numbered("directive", dag_.origins.size()));
    Origin origin;
    PIPER_TRY(origin.place, in_.name("the place of a directive"));
    const Token token = in_.peek();
    PIPER_TRY(origin.text, in_.name("the text of a directive"));
    origin.where = in_.range(token);
    auto schedule = parse_schedule(make_source(origin.place, origin.text));
    if (!schedule)
      return reader_.wrong(origin.where, fmt::format("the directive cannot be read: {}", schedule.error().message));
    if (schedule->directives.size() != 1) return reader_.wrong(origin.where, "expected one directive");
    origin.body = std::move(schedule->directives[0].body);
    dag_.origins.push_back(std::move(origin));
    return Ok{};
  }

  Checked mesh() {
    const Token first = in_.peek();
    PIPER_TRY(dag_.mesh, axes(dag_.devices));
    if (dag_.mesh.empty()) return reader_.wrong(in_.range_from(first), "a mesh has at least one axis");
    return Ok{};
  }

  Checked dim() {
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

  Checked stages() {
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

  Checked stream() {
    const Token token = in_.peek();
    PIPER_TRY(const std::string name, in_.name("the name of a stream"));
    if (streams_.find(name) >= 0) return reader_.wrong(in_.range(token), fmt::format("stream {} stands twice", name));
    streams_.add(name);
    dag_.streams.push_back(name);
    return Ok{};
  }

  Checked group() {
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

  Checked partition() {
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

  Checked residence() {
    PIPER_TRY(const int chunk, reader_.named(chunks_, "chunk"));
    Residence r;
    PIPER_TRY(r.group, group_id());
    PIPER_CHECK(reader_.options({{"transfers", [&] { return stream_into(r.transfer_stream); }},
                                 {"copies", [&] { return partition_into(r.copies); }},
                                 {"layout", [&] { return partition_into(r.layout); }},
                                 {"exchanges", [&] { return stream_into(r.exchange_stream); }},
                                 {"replicated", [&] { return directive_into(r.replicated_by, {"replicate"}); }},
                                 {"sharded", [&] { return directive_into(r.sharded_by, {"shard"}); }}}));
    dag_.residences.resize(model_.chunks.size());
    dag_.residences[static_cast<size_t>(chunk)].push_back(r);
    return Ok{};
  }

  Checked bucket() {
    PIPER_CHECK(reader_.numbered('k', "bucket", dag_.buckets.size()));
    Bucket bucket;
    const Token token = in_.peek();
    PIPER_TRY(const std::string text, in_.name("a dtype"));
    const auto dtype = dtype_named(text);
    if (!dtype)
      return reader_.wrong(in_.range(token), fmt::format("unknown dtype \"{}\"", text))
          .help(did_you_mean(text, dtype_names()));
    bucket.dtype = *dtype;
    bucket.trainable = in_.accept_word("trainable");
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

  Checked holder() {
    const Token first = in_.peek();
    PIPER_TRY(const BucketId bucket, bucket_id());
    Holder h;
    std::optional<PartitionId> over;
    PIPER_TRY(h.group, group_id());
    const auto zero = [&]() -> Checked {
      PIPER_TRY(const int64_t level, reader_.number("the ZeRO level", 0, 3));
      h.zero = static_cast<int>(level);
      return Ok{};
    };
    PIPER_CHECK(reader_.options({{"over", [&] { return partition_into(over); }},
                                 {"zero", zero},
                                 {"release", [&] { return release_into(h.release); }},
                                 {"gather", [&] { return stream_into(h.gather_stream); }},
                                 {"reduce", [&] { return stream_into(h.reduce_stream); }},
                                 {"by", [&] { return directive_into(h.by, {"replicate"}); }}}));
    if (!over || !h.gather_stream.valid() || !h.reduce_stream.valid())
      return reader_.wrong(in_.range_from(first), "a holder needs over=, gather= and reduce=");
    h.over = *over;
    dag_.buckets[bucket.index()].holders.push_back(h);
    return Ok{};
  }

  Checked bracket() {
    Bracket bracket;
    while (in_.is_symbol("(")) {
      std::vector<NodeId>& part = bracket.parts.emplace_back();
      PIPER_CHECK(reader_.list([&]() -> Checked {
        PIPER_TRY(const NodeId id, node_id());
        part.push_back(id);
        return Ok{};
      }));
    }
    PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(bracket.made_by, {"order", "use"}); }}}));
    dag_.brackets.push_back(std::move(bracket));
    return Ok{};
  }

  Checked prefetch() {
    Prefetched prefetched;
    PIPER_TRY(prefetched.gather, node_id());
    if (!in_.accept_word("all")) {
      PIPER_TRY(const int64_t distance, reader_.number("a distance", 0, std::numeric_limits<int32_t>::max()));
      prefetched.distance = static_cast<int>(distance);
    }
    PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(prefetched.made_by, {"prefetch"}); }}}));
    dag_.prefetches.push_back(prefetched);
    return Ok{};
  }

  // ---- nodes

  Checked node() {
    const NodeId id(dag_.nodes.size());
    PIPER_CHECK(reader_.numbered('%', "node", id.index()));
    PIPER_CHECK(in_.expect("=", "after the node's name"));
    Node node;
    PIPER_TRY(node.op, op());
    PIPER_TRY(node.tags, tags());
    if (in_.accept("@")) {
      PIPER_TRY(node.group, group_id());
    }
    if (in_.accept_word("on")) PIPER_CHECK(stream_into(node.stream));
    if (in_.accept_word("after")) PIPER_CHECK(reader_.list([&] { return edge(id); }));
    const auto made_from = [&]() -> Checked {
      PIPER_TRY(node.made_from, node_id());
      return Ok{};
    };
    const auto placed = [&] {
      return is_compute(node) ? directive_into(node.placed_by, {"place"}) : directive_into(node.placed_by);
    };
    PIPER_CHECK(reader_.options(
        {{"by", [&] { return directive_into(node.made_by); }}, {"placed", placed}, {"from", made_from}}));
    dag_.nodes.push_back(node);
    return Ok{};
  }

  Result<NodeOp> op() {
    const Token token = in_.peek();
    constexpr std::array<std::string_view, 5> collectives = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                             "reduce_pieces"};
    if (in_.accept_word("compute")) return NodeOp(Compute{});
    if (in_.accept_word("transfer")) {
      Transfer transfer;
      PIPER_TRY(const int value, reader_.named(values_, "value"));
      transfer.value = ValueId(value);
      PIPER_CHECK(in_.expect_word("from"));
      PIPER_TRY(transfer.from, group_id());
      return NodeOp(transfer);
    }
    if (in_.accept_word("update")) {
      PIPER_TRY(const BucketId bucket, bucket_id());
      return NodeOp(Update{bucket});
    }
    const auto found = std::find(collectives.begin(), collectives.end(), token.text);
    if (token.kind != TokenKind::Word || found == collectives.end())
      return in_.unexpected(
          "compute, transfer, all_reduce, reduce_scatter, all_gather, all_to_all, reduce_pieces or update");
    in_.take();
    Collective collective;
    collective.kind = static_cast<CollectiveKind>(found - collectives.begin());
    PIPER_TRY(collective.item, item());
    PIPER_CHECK(in_.expect_word("over"));
    std::optional<PartitionId> over;
    PIPER_CHECK(partition_into(over));
    collective.over = *over;
    return NodeOp(collective);
  }

  Result<Item> item() {
    const bool brackets = in_.is_symbol("(", 1) && in_.peek().kind == TokenKind::Word;
    if (!brackets) {
      PIPER_TRY(const int value, reader_.named(values_, "value"));
      return Item::value(ValueId(value));
    }
    Item item = Item::scalars();
    if (in_.accept_word("scalars")) {
      PIPER_CHECK(in_.expect("("));
      PIPER_CHECK(in_.expect(")"));
      return item;
    }
    if (!in_.is_word("gradients") && !in_.is_word("weights")) return in_.unexpected("gradients, weights or scalars");
    const bool gradients = in_.take().text == "gradients";
    PIPER_CHECK(in_.expect("("));
    PIPER_TRY(const BucketId bucket, bucket_id());
    PIPER_CHECK(in_.expect(")", "after the bucket"));
    return gradients ? Item::gradients(bucket) : Item::weights(bucket);
  }

  /// `layer.0 F mb=1`
  Result<NodeTags> tags() {
    NodeTags tags;
    if (!in_.accept("-")) {
      PIPER_TRY(const int chunk, reader_.named(chunks_, "chunk"));
      tags.chunk = ChunkId(chunk);
    }
    tags.pass = reader_.pass();
    PIPER_TRY(tags.slice, reader_.slice(dims_));
    return tags;
  }

  /// `%2:x0`, `%3/1`
  Checked edge(NodeId to) {
    Edge edge;
    edge.to = to;
    PIPER_TRY(edge.from, node_id());
    if (in_.accept(":")) {
      PIPER_TRY(edge.item, item());
    }
    if (in_.accept("/")) PIPER_CHECK(directive_into(edge.made_by));
    dag_.edges.push_back(edge);
    return Ok{};
  }

  // ---- parts of lines

  /// `(pp=2, dp=4)`, whose product must be `size`.
  Result<std::vector<MeshAxis>> axes(int size) {
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

  Result<GroupId> group_id() {
    PIPER_TRY(const int index, reader_.reference('g', "group", dag_.groups.group_count()));
    return GroupId(index);
  }
  Result<BucketId> bucket_id() {
    PIPER_TRY(const int index, reader_.reference('k', "bucket", dag_.buckets.size()));
    return BucketId(index);
  }
  Result<NodeId> node_id() {
    PIPER_TRY(const int index, reader_.reference('%', "node", node_count_));
    return NodeId(index);
  }
  Checked partition_into(std::optional<PartitionId>& into) {
    PIPER_TRY(const int index, reader_.reference('p', "partition", dag_.groups.partition_count()));
    into = PartitionId(index);
    return Ok{};
  }
  Checked stream_into(StreamId& into) {
    PIPER_TRY(const int index, reader_.named(streams_, "stream"));
    into = StreamId(index);
    return Ok{};
  }
  Checked release_into(Release& into) {
    constexpr std::array<std::string_view, 3> words = {"use", "pass", "step"};
    for (size_t r = 0; r < words.size(); ++r) {
      if (!in_.accept_word(words[r])) continue;
      into = static_cast<Release>(r);
      return Ok{};
    }
    return in_.unexpected("use, pass or step");
  }
  /// The number of a directive with one of these verbs; no verbs: any directive.
  Checked directive_into(DirectiveId& into, const std::vector<std::string_view>& verbs = {}) {
    const Token token = in_.peek();
    PIPER_TRY(const int64_t index, reader_.number("a directive", 0, static_cast<int64_t>(dag_.origins.size()) - 1));
    into = DirectiveId(static_cast<int32_t>(index));
    const std::string_view found = verb(dag_.origins[into.index()].body);
    if (verbs.empty() || std::find(verbs.begin(), verbs.end(), found) != verbs.end()) return Ok{};
    return reader_.wrong(in_.range(token), fmt::format("directive {} is {}, expected {}", index, found, verbs[0]));
  }

  BoundedReader reader_;
  Scanner& in_;  // reader_'s
  const ModelGraph& model_;
  TrainingDag dag_;
  std::vector<DimText> dims_;
  NameTable chunks_, values_, parameters_, streams_;
  size_t node_count_ = 0;
  int section_ = 0;
};

constexpr std::array<Parser::Line, 13> Parser::lines() {
  return {{{"directive", &Parser::directive, 0},
           {"mesh", &Parser::mesh, 1},
           {"dim", &Parser::dim, 2},
           {"stages", &Parser::stages, 3},
           {"stream", &Parser::stream, 4},
           {"group", &Parser::group, 5},
           {"partition", &Parser::partition, 6},
           {"residence", &Parser::residence, 7},
           {"bucket", &Parser::bucket, 8},
           {"holder", &Parser::holder, 8},
           {"%", &Parser::node, 9},
           {"bracket", &Parser::bracket, 10},
           {"prefetch", &Parser::prefetch, 11}}};
}

}  // namespace

Result<TrainingDag> parse_dag(const SourceFilePtr& file, std::shared_ptr<const ModelGraph> model) {
  PIPER_TRY(Scanner scanner, Scanner::scan(file));
  return Parser(std::move(scanner), std::move(model)).parse();
}

}  // namespace piper
