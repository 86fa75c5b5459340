// The nodes of a DAG's text, their edges, and what refers to nodes: brackets, prefetches.
#include <algorithm>
#include <array>
#include <limits>

#include "ir/dag_parser.h"
#include "model/model_text.h"

namespace piper {

Checked DagParser::node() {
  const NodeId id(dag_.nodes.size());
  const Token first = in_.peek();
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
  PIPER_CHECK(reader_.options({{"by", [&] { return directive_into(node.made_by); }},
                               {"placed", placed},
                               {"from", made_from},
                               {"transfers", [&] { return stream_into(node.transfers); }}}));
  dag_.nodes.push_back(node);
  node_places_.push_back(in_.range_from(first));
  return Ok{};
}

Result<NodeOp> DagParser::op() {
  const Token token = in_.peek();
  constexpr std::array<std::string_view, 8> collectives = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "reduce_pieces", "local_slice", "shift", "rounds"};
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
    UpdatePhase phase = UpdatePhase::All;
    for (const UpdatePhase one : {UpdatePhase::Directions, UpdatePhase::Matrices})
      if (in_.accept_word(name(one))) phase = one;
    return NodeOp(Update{bucket, phase});
  }
  const auto found = std::find(collectives.begin(), collectives.end(), token.text);
  if (token.kind != TokenKind::Word || found == collectives.end())
    return in_.unexpected(
        "compute, transfer, all_reduce, reduce_scatter, all_gather, all_to_all, reduce_pieces, local_slice, shift, "
        "rounds or "
        "update");
  in_.take();
  Collective collective;
  collective.kind = static_cast<CollectiveKind>(found - collectives.begin());
  PIPER_TRY(collective.item, item());
  PIPER_CHECK(in_.expect_word("over"));
  std::optional<PartitionId> over;
  PIPER_CHECK(partition_into(over));
  collective.over = *over;
  if (collective.kind == CollectiveKind::Shift) {
    PIPER_CHECK(in_.expect_word("by"));
    PIPER_TRY(const int64_t by, reader_.number("a number of devices", 1, largest_ring));
    collective.by = static_cast<int>(by);
  }
  return NodeOp(collective);
}

Result<Item> DagParser::item() {
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
  if (!in_.is_word("gradients") && !in_.is_word("directions") && !in_.is_word("weights"))
    return in_.unexpected("gradients, directions, weights or scalars");
  const std::string word = in_.take().text;
  PIPER_CHECK(in_.expect("("));
  PIPER_TRY(const BucketId bucket, bucket_id());
  PIPER_CHECK(in_.expect(")", "after the bucket"));
  return word == "gradients"    ? Item::gradients(bucket)
         : word == "directions" ? Item::directions(bucket)
                                : Item::weights(bucket);
}

Result<NodeTags> DagParser::tags() {
  NodeTags tags;
  if (!in_.accept("-")) {
    PIPER_TRY(const int chunk, reader_.named(chunks_, "chunk"));
    tags.chunk = ChunkId(chunk);
  }
  tags.pass = accept_pass(in_);
  PIPER_TRY(tags.slice, reader_.slice(dims_));
  return tags;
}

Checked DagParser::edge(NodeId to) {
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

Result<NodeId> DagParser::node_id() {
  PIPER_TRY(const int index, reader_.reference('%', "node", node_count_));
  return NodeId(index);
}

Checked DagParser::bracket() {
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

Checked DagParser::prefetch() {
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

}  // namespace piper
