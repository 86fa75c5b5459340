#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/suggest.h"
#include "base/text/bounded_reader.h"
#include "model/model_text.h"
#include "model/shard_seed.h"
#include "plan/plan_text.h"

namespace piper {
namespace {

constexpr int64_t most = std::numeric_limits<int32_t>::max();
/// What a device is busy with costs memory per (operation, stream) to prove.
constexpr size_t most_streams = 1000;
/// Slices of the batch, as verify_structure has it.
constexpr int64_t most_slices = 1'000'000'000;

class Parser {
 public:
  explicit Parser(Scanner scanner) : reader_(std::move(scanner), ErrorCode::E408), in_(reader_.in) {}

  Result<Plan> parse() {
    PIPER_CHECK(in_.expect_word("plan"));
    PIPER_TRY(plan_.model, in_.name("the model's name"));
    PIPER_CHECK(in_.expect_word("costs"));
    PIPER_CHECK(in_.expect("=", "before the hash of the costs"));
    PIPER_CHECK(costs());
    if (in_.is_word("losses")) {
      PIPER_TRY(plan_.losses, amount("losses", most));
    }
    for (const SampleAxisRule& rule : sample_axes)
      if (in_.is_word(rule.name)) {
        PIPER_TRY(const int64_t devices, count(rule.name, most / plan_.devices_per_sample()));
        plan_.shared[rule.axis] = static_cast<int>(devices);
      }
    plan_.capture = parse_capture_form(in_);
    while (!in_.at_end()) {
      PIPER_CHECK(in_.end_of_line());
      PIPER_CHECK(line());
    }
    return std::move(plan_);
  }

 private:
  struct Line {
    std::string_view word;
    Checked (Parser::*read)();
  };
  /// In the order in which they must stand; the last two belong to a template.
  static constexpr std::array<Line, 14> lines();

  Checked line() {
    const Token first = in_.peek();
    const auto known = lines();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Line& l) { return in_.is_word(l.word); });
    if (found == known.end()) {
      std::vector<std::string> words;
      for (const Line& l : known) words.emplace_back(l.word);
      return in_
          .unexpected(
              "dim, stream, name, origin, group, partition, bucket, work, communication, template, buffer or op")
          .help(did_you_mean(first.text, words));
    }
    in_.take();
    const auto section = static_cast<size_t>(found - known.begin());
    const bool again = found->word == "template" || (section == bucket_lines && section_ < bucket_lines + 3);
    if (section < section_ && !again)
      return error(ErrorCode::E101, in_.range(first),
                   fmt::format("{} cannot stand after {}", found->word, known[section_].word))
          .help("every table comes before those that refer to it");
    if (section >= buffers && plan_.templates.empty())
      return error(ErrorCode::E101, in_.range(first), fmt::format("{} belongs to a template", found->word))
          .help("put it below a line that starts with template");
    if (section > bucket_lines && section < bucket_lines + 3 && plan_.buckets.empty())
      return error(ErrorCode::E101, in_.range(first), fmt::format("{} belongs to a bucket", found->word))
          .help("put it below a line that starts with bucket");
    section_ = section;
    return (this->*found->read)();
  }

  /// A hash: the one number that needs all 64 bits.
  Checked costs() {
    const Token token = in_.peek();
    const char *begin = token.text.data(), *end = begin + token.text.size();
    if (token.kind != TokenKind::Number) return in_.unexpected("the hash of the costs");
    const auto [rest, problem] = std::from_chars(begin, end, plan_.costs);
    if (problem == std::errc::result_out_of_range)
      return reader_.wrong(in_.range(token),
                           fmt::format("the hash of the costs, {}, does not fit in 64 bits", token.text));
    if (problem != std::errc() || rest != end) return in_.unexpected("the hash of the costs");
    in_.take();
    return Ok{};
  }

  Checked dim() {
    PlanDim dim;
    PIPER_TRY(dim.name, in_.name("the name of a dim"));
    const Token token = in_.peek();
    PIPER_TRY(const int64_t parts, reader_.number("the number of parts", 1, most));
    dim.parts = static_cast<int>(parts);
    slices_ *= parts;
    if (slices_ > most_slices)
      return reader_.wrong(in_.range(token), fmt::format("the dims have more than {} slices together", most_slices));
    dims_.push_back({dim.name, dim.parts});
    plan_.dims.push_back(std::move(dim));
    return Ok{};
  }

  Checked stream() {
    const Token token = in_.peek();
    PIPER_TRY(std::string name, in_.name("the name of a stream"));
    if (plan_.streams.size() == most_streams)
      return reader_.wrong(in_.range(token), fmt::format("more than {} streams", most_streams));
    streams_.add(name);
    plan_.streams.push_back(std::move(name));
    return Ok{};
  }

