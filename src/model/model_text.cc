#include "model/model_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/saturate.h"
#include "base/suggest.h"
#include "base/text/scanner.h"
#include "model/shard_seed.h"
#include "model/verify_model.h"

namespace piper {
namespace {

// ---- printing

std::string print_list(const ModelGraph& model, const auto& ids) {
  std::string out = "(";
  for (const auto id : ids) out += (out.size() > 1 ? ", " : "") + as_name(model[id].name);
  return out + ")";
}

std::string print_operators(const OperatorWork& operators) {
  std::string out;
  for (const ProductShape& product : operators.products)
    out += fmt::format("{}{}{}", out.empty() ? " products(" : ", ",
                       product.kind == ProductKind::Linear ? "linear " : "", print(product.extents));
  if (!operators.products.empty()) out += ")";
  if (operators.streamed != Amount{}) out += fmt::format(" streamed={}", print(operators.streamed));
  return out + fmt::format(" kernels={}", operators.kernels);
}

std::string print_work(const ModelGraph& model, Pass pass, const PassWork& work) {
  std::string out =
      fmt::format("  {} {} -> {}", name(pass), print_list(model, work.reads), print_list(model, work.writes));
  if (!work.parameters.empty()) out += " parameters" + print_list(model, work.parameters);
  if (!work.gradients.empty()) out += " gradients" + print_list(model, work.gradients);
  if (work.state) out += " state";
  const auto amount = [&](std::string_view key, const Amount& a) {
    if (a != Amount{}) out += fmt::format(" {}={}", key, print(a));
  };
  amount("flops", work.flops);
  amount("moves", work.bytes_moved);
  amount("temporaries", work.temporaries);
  if (work.operators) out += print_operators(*work.operators);
  for (const auto& [shards, temporaries] : work.divided)
    out += fmt::format("{}{}: {}", shards == work.divided.begin()->first ? " divided(" : ", ",
                       shards == ShardCounts() ? "expert=1" : print(shards), print(temporaries));
  if (!work.divided.empty()) out += ")";
  return out + "\n";
}

std::string print_step(const StepConfig& step) {
  std::string out = fmt::format("step batch={} sequence={} weights={} gradients={}", step.batch, step.sequence,
                                name(step.weights), name(step.gradients));
  if (step.master) out += fmt::format(" master={}", name(*step.master));
  if (step.master_gradients) out += fmt::format(" master_gradients={}", name(*step.master_gradients));
  out += fmt::format(" optimizer={}", name(step.optimizer));
  if (step.moments) out += fmt::format(" moments={}", name(*step.moments));
  std::vector<std::string> matrices;
  for (const std::string& matrix : step.matrices) matrices.push_back(as_name(matrix));
  if (!matrices.empty()) out += fmt::format(" matrices=({})", fmt::join(matrices, ", "));
  if (step.ema) out += " ema=true";
  return out + "\n";
}

std::string_view keyword(ValueKind kind) {
  constexpr std::string_view words[] = {"input", "value", "loss"};
  return words[static_cast<int>(kind)];
}

// ---- parsing

class Parser {
 public:
  explicit Parser(Scanner scanner) : in_(std::move(scanner)) {}

  Result<ModelGraph> parse() {
    while (!in_.at_end()) {
      if (!in_.at_line_start()) return in_.unexpected("the end of the line");
      const Token first = in_.peek();
      if (in_.accept_word("model")) {
        PIPER_CHECK(once(said_, first));
        PIPER_TRY(model_.name, in_.name("the model's name"));
      } else if (in_.accept_word("context")) {
        PIPER_CHECK(once(said_, first));
        model_.context = true;
        if (in_.accept_word("ring")) {
          PIPER_TRY(model_.ring, small("ring", "the number of its devices"));
        }
      } else if (in_.accept_word("step")) {
        PIPER_CHECK(step());
      } else if (in_.is_word("input") || in_.is_word("value") || in_.is_word("loss")) {
        PIPER_CHECK(value());
      } else if (in_.accept_word("parameter")) {
        PIPER_CHECK(parameter());
      } else if (in_.accept_word("chunk")) {
        PIPER_CHECK(chunk(first));
      } else {
        return in_.unexpected("model, context, step, input, value, loss, parameter or chunk")
            .help(
                did_you_mean(first.text, {"model", "context", "step", "input", "value", "loss", "parameter", "chunk"}));
      }
    }
    if (auto sound = verify(model_, places_); !sound) {
      if (!sound.error().where) sound.error().where = {in_.file(), 0, 1};
      return std::move(sound.error());
    }
    return std::move(model_);
  }

