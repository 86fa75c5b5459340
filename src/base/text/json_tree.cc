#include "base/text/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace piper {
namespace {

using Json = nlohmann::json;

constexpr size_t largest_json = 64u << 20;
constexpr size_t most_values = 2'000'000;
constexpr size_t most_json_brackets = 16;
constexpr size_t most_keys = 64;

struct Extent {
  int begin, end;
};

/// What follows `mark`, or all of it.
std::string_view after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

/// What the library says, without its own names and without a copy of the text.
std::string reason(std::string_view what) {
  what = after(after(what, "] "), "syntax error ");
  const std::string_view told = what.substr(0, what.find("; last read: "));
  const size_t expected = what.find("; expected ");
  const size_t dash = told.find(" - ");
  std::string out(told.substr(0, dash));
  if (dash != std::string_view::npos) out += fmt::format(": {}", told.substr(dash + 3));
  if (told.size() < what.size() && expected != std::string_view::npos) out += what.substr(expected);
  return out;
}

/// Builds the tree from the library's events. The events carry no place, but they come token by token: whatever the
/// parser has accepted lies before `next_`, and the next token starts behind blanks and separators.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(const SourceFilePtr& file) : file_(file), text_(file->text) {
    if (text_.starts_with("\xEF\xBB\xBF")) next_ = 3;
  }

  JsonValue root;
  std::optional<Diagnostic> problem;

  bool null() override { return add(JsonValue::Kind::Null) != nullptr; }
  bool boolean(bool value) override {
    JsonValue* out = add(JsonValue::Kind::Boolean);
    if (out) out->boolean = value;
    return out;
  }
  bool number_integer(int64_t value) override {
    JsonValue* out = add(JsonValue::Kind::Integer);
    if (out) out->integer = value, out->real = static_cast<double>(value);
    return out;
  }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return number(static_cast<double>(value));
    return number_integer(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string& value) override {
    JsonValue* out = add(JsonValue::Kind::String);
    if (out) out->text = std::move(value);
    return out;
  }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonValue::Kind::Object); }
  bool start_array(size_t) override { return open(JsonValue::Kind::Array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    key_at_ = take_token();
    const JsonValue& object = *open_.back();
    if (object.items.size() == most_keys)
      return refuse(ErrorCode::E107, key_at_, fmt::format("an object has more than {} keys", most_keys));
    if (const JsonValue* other = object.find(name)) {
      refuse(ErrorCode::E107, key_at_, fmt::format("\"{}\" stands twice in one object", name));
      problem->notes.push_back({{file_, other->key_begin, other->end}, "first here"});
      problem->helps.push_back("keep one of them");
      return false;
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& why) override {
    const int at = static_cast<int>(std::min(position > 0 ? position - 1 : 0, text_.size()));
    refuse(ErrorCode::E106, {at, at + 1}, "bad JSON " + reason(why.what()));
    problem->helps.push_back("JSON has no comments, no comma after the last item, and double quotes only");
    return false;
  }

 private:
  Extent take_token() {
    const auto is_one_of = [&](size_t i, std::string_view set) { return set.find(text_[i]) != std::string_view::npos; };
    while (next_ < text_.size() && is_one_of(next_, " \t\r\n,:")) ++next_;
    const size_t begin = next_;
    if (next_ < text_.size() && text_[next_] == '"') {
      for (++next_; next_ < text_.size() && text_[next_] != '"'; ++next_)
        if (text_[next_] == '\\') ++next_;
      ++next_;
    } else if (next_ < text_.size() && is_one_of(next_, "{}[]")) {
      ++next_;
    } else {
      while (next_ < text_.size() && !is_one_of(next_, " \t\r\n,:]}")) ++next_;
    }
    return {static_cast<int>(begin), static_cast<int>(next_)};
  }

  bool refuse(ErrorCode code, Extent at, std::string message) {
    if (!problem) problem = error(code, {file_, at.begin, at.end}, std::move(message));
    return false;
  }

  /// The new value, or nothing if there are too many.
  JsonValue* add(JsonValue::Kind kind) {
    const Extent at = take_token();
    if (++values_ > most_values) {
      refuse(ErrorCode::E113, at, fmt::format("the file has more than {} values", most_values));
      return nullptr;
    }
    JsonValue* value = open_.empty() ? &root : &open_.back()->items.emplace_back();
    value->kind = kind;
    value->begin = value->key_begin = at.begin;
    value->end = at.end;
    if (open_.empty() || open_.back()->kind != JsonValue::Kind::Object) return value;
    value->key = std::move(key_);
    value->key_begin = key_at_.begin;
    return value;
  }

  bool number(double value) {
    JsonValue* out = add(JsonValue::Kind::Real);
    if (out) out->real = value;
    return out;
  }

  bool open(JsonValue::Kind kind) {
    JsonValue* value = add(kind);
    if (!value) return false;
    if (open_.size() == most_json_brackets)
      return refuse(ErrorCode::E106, {value->begin, value->end},
                    fmt::format("brackets are nested more than {} deep", most_json_brackets));
    open_.push_back(value);  // stays valid: only the innermost open value grows
    return true;
  }

  bool close() {
    open_.back()->end = take_token().end;
    open_.pop_back();
    return true;
  }

  const SourceFilePtr& file_;
  const std::string_view text_;
  size_t next_ = 0;
  size_t values_ = 0;
  std::string key_;
  Extent key_at_{0, 0};
  std::vector<JsonValue*> open_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view member) const {
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const JsonValue& item) { return item.key == member; });
  return kind != Kind::Object || found == items.end() ? nullptr : &*found;
}

Result<JsonValue> parse_json(const SourceFilePtr& file) {
  if (file->text.size() > largest_json)
    return error(ErrorCode::E113, {file, 0, 1},
                 fmt::format("the file has {} bytes; the limit is {}", file->text.size(), largest_json));
  TreeBuilder builder(file);
  if (Json::sax_parse(file->text, &builder)) return std::move(builder.root);
  invariant(builder.problem.has_value(), "the JSON parser stops only with a reason");
  return std::move(*builder.problem);
}

}  // namespace piper
