#include "tools/parse_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/suggest.h"
#include "base/text/scanner.h"

namespace piper {
namespace {

constexpr std::string_view example = "write --cost F=1,I=1,W=1,comm=0, or F=1:1:2 with one value for every stage";

/// What stands behind one key.
struct Entry {
  std::vector<double> values;
  SourceRange where;
};

Result<double> parse_value(Scanner& in, const std::string& key) {
  const Token token = in.take();
  char* end = nullptr;
  const double value = std::strtod(token.text.c_str(), &end);
  if (token.kind != TokenKind::Number || *end != '\0' || !(value >= 0) || value > 1e12)
    return error(ErrorCode::E102, in.range(token), fmt::format("{} must be a number of at least 0", key))
        .help(std::string(example));
  return value;
}

Result<std::map<std::string, Entry>> parse_entries(const std::string& text, const std::vector<std::string>& keys) {
  std::map<std::string, Entry> entries;
  PIPER_TRY(Scanner in, Scanner::scan(make_source("--cost", text)));
  do {
    const Token key = in.take();
    if (std::ranges::find(keys, key.text) == keys.end())
      return error(ErrorCode::E105, in.range(key), fmt::format("unknown cost \"{}\"", key.text))
          .help(did_you_mean(key.text, keys));
    PIPER_CHECK(in.expect("=", "after the name of a cost"));
    Entry entry;
    do {
      PIPER_TRY(const double value, parse_value(in, key.text));
      entry.values.push_back(value);
    } while (in.accept(":"));
    entry.where = in.range_from(key);
    if (const auto [first, fresh] = entries.emplace(key.text, entry); !fresh)
      return error(ErrorCode::E104, entry.where, fmt::format("{} is given twice", key.text))
          .note(first->second.where, "first given here")
          .help("keep one of them");
    const bool one_only = key.text == "comm" || key.text == "overlap";
    if (one_only && entry.values.size() > 1)
      return error(ErrorCode::E105, entry.where, fmt::format("{} is the same for all stages", key.text))
          .help("give one value");
  } while (in.accept(","));
  if (!in.at_end()) return in.unexpected("',' or the end");
  return entries;
}

/// All lists have one value for every stage.
Checked check_lengths(const std::map<std::string, Entry>& entries) {
  const Entry* first = nullptr;
  for (const auto& [key, entry] : entries) {
    if (entry.values.size() < 2 && key != "stages") continue;
    if (first && first->values.size() != entry.values.size())
      return error(ErrorCode::E104, entry.where,
                   fmt::format("{} stages here, {} there", entry.values.size(), first->values.size()))
          .note(first->where, "the other list")
          .help("give one value, or one for every stage");
    first = &entry;
  }
  return Ok{};
}

}  // namespace

Result<CostOption> parse_costs(const std::string& text, OverlapCost overlap) {
  std::vector<std::string> keys = {"F", "I", "W", "comm", "stages"};
  if (overlap == OverlapCost::Taken) keys.push_back("overlap");
  PIPER_TRY(const auto entries, parse_entries(text, keys));
  PIPER_CHECK(check_lengths(entries));
  size_t stages = 0;
  for (const auto& [key, entry] : entries)
    if (entry.values.size() > 1 || key == "stages") stages = entry.values.size();
  const auto value = [&](const std::string& key, double otherwise, size_t stage = 0) {
    const auto found = entries.find(key);
    if (found == entries.end()) return otherwise;
    const std::vector<double>& values = found->second.values;
    return values.size() == 1 ? values[0] : values[stage];
  };
  CostOption out;
  out.costs = {value("F", 1), value("I", 1), value("W", 1), value("comm", 0)};
  for (size_t s = 0; s < stages; ++s) {
    const double factor = value("stages", 1, s);
    out.costs.stages.push_back({factor * value("F", 1, s), factor * value("I", 1, s), factor * value("W", 1, s)});
  }
  if (entries.contains("overlap")) out.overlap = value("overlap", 0);
  return out;
}

}  // namespace piper