 private:
  /// What the word says is said once.
  Checked once(std::set<std::string>& said, const Token& word) const {
    if (said.insert(word.text).second) return Ok{};
    return error(ErrorCode::E109, in_.range(word), fmt::format("{} is given twice", word.text))
        .help("keep one of them");
  }

  Result<int64_t> number(std::string_view what) {
    const Token token = in_.peek();
    PIPER_TRY(const int64_t value, in_.integer(what));
    if (value < 0 || value > largest_amount)
      return error(ErrorCode::E102, in_.range(token), fmt::format("{} must be between 0 and 10^18", what))
          .help("write a smaller number");
    return value;
  }

  /// KEY=NUMBER behind the key, up to what a mesh has.
  Result<int> small(std::string_view key, std::string_view what) {
    PIPER_CHECK(in_.expect("=", fmt::format("after {}", key)));
    const Token token = in_.peek();
    PIPER_TRY(const int64_t value, number(what));
    if (value > largest_ring)
      return error(ErrorCode::E102, in_.range(token), fmt::format("{} is at most {}", what, largest_ring))
          .help("write a smaller number");
    return static_cast<int>(value);
  }

  Result<DType> dtype() {
    const Token token = in_.peek();
    PIPER_TRY(const std::string text, in_.name("a dtype"));
    if (const auto found = dtype_named(text)) return *found;
    return error(ErrorCode::E110, in_.range(token), fmt::format("unknown dtype \"{}\"", text))
        .help(did_you_mean(text, dtype_names()));
  }

  Result<std::vector<std::string>> matrices() {
    std::vector<std::string> names;
    PIPER_CHECK(in_.expect("(", "before the names of the matrices"));
    while (!in_.is_symbol(")")) {
      PIPER_TRY(names.emplace_back(), in_.name("the name of a matrix"));
      if (!in_.is_symbol(")")) PIPER_CHECK(in_.expect(",", "between the names of matrices"));
    }
    in_.take();
    return names;
  }