  Checked name() {
    PIPER_TRY(std::string name, in_.name("a name"));
    names_.add(name);
    plan_.names.push_back(std::move(name));
    return Ok{};
  }

  Checked origin() {
    PlanOrigin origin;
    PIPER_TRY(origin.place, in_.name("the place of a directive"));
    PIPER_TRY(origin.text, in_.name("the text of a directive"));
    plan_.origins.push_back(std::move(origin));
    return Ok{};
  }

  Checked group() {
    PIPER_TRY(DeviceList devices, reader_.devices());
    plan_.groups.push_back(std::move(devices));
    return Ok{};
  }

  Checked partition() {
    PlanPartition partition;
    PIPER_TRY(const int64_t size, reader_.number("the size of a part", 1, most_devices_in_text));
    partition.part_size = static_cast<int>(size);
    PIPER_TRY(partition.members, reader_.devices());
    plan_.partitions.push_back(std::move(partition));
    return Ok{};
  }

  Result<DType> dtype(std::string_view what) {
    const std::vector<std::string> words = dtype_names();
    PIPER_TRY(const int found, reader_.one_of(words, what));
    return *dtype_named(words[static_cast<size_t>(found)]);
  }

  Checked bucket() {
    PlanBucket bucket;
    PIPER_TRY(bucket.name, a_name());
    PIPER_TRY(bucket.weights, dtype("the type of its weights"));
    PIPER_TRY(bucket.gradients, dtype("the type of its gradients"));
    bucket.matrices = in_.accept_word("matrices");
    plan_.buckets.push_back(std::move(bucket));
    return Ok{};
  }

  Checked parameter() {
    PlanParameter parameter;
    PIPER_TRY(parameter.name, a_name());
    PIPER_TRY(parameter.elements, amount("elements", largest_amount));
    parameter.ordered = in_.accept_word("ordered");
    if (in_.is_word("sharded")) {
      PIPER_TRY(const int64_t dim, amount("sharded", most_dims - 1));
      parameter.sharded = static_cast<int>(dim);
    }
    plan_.buckets.back().parameters.push_back(parameter);
    return Ok{};
  }

  Checked holder() {
    PlanHolder holder;
    PIPER_TRY(holder.group, id_in(plan_.groups, "a group"));
    PIPER_CHECK(in_.expect_word("over"));
    PIPER_TRY(holder.copies, id_in(plan_.partitions, "a partition"));
    holder.sharded = in_.accept_word("sharded");
    PIPER_CHECK(shards(holder.shards));
    plan_.buckets.back().holders.push_back(holder);
    return Ok{};
  }

  Checked work() {
    PlanWork work;
    PIPER_TRY(work.name, a_name());
    work.pass = accept_pass(in_);
    PIPER_TRY(work.samples, amount("samples", most));
    PIPER_TRY(work.dtype, dtype("its dtype"));
    PIPER_TRY(work.does.flops, amount("flops", largest_amount));
    PIPER_TRY(work.does.bytes, amount("bytes", largest_amount));
    PIPER_TRY(work.group, key_id("group", plan_.groups, "a group"));
    for (const ShardRule& rule : shard_rules)
      if (in_.is_word(rule.name)) {
        PIPER_TRY(work.shards[rule.kind], key_id(rule.name, plan_.partitions, "a partition"));
      }
    PIPER_CHECK(buffer_of_rows(work.buffer));
    work.float8 = in_.accept_word("float8");
    if (in_.is_word("products") || in_.is_word("streamed")) PIPER_CHECK(operators(work.does.operators.emplace()));
    plan_.works.push_back(std::move(work));
    return Ok{};
  }

  /// products([1, 64, 128, 32], …) streamed=N kernels=N
  Checked operators(DeviceOperators& out) {
    if (in_.accept_word("products")) {
      PIPER_CHECK(in_.expect("(", "before the matrix products"));
      do {
        MatrixProduct& product = out.products.emplace_back();
        if (in_.accept_word("float8")) product.kind = ProductKind::Float8;
        PIPER_CHECK(in_.expect("[", "before a matrix product"));
        for (int64_t* extent : {&product.count, &product.rows, &product.columns, &product.depth}) {
          if (extent != &product.count) PIPER_CHECK(in_.expect(",", "between the numbers of a matrix product"));
          PIPER_TRY(*extent, reader_.number("an extent of a matrix product", 0, largest_amount));
        }
        PIPER_CHECK(in_.expect("]", "after a matrix product"));
      } while (in_.accept(","));
      PIPER_CHECK(in_.expect(")", "after the matrix products"));
    }
    PIPER_TRY(out.streamed, amount("streamed", largest_amount));
    PIPER_TRY(out.kernels, amount("kernels", largest_amount));
    return Ok{};
  }

