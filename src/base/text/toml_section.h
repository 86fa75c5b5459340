// One table of a TOML file, asked key by key; every refusal is E111 at the place of the key or value it is about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/toml_tree.h"

namespace piper {

/// What a key that is not there gives is empty; what is there must be of the right kind.
class TomlSection {
 public:
  /// `name` as messages show it: `[model]`, or `the file`. The table outlives the section.
  TomlSection(std::string name, const TomlValue& table) : name_(std::move(name)), table_(&table) {}

  bool has(std::string_view key) const { return table_->find(key) != nullptr; }
  SourceRange place() const { return table_->place; }
  /// The value of a key, or the whole table if it is missing.
  SourceRange place(std::string_view key) const;
  const TomlValue& table() const { return *table_; }
  Diagnostic bad(std::string_view key, std::string message) const;

  /// No other keys than these: "did you mean".
  Checked only(const std::vector<std::string>& known) const;

  Result<std::optional<std::string>> text(std::string_view key) const;
  Result<std::optional<int64_t>> integer(std::string_view key) const;
  /// Whole or not; finite.
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> flag(std::string_view key) const;
  /// `"80GB"`, or bytes without a unit from 1 MB on: `memory = 80` is a forgotten unit.
  Result<std::optional<int64_t>> bytes(std::string_view key) const;
  /// A list of texts, each with its place; also a single text. Nothing if the key is missing.
  Result<std::vector<const TomlValue*>> texts(std::string_view key) const;
  /// A list of finite numbers.
  Result<std::optional<std::vector<double>>> numbers(std::string_view key) const;
  /// The table `[key]`.
  Result<std::optional<TomlSection>> section(std::string_view key) const;
  /// The tables `[[key]]`; also a single `[key]`.
  Result<std::vector<TomlSection>> sections(std::string_view key) const;

  /// One of a few words.
  template <class T>
  Result<std::optional<T>> choice(std::string_view key, const std::vector<std::pair<std::string, T>>& words) const {
    std::vector<std::string> known;
    for (const auto& [word, value] : words) known.push_back(word);
    auto index = word_index(key, known);
    if (!index) return std::move(index.error());
    if (!*index) return std::optional<T>();
    return std::optional<T>(words[**index].second);
  }

 private:
  Result<std::optional<size_t>> word_index(std::string_view key, const std::vector<std::string>& known) const;
  Diagnostic wrong_kind(const TomlValue& value, std::string_view what, std::string_view example) const;

  std::string name_;
  const TomlValue* table_;
};

}  // namespace piper