  Checked step() {
    StepConfig& step = model_.step;
    const std::vector<std::string> keys = {
        "batch",     "sequence", "weights",  "gradients", "master", "master_gradients",
        "optimizer", "moments",  "matrices", "ema"};
    while (!in_.at_line_start()) {
      const Token key = in_.take();
      PIPER_CHECK(once(said_, key));
      PIPER_CHECK(in_.expect("=", "after the name of a setting"));
      if (key.text == "batch") {
        PIPER_TRY(step.batch, number("batch"));
        if (step.batch > 1'000'000'000 || step.batch < 1)
          return error(ErrorCode::E102, in_.range_from(key), "batch must be between 1 and 10^9")
              .help("for example batch=8");
      } else if (key.text == "sequence") {
        PIPER_TRY(step.sequence, number("sequence"));
      } else if (key.text == "weights") {
        PIPER_TRY(step.weights, dtype());
      } else if (key.text == "gradients") {
        PIPER_TRY(step.gradients, dtype());
      } else if (key.text == "master") {
        PIPER_TRY(step.master, dtype());
      } else if (key.text == "master_gradients") {
        PIPER_TRY(step.master_gradients, dtype());
      } else if (key.text == "optimizer") {
        const Token token = in_.peek();
        PIPER_TRY(const std::string text, in_.name("an optimizer"));
        const auto found = optimizer_named(text);
        if (!found)
          return error(ErrorCode::E110, in_.range(token), fmt::format("unknown optimizer \"{}\"", text))
              .help(did_you_mean(text, optimizer_names()));
        step.optimizer = *found;
      } else if (key.text == "moments") {
        PIPER_TRY(step.moments, dtype());
      } else if (key.text == "matrices") {
        PIPER_TRY(step.matrices, matrices());
      } else if (key.text == "ema") {
        PIPER_CHECK(in_.expect_word("true"));
        step.ema = true;
      } else {
        return error(ErrorCode::E110, in_.range(key), fmt::format("unknown setting \"{}\"", key.text))
            .help(did_you_mean(key.text, keys));
      }
    }
    return Ok{};
  }

  /// 12, 4+2+2, b, b*12, b*5/4, each perhaps with label=
  Result<Dim> dim() {
    Dim dim;
    if (in_.peek().kind == TokenKind::Word && in_.is_symbol("=", 1)) {
      dim.label = in_.take().text;
      in_.take();
    }
    if (!in_.accept_word("b")) {
      PIPER_TRY(dim.size, number("a dimension (a number, or b for the samples of a slice)"));
      if (in_.is_symbol("+")) dim.blocks = {dim.size};
      while (in_.accept("+")) {
        PIPER_TRY(dim.blocks.emplace_back(), number("the size of the next block"));
        dim.size = saturating_add(dim.size, dim.blocks.back());
      }
      return dim;
    }
    dim.per_sample = true;
    if (in_.accept("*")) {
      PIPER_TRY(dim.size, number("a factor"));
    }
    if (in_.accept("/")) {
      PIPER_TRY(dim.divisor, number("a divisor"));
    }
    return dim;
  }

  Result<Shape> shape() {
    Shape shape;
    PIPER_CHECK(in_.expect("[", "before the shape"));
    while (!in_.is_symbol("]")) {
      PIPER_TRY(Dim next, dim());
      shape.push_back(std::move(next));
      if (!in_.accept(",")) break;
    }
    PIPER_CHECK(in_.expect("]", "after the shape"));
    return shape;
  }

  Checked value() {
    Value value;
    const std::string word = in_.take().text;
    value.kind = word == "input" ? ValueKind::Input : word == "loss" ? ValueKind::Loss : ValueKind::Computed;
    places_.values.push_back(in_.here());
    PIPER_TRY(value.name, in_.name("the value's name"));
    PIPER_TRY(value.dtype, dtype());
    PIPER_TRY(value.shape, shape());
    if (in_.accept_word("partial")) value.partial = in_.accept_word("max") ? Partial::Max : Partial::Sum;
    value_ids_.emplace(value.name, ValueId(model_.values.size()));
    model_.values.push_back(std::move(value));
    return Ok{};
  }

  /// Of all elements, as sizes of the tensor.
  Result<std::vector<int64_t>> tensor_sizes(const Parameter& parameter) {
    const Token first = in_.peek();
    PIPER_TRY(const Shape sizes, shape());
    std::vector<int64_t> out;
    for (const Dim& dim : sizes) {
      if (dim.per_sample || !dim.label.empty() || !dim.blocks.empty())
        return error(ErrorCode::E110, in_.range(first), "the sizes of a tensor are numbers").help("tensor [12, 4]");
      out.push_back(dim.size);
    }
    if (elements(sizes, 0) != elements(parameter.shape, 0))
      return error(ErrorCode::E110, in_.range(first),
                   fmt::format("the tensor has {} elements, the shape {}", elements(sizes, 0),
                               elements(parameter.shape, 0)))
          .help("a shape has factors of the tensor's sizes");
    return out;
  }

  Checked parameter() {
    Parameter parameter;
    places_.parameters.push_back(in_.here());
    PIPER_TRY(parameter.name, in_.name("the parameter's name"));
    PIPER_TRY(parameter.dtype, dtype());
    PIPER_TRY(parameter.shape, shape());
    parameter.frozen = in_.accept_word("frozen");
    parameter.partial = in_.accept_word("partial");
    if (in_.accept_word("sharded")) {
      PIPER_CHECK(in_.expect("=", "before a dimension"));
      PIPER_TRY(const int64_t dim, number("the dimension that is sharded"));
      if (dim >= most_dims)
        return error(ErrorCode::E102, in_.here(), fmt::format("dimensions are below {}", most_dims))
            .help("dimensions count from 0");
      parameter.sharded = static_cast<int>(dim);
    }
    if (in_.accept_word("tensor")) {
      PIPER_TRY(parameter.tensor, tensor_sizes(parameter));
    }
    parameter_ids_.emplace(parameter.name, ParameterId(model_.parameters.size()));
    model_.parameters.push_back(std::move(parameter));
    return Ok{};
  }

  template <class AnyId>
  Result<std::vector<AnyId>> names(const std::unordered_map<std::string, AnyId>& known, std::string_view what) {
    std::vector<AnyId> ids;
    PIPER_CHECK(in_.expect("(", fmt::format("before the list of {}s", what)));
    while (!in_.is_symbol(")")) {
      const Token token = in_.peek();
      PIPER_TRY(const std::string text, in_.name(fmt::format("the name of a {}", what)));
      const auto found = known.find(text);
      if (found == known.end()) {
        std::vector<std::string> candidates;
        for (const auto& [candidate, id] : known) candidates.push_back(candidate);
        std::sort(candidates.begin(), candidates.end());
        return error(ErrorCode::E110, in_.range(token), fmt::format("unknown {} \"{}\"", what, text))
            .help(candidates.empty() ? fmt::format("declare it on a line above: {} {} float32 [16]", what, text)
                                     : did_you_mean(text, candidates));
      }
      if (std::find(ids.begin(), ids.end(), found->second) != ids.end())
        return error(ErrorCode::E109, in_.range(token), fmt::format("{} {} stands twice in one list", what, text))
            .help("keep it once");
      ids.push_back(found->second);
      if (!in_.accept(",")) break;
    }
    PIPER_CHECK(in_.expect(")", fmt::format("after the list of {}s", what)));
    return ids;
  }

  /// 12, 12*b, 12 + 3*b
  Result<Amount> amount() {
    Amount amount;
    do {
      PIPER_TRY(const int64_t value, number("an amount"));
      if (in_.accept("*")) {
        PIPER_CHECK(in_.expect_word("b"));
        amount.per_sample = saturating_add(amount.per_sample, value);
      } else {
        amount.fixed = saturating_add(amount.fixed, value);
      }
    } while (in_.accept("+"));
    return amount;
  }

  Checked chunk(const Token& first) {
    Chunk chunk;
    const SourceRange where = in_.here();
    PIPER_TRY(chunk.name, in_.name("the chunk's name"));
    PIPER_CHECK(in_.expect("{", "before the chunk's scopes"));
    while (!in_.is_symbol("}")) {
      ScopeTag tag;
      PIPER_TRY(tag.scope, in_.name("a scope"));
      PIPER_CHECK(in_.expect("=", "after the scope's name"));
      const Token token = in_.peek();
      PIPER_TRY(const int64_t index, number("the scope's index"));
      if (index > 1'000'000'000)
        return error(ErrorCode::E102, in_.range(token), "a scope's index is below 10^9")
            .help("instances are numbered from 0, in order of execution");
      tag.index = static_cast<int>(index);
      chunk.scopes.push_back(std::move(tag));
      if (!in_.accept(",")) break;
    }
    PIPER_CHECK(in_.expect("}", "after the chunk's scopes"));
    chunk.experts = in_.accept_word("experts");
    if (in_.accept_word("routed_by")) {
      const Token token = in_.peek();
      PIPER_TRY(const std::vector<ValueId> by, names(value_ids_, "value"));
      if (by.size() != 1)
        return error(ErrorCode::E109, in_.range(token), "one value says where the rows of each expert end")
            .help("name it: routed_by(ends)");
      chunk.routed_by = by[0];
    }
    chunk.sequence_sharded = in_.accept_word("sequence_sharded");
    if (in_.accept_word("all_tokens")) {
      PIPER_TRY(chunk.all_tokens, names(value_ids_, "value"));
    }
    if (in_.accept_word("rotation")) {
      PIPER_TRY(chunk.rotation, small("rotation", "a rotation"));
      if (in_.accept_word("of")) {
        PIPER_TRY(chunk.rotated, names(value_ids_, "value"));
      }
    }
    if (!chunk.all_tokens.empty() || !chunk.rotated.empty()) chunk.causal = in_.accept_word("causal");
    chunk.float8 = in_.accept_word("float8");
    PIPER_CHECK(in_.end_of_line());
    while (true) {
      const Token token = in_.peek();
      const auto pass = std::find_if(all_passes.begin(), all_passes.end() - 1,
                                     [&](Pass p) { return token.kind == TokenKind::Word && name(p) == token.text; });
      if (pass == all_passes.end() - 1) break;
      in_.take();
      auto& slot = chunk.work[static_cast<size_t>(*pass)];
      if (slot)
        return error(ErrorCode::E109, in_.range(token), fmt::format("chunk {} has {} twice", chunk.name, token.text))
            .help("keep one of them, or start another chunk above it");
      PIPER_TRY(slot, work());
    }
    places_.chunks.push_back(where ? where : in_.range(first));
    model_.chunks.push_back(std::move(chunk));
    return Ok{};
  }

  /// (expert=2: 80*b, expert=2 tp=4: 64*b)
  Checked divided(PassWork& work) {
    PIPER_CHECK(in_.expect("(", "before temporaries on several devices"));
    do {
      const Token token = in_.peek();
      PIPER_TRY(const ShardCounts shards, division());
      PIPER_TRY(const Amount temporaries, amount());
      if (!work.divided.try_emplace(shards, temporaries).second)
        return error(ErrorCode::E109, in_.range(token),
                     fmt::format("temporaries on {} devices are given twice", print(shards)))
            .help("keep one of them");
    } while (in_.accept(","));
    return in_.expect(")", "after temporaries on several devices");
  }

  /// expert=2 tp=4:
  Result<ShardCounts> division() {
    ShardCounts shards;
    std::set<std::string> said;
    do {
      const Token key = in_.take();
      const auto rule = std::ranges::find(shard_rules, key.text, &ShardRule::name);
      if (rule == shard_rules.end())
        return error(ErrorCode::E110, in_.range(key), fmt::format("\"{}\" is not divided", key.text))
            .help("say among how many devices: divided(expert=2 tp=2: 64*b)");
      PIPER_CHECK(once(said, key));
      PIPER_CHECK(in_.expect("=", "before a number of devices"));
      PIPER_TRY(shards[rule->kind], number("a number of devices"));
      if (!in_.accept_word("buffer")) continue;
      PIPER_CHECK(in_.expect("=", "before the rows that a device has memory for"));
      PIPER_TRY(shards.buffer, load());
    } while (!in_.accept(":"));
    return shards;
  }

  /// 1.5
  Result<int64_t> load() {
    const Token token = in_.take();
    if (const auto load = parse_load(token.text); load && *load > 0) return *load;
    return error(ErrorCode::E102, in_.range(token), "a buffer is a multiple of a balanced load")
        .help("write a number with at most four digits behind the point: buffer=1.5");
  }

  /// (linear [b*8, 64, tp=128, 64], [1, 4, 8, b*2])
  Checked products(OperatorWork& operators) {
    PIPER_CHECK(in_.expect("(", "before the matrix products"));
    do {
      const Token token = in_.peek();
      ProductShape product;
      if (in_.accept_word("linear")) product.kind = ProductKind::Linear;
      PIPER_TRY(product.extents, shape());
      if (product.extents.size() != 4)
        return error(ErrorCode::E102, in_.range(token), "a matrix product has four numbers")
            .help("how many, rows, columns, depth: [1, b*8, 64, 32]");
      operators.products.push_back(std::move(product));
    } while (in_.accept(","));
    return in_.expect(")", "after the matrix products");
  }

  Result<PassWork> work() {
    PassWork work;
    OperatorWork operators;
    PIPER_TRY(work.reads, names(value_ids_, "value"));
    PIPER_CHECK(in_.expect("->", "between what a pass reads and what it writes"));
    PIPER_TRY(work.writes, names(value_ids_, "value"));
    std::set<std::string> said;
    while (!in_.at_line_start()) {
      const Token key = in_.take();
      PIPER_CHECK(once(said, key));
      if (key.text == "parameters") {
        PIPER_TRY(work.parameters, names(parameter_ids_, "parameter"));
      } else if (key.text == "gradients") {
        PIPER_TRY(work.gradients, names(parameter_ids_, "parameter"));
      } else if (key.text == "state") {
        work.state = true;
      } else if (key.text == "flops" || key.text == "moves" || key.text == "temporaries") {
        PIPER_CHECK(in_.expect("=", "before an amount"));
        Amount& target = key.text == "flops" ? work.flops : key.text == "moves" ? work.bytes_moved : work.temporaries;
        PIPER_TRY(target, amount());
      } else if (key.text == "products") {
        PIPER_CHECK(products(operators));
      } else if (key.text == "streamed") {
        PIPER_CHECK(in_.expect("=", "before an amount"));
        PIPER_TRY(operators.streamed, amount());
      } else if (key.text == "kernels") {
        PIPER_CHECK(in_.expect("=", "before a number"));
        PIPER_TRY(operators.kernels, number("the number of kernels"));
      } else if (key.text == "divided") {
        PIPER_CHECK(divided(work));
      } else {
        return error(ErrorCode::E110, in_.range(key), fmt::format("unknown property \"{}\" of a pass", key.text))
            .help(did_you_mean(key.text, {"parameters", "gradients", "state", "flops", "moves", "temporaries",
                                          "products", "streamed", "kernels", "divided"}));
      }
    }
    if (said.contains("products") || said.contains("streamed") || said.contains("kernels"))
      work.operators = std::move(operators);
    return work;
  }

  Scanner in_;
  ModelGraph model_;
  ModelPlaces places_;
  std::set<std::string> said_;  // model, and the settings of the step
  std::unordered_map<std::string, ValueId> value_ids_;
  std::unordered_map<std::string, ParameterId> parameter_ids_;
};

}  // namespace

std::string print(const ModelGraph& model) {
  std::string out = fmt::format("model {}\n{}", as_name(model.name),
                                model.ring > 0  ? fmt::format("context ring={}\n", model.ring)
                                : model.context ? "context\n"
                                                : "") +
                    print_step(model.step);
  for (const Value& v : model.values)
    out += fmt::format("{} {} {} {}{}\n", keyword(v.kind), as_name(v.name), name(v.dtype), print(v.shape),
                       v.partial == Partial::Max   ? " partial max"
                       : v.partial == Partial::Sum ? " partial"
                                                   : "");
  for (const Parameter& p : model.parameters)
    out += fmt::format("parameter {} {} {}{}{}{}{}\n", as_name(p.name), name(p.dtype), print(p.shape),
                       p.frozen ? " frozen" : "", p.partial ? " partial" : "",
                       p.sharded ? fmt::format(" sharded={}", *p.sharded) : "",
                       p.tensor.empty() ? "" : fmt::format(" tensor [{}]", fmt::join(p.tensor, ", ")));
  for (const Chunk& chunk : model.chunks) {
    std::string tags;
    for (const ScopeTag& tag : chunk.scopes)
      tags += fmt::format("{}{}={}", tags.empty() ? "" : ", ", as_name(tag.scope), tag.index);
    const std::vector<ValueId> routed_by(chunk.routed_by ? 1 : 0, chunk.routed_by.value_or(ValueId()));
    out += fmt::format("chunk {} {{{}}}{}{}{}{}{}{}\n", as_name(chunk.name), tags, chunk.experts ? " experts" : "",
                       chunk.routed_by ? " routed_by" + print_list(model, routed_by) : "",
                       chunk.sequence_sharded ? " sequence_sharded" : "",
                       (chunk.all_tokens.empty() ? "" : " all_tokens" + print_list(model, chunk.all_tokens)) +
                           (chunk.rotation ? fmt::format(" rotation={}", *chunk.rotation) : "") +
                           (chunk.rotated.empty() ? "" : " of" + print_list(model, chunk.rotated)),
                       chunk.causal ? " causal" : "", chunk.float8 ? " float8" : "");
    for (const Pass pass : {Pass::F, Pass::B, Pass::BI, Pass::BW})
      if (const PassWork* work = chunk.find(pass)) out += print_work(model, pass, *work);
  }
  return out;
}

Result<ModelGraph> parse_model(const SourceFilePtr& file) {
  PIPER_TRY(Scanner scanner, Scanner::scan(file));
  return Parser(std::move(scanner)).parse();
}

std::optional<Pass> accept_pass(Scanner& in) {
  if (in.at_line_start() || in.is_symbol("=", 1)) return std::nullopt;
  for (const Pass pass : all_passes)
    if (in.accept_word(name(pass))) return pass;
  return std::nullopt;
}

}  // namespace piper
