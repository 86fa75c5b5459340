#include "base/text/toml_tree.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/text/toml_brackets.h"
#include "base/text/toml_mistake.h"

namespace piper {
namespace {

constexpr size_t largest_toml = 1u << 20;
constexpr int most_nested = 200;  // the library calls itself for every level

/// toml++ counts lines and code points from 1; a SourceRange counts bytes.
int offset_of(std::string_view text, const toml::source_position& at) {
  size_t offset = 0;
  for (toml::source_index line = 1; line < at.line && offset < text.size(); ++line)
    offset = std::min(text.find('\n', offset), text.size() - 1) + 1;
  const auto continues = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  for (toml::source_index column = 1; column < at.column && offset < text.size() && text[offset] != '\n'; ++column) do
      ++offset;
    while (offset < text.size() && continues(offset));
  return static_cast<int>(offset);
}

SourceRange place_of(const SourceFilePtr& file, const toml::source_region& region) {
  if (!region.begin) return {file, 0, 1};
  const int begin = offset_of(file->text, region.begin);
  const int end = region.end ? offset_of(file->text, region.end) : begin;
  return {file, begin, std::max(begin + 1, end)};
}

TomlValue convert(const SourceFilePtr& file, const toml::node& node) {
  TomlValue out;
  out.place = place_of(file, node.source());
  if (const auto* table = node.as_table()) {
    for (const auto& [key, member] : *table) {
      out.items.push_back(convert(file, member));
      out.items.back().key = key.str();
      out.items.back().key_place = place_of(file, key.source());
    }
    std::stable_sort(out.items.begin(), out.items.end(),
                     [](const TomlValue& a, const TomlValue& b) { return a.key_place.begin < b.key_place.begin; });
  } else if (const auto* list = node.as_array()) {
    out.kind = TomlValue::Kind::List;
    for (const toml::node& item : *list) out.items.push_back(convert(file, item));
  } else if (const auto text = node.value_exact<std::string>()) {
    out.kind = TomlValue::Kind::Text;
    out.text = *text;
  } else if (const auto integer = node.value_exact<int64_t>()) {
    out.kind = TomlValue::Kind::Integer;
    out.integer = *integer;
    out.number = static_cast<double>(*integer);
  } else if (const auto number = node.value_exact<double>()) {
    out.kind = TomlValue::Kind::Number;
    out.number = *number;
  } else if (const auto on = node.value_exact<bool>()) {
    out.kind = TomlValue::Kind::Switch;
    out.on = *on;
  } else {
    out.kind = TomlValue::Kind::Time;
  }
  return out;
}

}  // namespace

const TomlValue* TomlValue::find(std::string_view member) const {
  for (const TomlValue& item : items)
    if (item.key == member) return &item;
  return nullptr;
}

Result<TomlValue> parse_toml(const SourceFilePtr& file) {
  if (file->text.size() > largest_toml)
    return error(ErrorCode::E113, {file, 0, 1},
                 fmt::format("the file has {} bytes; the limit for TOML is {}", file->text.size(), largest_toml))
        .help("is it the file you meant? a configuration takes a few lines");
  if (const auto deep = nested_deeper_than(file->text, most_nested)) {
    const int at = static_cast<int>(*deep);
    return error(ErrorCode::E111, {file, at, at + 1}, fmt::format("nested more than {} levels deep", most_nested))
        .help("no section needs more than two levels");
  }
  try {
    return convert(file, toml::parse(file->text));
  } catch (const toml::parse_error& problem) {
    return toml_mistake(file, place_of(file, problem.source()).begin);
  }
}

}  // namespace piper