  /// expert=2 tp=4
  Checked shards(ShardCounts& out) {
    for (const ShardRule& rule : shard_rules)
      if (in_.is_word(rule.name)) {
        PIPER_TRY(out[rule.kind], count(rule.name));
      }
    return Ok{};
  }

  /// buffer=1.5
  Checked buffer_of_rows(int64_t& out) {
    if (!in_.accept_word("buffer")) return Ok{};
    PIPER_CHECK(in_.expect("=", "after buffer"));
    const Token token = in_.take();
    out = parse_load(token.text).value_or(0);
    if (out > 0) return Ok{};
    return reader_.wrong(in_.range(token), "buffer is a number above 0, such as 1.5");
  }

  /// KEY=NUMBER, not 0
  Result<int64_t> count(std::string_view key, int64_t largest = most) {
    PIPER_CHECK(in_.expect_word(key));
    PIPER_CHECK(in_.expect("=", fmt::format("after {}", key)));
    return reader_.number("a number of devices", 1, largest);
  }

  /// KEY=NUMBER
  Result<int64_t> amount(std::string_view key, int64_t largest) {
    PIPER_CHECK(in_.expect_word(key));
    PIPER_CHECK(in_.expect("=", fmt::format("after {}", key)));
    return reader_.number(fmt::format("the number of {}", key), 0, largest);
  }

  /// KEY=INDEX
  template <class Key, class T>
  Result<Key> key_id(std::string_view key, const Table<Key, T>& of, std::string_view what) {
    PIPER_CHECK(in_.expect_word(key));
    PIPER_CHECK(in_.expect("=", fmt::format("after {}", key)));
    return id_in(of, what);
  }

  Checked communication() {
    Communication c;
    PIPER_TRY(c.label, label());
    if (in_.accept_word("transfer")) {
      c.transfer = true;
      PIPER_TRY(c.from, id_in(plan_.groups, "a group"));
      PIPER_CHECK(in_.expect("->", "between the groups of a transfer"));
      PIPER_TRY(c.to, id_in(plan_.groups, "a group"));
    } else if (in_.accept_word("over")) {
      PIPER_TRY(c.over, id_in(plan_.partitions, "a partition"));
    } else {
      return in_.unexpected("'transfer' or 'over'");
    }
    PIPER_TRY(c.bytes, amount("bytes", largest_amount));
    for (const Exchange exchange : {Exchange::Divide, Exchange::Gather})
      if (!c.transfer && in_.accept_word(piper::name(exchange))) c.exchange = exchange;
    if (c.transfer) PIPER_CHECK(shards(c.shards));
    c.maximum = !c.transfer && in_.accept_word("max");
    if (!c.transfer && in_.is_word("by")) {
      PIPER_TRY(const int64_t by, count("by"));
      c.by = static_cast<int>(by);
    }
    PIPER_CHECK(buffer_of_rows(c.buffer));
    plan_.communications.push_back(c);
    return Ok{};
  }

  Checked device_template() {
    PIPER_TRY(DeviceList devices, reader_.devices());
    plan_.templates.push_back({std::move(devices), {}, {}});
    bytes_ = 0;
    return Ok{};
  }

  Checked buffer() {
    PlanTemplate& t = plan_.templates.back();
    PlanBuffer buffer;
    PIPER_CHECK(reader_.numbered("buffer", t.buffers.size()));
    PIPER_TRY(buffer.category, category());
    PIPER_TRY(buffer.bytes, counted_bytes());
    PIPER_TRY(buffer.label, label());
    buffer.persistent = in_.accept_word("persistent");
    t.buffers.push_back(buffer);
    return Ok{};
  }

  Checked op() {
    PlanTemplate& t = plan_.templates.back();
    PlannedOp op;
    PIPER_CHECK(reader_.numbered("op", t.ops.size()));
    PIPER_TRY(op.kind, kind());
    PIPER_TRY(op.label, label());
    PIPER_CHECK(in_.expect_word("on"));
    PIPER_TRY(const int stream, reader_.named(streams_, "stream"));
    op.stream = PlanStreamId(stream);
    std::vector<std::string> seen;
    while (!in_.at_line_start()) {
      const Token key = in_.peek();
      if (std::find(seen.begin(), seen.end(), key.text) != seen.end())
        return error(ErrorCode::E101, in_.range(key), fmt::format("{} stands twice in one op", key.text))
            .help("keep one of them");
      seen.push_back(key.text);
      PIPER_CHECK(property(op, t.buffers.size()));
    }
    t.ops.push_back(std::move(op));
    return Ok{};
  }

