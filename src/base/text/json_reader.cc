#include "base/text/json_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/text/is_digit.h"
#include "base/utf8.h"

namespace piper {
namespace {

/// Whether it is a number as JSON writes them.
bool is_number(std::string_view token) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t before = i;
    while (i < token.size() && is_digit(token[i])) ++i;
    return i > before;
  };
  if (i < token.size() && token[i] == '-') ++i;
  if (i + 1 < token.size() && token[i] == '0' && is_digit(token[i + 1])) return false;
  if (!digits()) return false;
  if (i < token.size() && token[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < token.size() && (token[i] == 'e' || token[i] == 'E')) {
    ++i;
    if (i < token.size() && (token[i] == '+' || token[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == token.size();
}

/// The token times 10^shift: the exponent is changed in the text, so that nothing is rounded twice.
double shifted(std::string_view token, int shift) {
  const size_t e = token.find_first_of("eE");
  int exponent = 0;
  if (e != std::string_view::npos) {
    const char* begin = token.data() + e + (token[e + 1] == '+' ? 2 : 1);
    if (std::from_chars(begin, token.data() + token.size(), exponent).ec != std::errc()) return NAN;
    if (std::abs(exponent) > 1'000'000) return NAN;
  }
  double value = NAN;
  if (shift == 0 && std::from_chars(token.data(), token.data() + token.size(), value).ec == std::errc()) return value;
  const std::string text = fmt::format("{}e{}", token.substr(0, e), exponent + shift);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec == std::errc::result_out_of_range) return exponent < 0 ? 0.0 : INFINITY;
  return result.ec == std::errc() ? value : NAN;
}

}  // namespace

JsonReader::JsonReader(const SourceFilePtr& file) : file_(file), all_(file->text) {
  if (all_.starts_with("\xEF\xBB\xBF")) at_ = 3;
}

void JsonReader::refuse(ErrorCode code, size_t begin, std::string message, std::string help) {
  if (problem_) return;
  const int place = static_cast<int>(std::min(begin, all_.size()));
  problem_ = error(code, {file_, place, place + 1}, std::move(message)).help(std::move(help));
  at_ = all_.size();
}

void JsonReader::refuse_last(std::string message, std::string help) {
  refuse(ErrorCode::E503, last_, std::move(message), std::move(help));
}

void JsonReader::bad_json(std::string message) {
  const bool cut_off = at_ >= all_.size();
  refuse(ErrorCode::E106, at_, fmt::format("bad JSON: {}", message),
         cut_off ? "the file ends too early; write it again" : "");
}

/// What stands where something else was expected.
std::string JsonReader::shown() const {
  if (at_ >= all_.size()) return "the end of the file";
  const auto byte = static_cast<unsigned char>(all_[at_]);
  return byte < 0x20 || byte >= 0x7f ? fmt::format("byte {:#04x}", byte) : fmt::format("'{}'", all_[at_]);
}

size_t JsonReader::next() {
  while (at_ < all_.size() && (all_[at_] == ' ' || all_[at_] == '\n' || all_[at_] == '\t' || all_[at_] == '\r')) ++at_;
  return at_;
}

bool JsonReader::take(char c) {
  if (next() >= all_.size() || all_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonReader::open(char bracket, std::string_view what) {
  last_ = next();
  if (depth_ >= deepest)
    bad_json(fmt::format("brackets are nested more than {} deep", deepest));
  else if (!take(bracket) && at_ >= all_.size())
    bad_json(fmt::format("expected {}, found the end of the file", what));
  else if (at_ == last_)
    refuse_last(fmt::format("{} must be {}, not {}", what, bracket == '{' ? "an object" : "a list", shown()));
  else
    first_[++depth_] = true;
}

void JsonReader::open_object(std::string_view what) {
  open('{', what);
}
void JsonReader::open_array(std::string_view what) {
  open('[', what);
}

/// True if an item follows, false behind the closing bracket.
bool JsonReader::comma_or(char close) {
  if (failed()) return false;
  if (take(close)) {
    --depth_;
    return false;
  }
  if (!first_[depth_] && !take(',')) {
    bad_json(fmt::format("expected ',' or '{}', found {}", close, shown()));
    return false;
  }
  first_[depth_] = false;
  return true;
}

bool JsonReader::member(std::string_view& key) {
  if (!comma_or('}')) return false;
  last_ = next();
  key = string_token();
  if (failed()) return false;
  if (!take(':')) bad_json(fmt::format("expected ':', found {}", shown()));
  return !failed();
}

bool JsonReader::element() {
  if (!comma_or(']')) return false;
  if (next() < all_.size() && all_[at_] == ']') bad_json("expected a value, found ']'");
  return !failed();
}

void JsonReader::append_code_point(uint32_t code) {
  const auto put = [&](uint32_t byte) { scratch_ += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

/// The four digits of \uXXXX.
std::optional<uint32_t> JsonReader::hexadecimal() {
  uint32_t code = 0;
  const char* begin = all_.data() + at_;
  if (all_.size() - at_ < 4 || std::from_chars(begin, begin + 4, code, 16).ptr != begin + 4) return std::nullopt;
  at_ += 4;
  return code;
}

/// What follows a backslash.
bool JsonReader::escape() {
  constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  const char c = at_ < all_.size() ? all_[at_++] : '\0';
  if (const size_t known = letters.find(c); known != std::string_view::npos && c != '\0') {
    scratch_ += meanings[known];
    return true;
  }
  if (c != 'u') return false;
  auto code = hexadecimal();
  if (!code) return false;
  if (*code >= 0xD800 && *code < 0xDC00) {
    if (!all_.substr(at_).starts_with("\\u")) return false;
    at_ += 2;
    const auto low = hexadecimal();
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
    code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
  } else if (*code >= 0xDC00 && *code <= 0xDFFF) {
    return false;
  }
  append_code_point(*code);
  return true;
}

std::string_view JsonReader::string_token() {
  if (!take('"')) {
    bad_json(fmt::format("expected '\"', found {}", shown()));
    return {};
  }
  const size_t begin = at_;
  bool copied = false;
  while (at_ < all_.size()) {
    const auto byte = static_cast<unsigned char>(all_[at_]);
    if (byte == '"') {
      const std::string_view plain = all_.substr(begin, at_++ - begin);
      return copied ? std::string_view(scratch_) : plain;
    }
    const size_t length = byte < 0x20 ? 0 : byte < 0x80 ? 1 : utf8_length(all_.substr(at_));
    if (length == 0) {
      bad_json(fmt::format("{} inside a string", shown()));
      return {};
    }
    if (byte != '\\') {
      if (copied) scratch_.append(all_, at_, length);
      at_ += length;
      continue;
    }
    if (!copied) scratch_.assign(all_, begin, at_ - begin);
    copied = true;
    const size_t backslash = at_++;
    if (!escape()) {
      at_ = backslash;
      bad_json("unknown escape inside a string");
      return {};
    }
  }
  bad_json("a string without its closing '\"'");
  return {};
}

std::string_view JsonReader::text(std::string_view what) {
  if (failed()) return {};
  last_ = next();
  if (last_ < all_.size() && all_[last_] != '"') {
    refuse_last(fmt::format("{} must be a text, not {}", what, shown()));
    return {};
  }
  const std::string_view out = string_token();
  return failed() ? std::string_view() : out;
}

std::string_view JsonReader::number_token(std::string_view what) {
  if (failed()) return {};
  last_ = next();
  const size_t end = std::min(all_.find_first_of(" \n\t\r,]}", at_), all_.size());
  const std::string_view token = all_.substr(at_, end - at_);
  if (token.empty() || end == all_.size()) {
    at_ = end;
    bad_json(fmt::format("expected {}, found {}", what, shown()));
    return {};
  }
  if (!is_number(token)) {
    refuse_last(fmt::format("{} must be a number, not {}", what, token.substr(0, token.find_first_of("\"[{:"))));
    return {};
  }
  at_ = end;
  return token;
}

double JsonReader::number(std::string_view what, int shift) {
  const std::string_view token = number_token(what);
  if (token.empty()) return 0;
  const double value = shifted(token, shift);
  if (std::isfinite(value)) return value;
  refuse_last(fmt::format("{} is not a finite number", what));
  return 0;
}

int64_t JsonReader::integer(std::string_view what, int64_t least, int64_t most) {
  const std::string_view token = number_token(what);
  if (token.empty()) return 0;
  int64_t value = 0;
  const auto result = std::from_chars(token.data(), token.data() + token.size(), value);
  if (result.ec == std::errc() && result.ptr == token.data() + token.size() && value >= least && value <= most)
    return value;
  refuse_last(most < least
                  ? fmt::format("{} is {}, but there are none", what, token)
                  : fmt::format("{} is {}; it must be a whole number from {} to {}", what, token, least, most));
  return 0;
}

void JsonReader::skip() {
  const int outside = depth_;
  bool object[deepest + 1] = {};
  std::string_view key;
  do {
    if (failed()) return;
    if (depth_ > outside && !(object[depth_] ? member(key) : element())) continue;
    if (next() >= all_.size()) return bad_json("expected a value, found the end of the file");
    const char c = all_[at_];
    if (c == '{' || c == '[') {
      open(c, "a value");
      if (!failed()) object[depth_] = c == '{';
    } else if (c == '"') {
      string_token();
    } else {
      const size_t end = std::min(all_.find_first_of(" \n\t\r,]}:", at_), all_.size());
      const std::string_view token = all_.substr(at_, end - at_);
      if (token != "true" && token != "false" && token != "null" && !is_number(token)) {
        if (end == all_.size()) at_ = end;
        return bad_json(fmt::format("expected a value, found {}", shown()));
      }
      at_ = end;
    }
  } while (depth_ > outside);
}

void JsonReader::end() {
  if (!failed() && next() < all_.size()) bad_json(fmt::format("expected the end of the file, found {}", shown()));
}

}  // namespace piper
