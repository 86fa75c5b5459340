#include "cost/cost_table.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "base/suggest.h"
#include "base/text/scanner.h"

namespace piper {
namespace {

constexpr std::string_view update_word = "update";
constexpr int64_t version = 1;
constexpr double most_seconds = 1e12;  // so that sums of them stay numbers

Result<std::optional<Pass>> read_pass(Scanner& in) {
  const Token token = in.peek();
  PIPER_TRY(const std::string word, in.name("a pass"));
  if (word == update_word) return std::optional<Pass>();
  std::vector<std::string> known = {std::string(update_word)};
  for (const Pass pass : all_passes) {
    if (word == name(pass)) return std::optional<Pass>(pass);
    known.emplace_back(name(pass));
  }
  return error(ErrorCode::E105, in.range(token), fmt::format("no pass is called \"{}\"", word))
      .help(did_you_mean(word, known));
}

/// The rest of the line, which the scanner may have cut into several tokens: `1.5e-06`.
Result<double> read_seconds(Scanner& in) {
  if (in.at_line_start()) return in.unexpected("seconds");
  const Token first = in.take();
  while (!in.at_line_start()) in.take();
  const SourceRange where = in.range_from(first);
  const std::string text =
      where.file->text.substr(static_cast<size_t>(where.begin), static_cast<size_t>(where.end - where.begin));
  double seconds = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (problem != std::errc() || rest != text.data() + text.size() || !(seconds >= 0 && seconds <= most_seconds))
    return error(ErrorCode::E102, where,
                 fmt::format("\"{}\" is not a time in seconds, from 0 to {:.0e}", text, most_seconds))
        .help("such as 0.00123 or 1.23e-3");
  return seconds;
}

/// Of the parameters that `bucket3.layer.1.wq..layer.0.wq` names, one that is not known.
std::optional<std::string> unknown_parameter(const std::string& bucket, const std::set<std::string>& known) {
  const size_t dot = bucket.find('.');
  const std::string parameters = dot == std::string::npos ? "" : bucket.substr(dot + 1);
  if (known.contains(parameters)) return std::nullopt;
  const size_t between = parameters.find("..");
  const std::string first = parameters.substr(0, between);
  if (between == std::string::npos || !known.contains(first)) return first;
  const std::string last = parameters.substr(between + 2);
  return known.contains(last) ? std::nullopt : std::optional(last);
}

}  // namespace

Result<CostTable> parse_cost_table(const SourceFilePtr& file) {
  PIPER_TRY(Scanner in, Scanner::scan(file));
  if (!in.is_word("piper") || !in.is_word("costs", 1))
    return in.unexpected("\"piper costs 1\", the first line of a cost table");
  const Token start = in.take();
  in.take();
  const Token number = in.peek();
  PIPER_TRY(const int64_t written, in.integer("the version"));
  if (written != version)
    return error(ErrorCode::E102, in.range(number),
                 fmt::format("version {} of a cost table; this program reads version {}", written, version));
  PIPER_CHECK(in.end_of_line());
  CostTable table;
  table.where = in.range_from(start);
  while (!in.at_end()) {
    const Token first = in.peek();
    CostTable::Key key;
    PIPER_TRY(key.name, in.name("a name"));
    PIPER_TRY(key.pass, read_pass(in));
    const Token samples = in.peek();
    PIPER_TRY(key.samples, in.integer("the number of samples"));
    if (key.samples < 0 || (key.pass.has_value() != (key.samples > 0)))
      return error(ErrorCode::E102, in.range(samples),
                   key.pass ? "a pass runs on at least 1 sample" : "an update has 0 samples");
    const SourceRange where = in.range_from(first);
    PIPER_TRY(const double seconds, read_seconds(in));
    const auto [place, fresh] = table.places.emplace(key, where);
    if (!fresh)
      return error(ErrorCode::E104, where, fmt::format("{} has a cost already", key.name))
          .note(place->second, "first given here");
    table.seconds.emplace(std::move(key), seconds);
  }
  return table;
}

std::string print(const CostTable& table) {
  std::string out = fmt::format("piper costs {}\n", version);
  for (const auto& [key, seconds] : table.seconds)
    out +=
        fmt::format("{} {} {} {}\n", as_name(key.name), key.pass ? name(*key.pass) : update_word, key.samples, seconds);
  return out;
}

Checked check_names(const CostTable& table, const ModelGraph& model) {
  std::vector<std::string> chunks, parameters;
  for (const Chunk& chunk : model.chunks) chunks.push_back(chunk.name);
  for (const Parameter& parameter : model.parameters) parameters.push_back(parameter.name);
  const std::set<std::string> known_chunks(chunks.begin(), chunks.end()),
      known_parameters(parameters.begin(), parameters.end());
  for (const auto& [key, where] : table.places) {
    const bool update = !key.pass;
    std::optional<std::string> unknown;
    if (update)
      unknown = unknown_parameter(key.name, known_parameters);
    else if (!known_chunks.contains(key.name))
      unknown = key.name;
    if (!unknown) continue;
    return error(ErrorCode::E105, where,
                 fmt::format("the model has no {} \"{}\"", update ? "parameter" : "chunk", *unknown))
        .help(did_you_mean(*unknown, update ? parameters : chunks))
        .help("measure again with this model and schedule, or take the line out");
  }
  return Ok{};
}

std::optional<double> find(const CostTable& table, std::string_view name, std::optional<Pass> pass, int64_t samples) {
  CostTable::Key key{std::string(name), pass, samples};
  auto found = table.seconds.find(key);
  if (found == table.seconds.end() && pass == Pass::R) {
    key.pass = Pass::F;
    found = table.seconds.find(key);
  }
  if (found == table.seconds.end()) return std::nullopt;
  return found->second;
}

Result<double> measured_seconds(const CostTable& table, std::string_view name, std::optional<Pass> pass,
                                int64_t samples) {
  if (const auto seconds = find(table, name, pass, samples)) return *seconds;
  const std::string what =
      pass ? fmt::format("{} of {} on {} sample{}", piper::name(*pass), name, samples, samples == 1 ? "" : "s")
           : fmt::format("the update of {}", name);
  return error(ErrorCode::E411, table.where, fmt::format("the cost table has no cost of {}", what))
      .help("measure again with this model, batch and schedule, or leave out --costs to use formulas");
}

}  // namespace piper