  Checked property(PlannedOp& op, size_t buffer_count) {
    const std::array<std::pair<std::string_view, std::vector<BufferId>*>, 3> lists = {
        {{"reads", &op.reads}, {"writes", &op.writes}, {"frees", &op.frees}}};
    for (const auto& [word, list] : lists)
      if (in_.accept_word(word))
        return read_list(*list, [&] { return reader_.reference('%', "buffer", buffer_count); });
    if (in_.accept_word("waits")) return read_list(op.waits, [&] { return reader_.number("an op", 0, most - 1); });
    const Token key = in_.peek();
    if (!in_.accept_word("work") && !in_.accept_word("communication") && !in_.accept_word("origin"))
      return in_.unexpected("a property of an op")
          .help(did_you_mean(key.text, {"work", "communication", "waits", "reads", "writes", "frees", "origin"}));
    PIPER_CHECK(in_.expect("=", fmt::format("after {}", key.text)));
    if (key.text == "work") {
      PIPER_TRY(op.work, id_in(plan_.works, "a work"));
    } else if (key.text == "communication") {
      PIPER_TRY(op.communication, id_in(plan_.communications, "a communication"));
    } else {
      PIPER_TRY(op.origin, id_in(plan_.origins, "an origin"));
    }
    return Ok{};
  }

  template <class Tag, class Read>
  Checked read_list(std::vector<Id<Tag>>& list, const Read& item) {
    return reader_.list([&]() -> Checked {
      PIPER_TRY(const auto next, item());
      list.emplace_back(static_cast<int32_t>(next));
      return Ok{};
    });
  }

  /// The index of a row that has been read.
  template <class Key, class T>
  Result<Key> id_in(const Table<Key, T>& of, std::string_view what) {
    PIPER_TRY(const int64_t value, reader_.number(what, 0, static_cast<int64_t>(of.size()) - 1));
    return Key(static_cast<int32_t>(value));
  }

  Result<NameId> a_name() {
    PIPER_TRY(const int found, reader_.named(names_, "name"));
    return NameId(found);
  }

  /// Bytes of a template: their sum must stay a number too.
  Result<int64_t> counted_bytes() {
    const Token token = in_.peek();
    PIPER_TRY(const int64_t bytes, reader_.number("the number of bytes", 0, largest_amount));
    bytes_ += bytes;
    if (bytes_ > largest_amount)
      return reader_.wrong(in_.range(token), "the buffers of one device have more than 10^18 bytes");
    return bytes;
  }

  Result<Category> category() {
    std::vector<std::string> words;
    for (int c = 0; c < category_count; ++c) words.emplace_back(piper::name(static_cast<Category>(c)));
    PIPER_TRY(const int found, reader_.one_of(words, "a category"));
    return static_cast<Category>(found);
  }

  Result<OpKind> kind() {
    std::vector<std::string> words;
    for (int k = 0; k < op_kinds; ++k) words.emplace_back(piper::name(static_cast<OpKind>(k)));
    PIPER_TRY(const int found, reader_.one_of(words, "a kind of operation"));
    return static_cast<OpKind>(found);
  }

  /// NAME [PASS] [DIM=INDEX …]
  Result<PlanLabel> label() {
    PlanLabel label;
    PIPER_TRY(label.name, a_name());
    label.pass = accept_pass(in_);
    PIPER_TRY(label.slice, reader_.slice(dims_));
    return label;
  }

  static constexpr size_t bucket_lines = 6, buffers = 12;  // positions of `bucket` and `buffer` in lines()

  BoundedReader reader_;
  Scanner& in_;  // reader_'s
  Plan plan_;
  std::vector<DimText> dims_;
  NameTable names_, streams_;
  size_t section_ = 0;
  int64_t slices_ = 1;
  int64_t bytes_ = 0;
};

constexpr std::array<Parser::Line, 14> Parser::lines() {
  return {{{"dim", &Parser::dim},
           {"stream", &Parser::stream},
           {"name", &Parser::name},
           {"origin", &Parser::origin},
           {"group", &Parser::group},
           {"partition", &Parser::partition},
           {"bucket", &Parser::bucket},
           {"parameter", &Parser::parameter},
           {"holder", &Parser::holder},
           {"work", &Parser::work},
           {"communication", &Parser::communication},
           {"template", &Parser::device_template},
           {"buffer", &Parser::buffer},
           {"op", &Parser::op}}};
}

}  // namespace

Result<Plan> parse_plan(const SourceFilePtr& file) {
  PIPER_TRY(Scanner scanner, Scanner::scan(file));
  return Parser(std::move(scanner)).parse();
}

}  // namespace piper
