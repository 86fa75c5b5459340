#include "timelines/read_actions.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/suggest.h"

namespace piper {
namespace {

constexpr size_t most_bytes = size_t{1} << 28;  // places in a text are ints
constexpr std::string_view blank = " \t\r";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(blank);
  return begin == text.npos ? text.substr(0, 0) : text.substr(begin, text.find_last_not_of(blank) + 1 - begin);
}

bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

/// A whole number at the start of `text`, which then begins after it.
std::optional<int> take_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

/// `2I3` in three parts; the last is missing in `1UNSHARD`.
struct Parts {
  int stage = 0;
  std::string_view word;
  std::optional<int> microbatch;
};

std::optional<Parts> take_apart(std::string_view text) {
  Parts parts;
  const std::optional<int> stage = take_number(text);
  if (!stage) return std::nullopt;
  parts.stage = *stage;
  size_t end = 0;
  while (end < text.size() && !is_digit(text[end])) ++end;
  parts.word = text.substr(0, end);
  text.remove_prefix(end);
  if (text.empty()) return parts;
  parts.microbatch = take_number(text);
  return parts.microbatch && text.empty() ? std::optional(parts) : std::nullopt;
}

std::optional<Pass> pass_of(std::string_view word) {
  if (word == "F") return Pass::F;
  if (word == "B") return Pass::B;
  if (word == "I") return Pass::BI;
  if (word == "W") return Pass::BW;
  return std::nullopt;
}

std::optional<TimelineOp> read_op(std::string_view text) {
  const std::optional<Parts> parts = take_apart(trim(text));
  const std::optional<Pass> pass = parts ? pass_of(parts->word) : std::nullopt;
  return pass && parts->microbatch ? std::optional(TimelineOp{parts->stage, *pass, *parts->microbatch}) : std::nullopt;
}

std::optional<CommAction> read_comm(std::string_view text) {
  const std::optional<Parts> parts = take_apart(text);
  if (!parts) return std::nullopt;
  for (const CommKind kind : all_comm_kinds())
    if (parts->word == name(kind) && parts->microbatch.has_value() == has_microbatch(kind))
      return CommAction{parts->stage, kind, parts->microbatch.value_or(-1)};
  return std::nullopt;
}

/// `(0F5;1B2)` and what follows it.
struct Pair {
  std::string_view first, second, mark;
};

std::optional<Pair> take_pair(std::string_view text) {
  const size_t middle = text.find(';'), end = text.find(')');
  if (!text.starts_with('(') || end == text.npos || middle == text.npos || middle > end) return std::nullopt;
  return Pair{text.substr(1, middle - 1), text.substr(middle + 1, end - middle - 1), text.substr(end + 1)};
}

std::optional<TimelineAction> read_action(std::string_view text, const TimelineForm& form) {
  if (const std::optional<Pair> pair = take_pair(text)) {
    const std::optional<TimelineOp> first = read_op(pair->first), second = read_op(pair->second);
    if (!first || !second || pair->mark != form.pair_mark) return std::nullopt;
    return TimelineCell{*first, *second};
  }
  if (const std::optional<TimelineOp> op = read_op(text)) return TimelineCell{*op, {}};
  if (const std::optional<CommAction> comm = read_comm(text)) return *comm;
  return std::nullopt;
}

/// What was meant, if one word of the cell is nearly right: `0f3`, `0SNED_F3`, `(0F1;0B0)` without its mark.
std::string meant(std::string_view text, const TimelineForm& form) {
  if (const std::optional<Pair> pair = take_pair(text)) {
    if (read_op(pair->first) && read_op(pair->second))
      return fmt::format("({};{}){}", trim(pair->first), trim(pair->second), form.pair_mark);
    return "";
  }
  const std::optional<Parts> parts = take_apart(text);
  if (!parts) return "";
  std::vector<std::string> words;
  if (parts->microbatch) words = {"F", "B", "I", "W"};
  for (const CommKind kind : all_comm_kinds())
    if (has_microbatch(kind) == parts->microbatch.has_value()) words.emplace_back(name(kind));
  const std::string word = nearest(parts->word, words);
  if (word.empty()) return "";
  return fmt::format("{}{}{}", parts->stage, word, parts->microbatch ? fmt::format("{}", *parts->microbatch) : "");
}

Diagnostic unreadable(const SourceRange& where, std::string_view cell, int rank, int number, const TimelineForm& form) {
  const std::string near = meant(cell, form);
  return error(
             ErrorCode::E101, where,
             fmt::format("rank {}, cell {}: expected a pass such as {}, found '{}'", rank, number, form.example, cell))
      .help(near.empty() ? "write stage, one of F B I W, microbatch; or stage, SEND_F RECV_F SEND_B RECV_B, "
                           "microbatch; or stage, UNSHARD RESHARD REDUCE_GRAD"
                         : fmt::format("did you mean \"{}\"?", near));
}

class Reader {
 public:
  Reader(const SourceFilePtr& file, const TimelineForm& form) : file_(file), form_(form) {
    out_.source.whole = {file, 0, 1};
  }

  Result<ParsedTimeline> read() {
    std::string_view rest = file_->text;
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      PIPER_CHECK(read_line(rest.substr(0, end)));
      if (end == rest.npos) break;
      rest.remove_prefix(end + 1);
    }
    while (!out_.actions.ranks.empty() && out_.actions.ranks.back().empty()) {
      out_.actions.ranks.pop_back();
      out_.source.cells.pop_back();
    }
    if (out_.actions.ranks.empty())
      return error(ErrorCode::E101, {file_, 0, 0}, "expected one line per rank, found nothing")
          .help(fmt::format("write the cells of a rank in a line, such as {}", form_.example));
    return std::move(out_);
  }

 private:
  Checked read_line(std::string_view line) {
    if (form_.has_labels) {
      line = line.substr(0, line.find('#'));
      if (const size_t colon = line.find(':'); colon != line.npos) line.remove_prefix(colon + 1);
      if (trim(line).empty()) return Ok{};
    }
    out_.actions.ranks.emplace_back();
    out_.source.cells.emplace_back();
    for (int number = 0;; ++number) {
      if (form_.has_labels) line = trim(line);
      const size_t end = line.find_first_of(form_.separators);
      const std::string_view text = trim(line.substr(0, end));
      if (!text.empty()) PIPER_CHECK(read_cell(text, number));
      if (end == line.npos) return Ok{};
      line.remove_prefix(end + 1);
    }
  }

  Checked read_cell(std::string_view text, int number) {
    const int begin = static_cast<int>(text.data() - file_->text.data());
    const int end = begin + static_cast<int>(text.size());
    const std::optional<TimelineAction> action = read_action(text, form_);
    if (!action)
      return unreadable({file_, begin, end}, text, static_cast<int>(out_.actions.ranks.size()) - 1, number, form_);
    out_.actions.ranks.back().push_back(*action);
    out_.source.cells.back().push_back({begin, end, number});
    return Ok{};
  }

  SourceFilePtr file_;
  const TimelineForm& form_;
  ParsedTimeline out_;
};

}  // namespace

Result<ParsedTimeline> read_actions(const SourceFilePtr& file, const TimelineForm& form) {
  if (file->text.size() > most_bytes)
    return error(ErrorCode::E113, {file, 0, 1}, fmt::format("the timeline has more than {} bytes", most_bytes))
        .help("use fewer microbatches");
  return Reader(file, form).read();
}

}  // namespace piper
