#include "base/text/toml_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/suggest.h"

namespace piper {
namespace {

using Kind = TomlValue::Kind;

constexpr int64_t least_without_unit = 1'000'000;  // bytes: below it a unit was forgotten

bool is_number(const TomlValue& value) {
  return (value.kind == Kind::Integer || value.kind == Kind::Number) && std::isfinite(value.number);
}

}  // namespace

SourceRange TomlSection::place(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  return value ? value->place : place();
}

Diagnostic TomlSection::bad(std::string_view key, std::string message) const {
  return error(ErrorCode::E111, place(key), std::move(message));
}

Diagnostic TomlSection::wrong_kind(const TomlValue& value, std::string_view what, std::string_view example) const {
  return error(ErrorCode::E111, value.place, fmt::format("{} must be {}", value.key, what))
      .help(fmt::format("for example {} = {}", value.key, example));
}

Checked TomlSection::only(const std::vector<std::string>& known) const {
  for (const TomlValue& member : table_->items) {
    if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
    const std::string what = member.kind == Kind::Table ? fmt::format("unknown section [{}]", member.key)
                                                        : fmt::format("unknown key \"{}\" in {}", member.key, name_);
    return error(ErrorCode::E111, member.key_place, what).help(did_you_mean(member.key, known));
  }
  return Ok{};
}

Result<std::optional<std::string>> TomlSection::text(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<std::string>();
  if (value->kind == Kind::Text) return std::optional(value->text);
  return wrong_kind(*value, "a text in quotes", "\"text\"");
}

Result<std::optional<int64_t>> TomlSection::integer(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<int64_t>();
  if (value->kind == Kind::Integer) return std::optional(value->integer);
  return wrong_kind(*value, "a whole number", "4");
}

Result<std::optional<double>> TomlSection::number(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<double>();
  if (is_number(*value)) return std::optional(value->number);
  return wrong_kind(*value, "a number", "1.5");
}

Result<std::optional<bool>> TomlSection::flag(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<bool>();
  if (value->kind == Kind::Switch) return std::optional(value->on);
  return wrong_kind(*value, "true or false", "true");
}

Result<std::optional<int64_t>> TomlSection::bytes(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<int64_t>();
  const bool text = value->kind == Kind::Text;
  const auto bytes = text                           ? parse_bytes(value->text)
                     : value->kind == Kind::Integer ? std::optional(value->integer)
                                                    : std::nullopt;
  if (!bytes || *bytes <= 0)
    return wrong_kind(*value, "a size", "\"80GB\"")
        .help("units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB, without a blank before them");
  const bool unit = text && value->text.find_first_not_of("0123456789.") != std::string::npos;
  if (!unit && *bytes < least_without_unit)
    return bad(key, fmt::format("{} = {} without a unit is {} bytes", key, *bytes, *bytes))
        .help(fmt::format("write {} = \"{}{}\"", key, *bytes, *bytes < 4096 ? "GB" : "MB"));
  return bytes;
}

Result<std::vector<const TomlValue*>> TomlSection::texts(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  std::vector<const TomlValue*> out;
  if (!value) return out;
  if (value->kind == Kind::Text) return std::vector{value};
  for (const TomlValue& item : value->items)
    if (item.kind == Kind::Text) out.push_back(&item);
  if (value->kind == Kind::List && out.size() == value->items.size()) return out;
  return wrong_kind(*value, "a text in quotes or a list of them", "[\"one\", \"two\"]");
}

Result<std::optional<std::vector<double>>> TomlSection::numbers(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<std::vector<double>>();
  std::vector<double> out;
  for (const TomlValue& item : value->items)
    if (is_number(item)) out.push_back(item.number);
  if (value->kind == Kind::List && out.size() == value->items.size()) return std::optional(std::move(out));
  return wrong_kind(*value, "a list of numbers", "[0.9, 0.95]");
}

Result<std::optional<TomlSection>> TomlSection::section(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  if (!value) return std::optional<TomlSection>();
  if (value->kind == Kind::Table) return std::optional<TomlSection>(TomlSection(fmt::format("[{}]", key), *value));
  return bad(key, fmt::format("{} must be a section", key)).help(fmt::format("write [{}] on a line of its own", key));
}

Result<std::vector<TomlSection>> TomlSection::sections(std::string_view key) const {
  const TomlValue* value = table_->find(key);
  std::vector<TomlSection> out;
  if (!value) return out;
  if (value->kind == Kind::Table) return std::vector{TomlSection(fmt::format("[{}]", key), *value)};
  for (const TomlValue& item : value->items)
    if (item.kind == Kind::Table) out.emplace_back(fmt::format("[[{}]]", key), item);
  if (value->kind == Kind::List && !out.empty() && out.size() == value->items.size()) return out;
  return bad(key, fmt::format("{} must be sections", key))
      .help(fmt::format("write [[{}]] on a line of its own before the keys of each", key));
}

Result<std::optional<size_t>> TomlSection::word_index(std::string_view key,
                                                      const std::vector<std::string>& known) const {
  PIPER_TRY(const auto word, text(key));
  if (!word) return std::optional<size_t>();
  const auto found = std::find(known.begin(), known.end(), *word);
  if (found != known.end()) return std::optional(static_cast<size_t>(found - known.begin()));
  return bad(key, fmt::format("unknown {} \"{}\"", key, *word)).help(did_you_mean(*word, known));
}

}  // namespace piper
