#include "base/text/bounded_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/suggest.h"

namespace piper {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void NameTable::add(const std::string& name) {
  first_.emplace(name, static_cast<int>(names_.size()));
  names_.push_back(name);
}

int NameTable::find(const std::string& name) const {
  const auto found = first_.find(name);
  return found == first_.end() ? -1 : found->second;
}

Diagnostic BoundedReader::wrong(SourceRange where, std::string message) const {
  return error(code_, std::move(where), std::move(message));
}

Result<int64_t> BoundedReader::number(std::string_view what, int64_t low, int64_t high) {
  const Token first = in.peek();
  const bool negative = in.is_symbol("-");
  const Token digits = in.peek(negative ? 1 : 0);
  if (digits.kind != TokenKind::Number || !all_digits(digits.text)) return in.unexpected(what);
  if (negative) in.take();
  in.take();
  const auto size = parse_integer(digits.text);
  const int64_t value = negative ? -size.value_or(0) : size.value_or(0);
  if (size && value >= low && value <= high) return value;
  const std::string written = fmt::format("{}{}", negative ? "-" : "", digits.text);
  if (high < low)
    return wrong(in.range_from(first), fmt::format("{} {} does not exist: there is none", what, written))
        .help("declare it above");
  return wrong(in.range_from(first), fmt::format("{} must be from {} to {}, not {}", what, low, high, written))
      .help(fmt::format("for example {}", size && value < low ? low : high));
}

Result<int> BoundedReader::reference(char letter, std::string_view what, size_t count) {
  const Token token = in.peek();
  const std::string_view text = token.text;
  if (token.kind != TokenKind::Word || text[0] != letter || !all_digits(text.substr(1)))
    return in.unexpected(fmt::format("{} such as {}0", what, letter));
  in.take();
  const auto index = parse_integer(text.substr(1));
  if (index && static_cast<uint64_t>(*index) < count) return static_cast<int>(*index);
  return wrong(in.range(token), fmt::format("unknown {} {}; there are {}", what, text, count))
      .help(count == 0   ? fmt::format("declare it above: {} {}0", what, letter)
            : count == 1 ? fmt::format("the only one is {}0", letter)
                         : fmt::format("they are called {}0 to {}{}", letter, letter, count - 1));
}

Checked BoundedReader::numbered(std::string_view what, size_t before) {
  const Token token = in.peek();
  PIPER_TRY(const int64_t index, number(what, 0, INT32_MAX));
  if (static_cast<size_t>(index) == before) return Ok{};
  return wrong(in.range(token), fmt::format("{} {} stands where {} must", what, index, before))
      .help("they are numbered from 0 without gaps");
}

Checked BoundedReader::numbered(char letter, std::string_view what, size_t before) {
  const Token token = in.peek();
  PIPER_TRY(const int index, reference(letter, what, INT32_MAX));
  if (static_cast<size_t>(index) == before) return Ok{};
  return wrong(in.range(token), fmt::format("{} {} stands where {}{} must", what, token.text, letter, before))
      .help("they are numbered from 0 without gaps");
}

Result<int> BoundedReader::named(const NameTable& known, std::string_view what) {
  const Token token = in.peek();
  PIPER_TRY(const std::string text, in.name(what));
  int index = known.find(text);
  if (index < 0)
    return wrong(in.range(token), fmt::format("unknown {} \"{}\"", what, text)).help(did_you_mean(text, known.names()));
  // in a DAG `@ g0` says where a node runs: only a number belongs to the name
  if (!in.is_symbol("@") || in.peek(1).kind != TokenKind::Number) return index;
  in.take();
  PIPER_TRY(const int64_t number,
            this->number("the number of a name", 0, static_cast<int64_t>(known.names().size()) - 1));
  index = static_cast<int>(number);
  if (known.names()[static_cast<size_t>(index)] == text) return index;
  return wrong(in.range_from(token), fmt::format("{} {} is not \"{}\"", what, index, text));
}

Checked BoundedReader::add_range(DeviceList& list) {
  const Token first = in.peek();
  PIPER_TRY(const int64_t low, number("a device", 0, most_devices_in_text - 1));
  int64_t high = low;
  if (in.accept("..")) {
    PIPER_TRY(high, number("the last device of a range", low, most_devices_in_text - 1));
  }
  const auto count = static_cast<size_t>(high - low + 1);
  if (count > devices_left_)
    return error(ErrorCode::E113, in.range_from(first), "all lists of devices together are too long")
        .help("use fewer devices or fewer groups");
  devices_left_ -= count;
  for (int64_t device = low; device <= high; ++device) list.push_back(static_cast<int>(device));
  return Ok{};
}

Result<DeviceList> BoundedReader::devices() {
  DeviceList list;
  PIPER_CHECK(in.expect("[", "before a list of devices"));
  do PIPER_CHECK(add_range(list));
  while (in.accept(","));
  PIPER_CHECK(in.expect("]", "after a list of devices"));
  return list;
}

Result<int> BoundedReader::one_of(const std::vector<std::string>& words, std::string_view what) {
  const Token token = in.peek();
  const auto found = std::find(words.begin(), words.end(), token.text);
  if (token.kind != TokenKind::Word || found == words.end())
    return in.unexpected(what).help(did_you_mean(token.text, words));
  in.take();
  return static_cast<int>(found - words.begin());
}

bool BoundedReader::is_dim(const DimText& dim) const {
  return in.peek().kind != TokenKind::Symbol && in.peek().text == dim.name && in.is_symbol("=", 1);
}

Result<int> BoundedReader::slice(const std::vector<DimText>& dims) {
  if (in.at_line_start()) return -1;
  if (dims.empty()) return in.accept_word("whole") ? 0 : -1;
  if (!is_dim(dims[0])) return -1;
  int slice = 0;
  for (const DimText& dim : dims) {
    if (!is_dim(dim)) return in.unexpected(fmt::format("{}=, as the dims above say", as_name(dim.name)));
    in.take();
    in.take();
    PIPER_TRY(const int64_t part, number(dim.name, 0, dim.parts - 1));
    slice = slice * dim.parts + static_cast<int>(part);
  }
  return slice;
}

Checked BoundedReader::list(const ReadPart& item) {
  PIPER_CHECK(in.expect("(", "before a list"));
  if (in.accept(")")) return Ok{};
  do PIPER_CHECK(item());
  while (in.accept(","));
  return in.expect(")", "after a list");
}

Checked BoundedReader::options(std::vector<Option> known) {
  while (!in.at_line_start()) {
    const Token key = in.peek();
    const auto found = std::find_if(known.begin(), known.end(), [&](const Option& o) { return in.is_word(o.key); });
    if (found == known.end()) {
      std::vector<std::string> keys;
      for (const Option& option : known) keys.emplace_back(option.key);
      return in.unexpected(keys.empty() ? "the end of the line"
                                        : fmt::format("one more of {}=", fmt::join(keys, "=, ")));
    }
    in.take();
    PIPER_CHECK(in.expect("=", fmt::format("after {}", key.text)));
    PIPER_CHECK(found->read());
    known.erase(found);
  }
  return Ok{};
}

std::vector<std::string> references_to(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  std::unordered_map<std::string_view, size_t> first;
  for (size_t n = 0; n < names.size(); ++n)
    out.push_back(first.emplace(names[n], n).second ? as_name(names[n]) : fmt::format("{}@{}", as_name(names[n]), n));
  return out;
}

}  // namespace piper
