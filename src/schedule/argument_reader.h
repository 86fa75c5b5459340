// Turns the arguments of a directive into its members, or into a diagnostic: one function for each kind of argument.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/argument_kinds.h"
#include "schedule/arguments.h"

namespace piper {

/// Takes arguments by name; what is left at the end is an error. The first wrong argument is kept as the error.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view verb, std::vector<ParsedArgument> arguments, SourceRange where);

  /// A word without a name that must be this one, as in split(batch, …).
  void keyword(std::string_view word);

  /// Takes the argument `name`; if it is not given, `value` stays as it is.
  void read(std::string_view name, const kind::Integer& kind, std::optional<int>& value);
  void read(std::string_view name, const kind::Integer& kind, int& value);
  void read(std::string_view name, const kind::IntegerOr& kind, std::optional<int>& value);
  void read(std::string_view name, const kind::Name&, std::string& value);
  void read(std::string_view name, const kind::Bytes&, int64_t& value);
  void read(std::string_view name, const kind::Load&, int64_t& value);
  void read(std::string_view name, const kind::Integers& kind, std::vector<int>& value);
  void read(std::string_view name, const kind::Flag&, bool& value);
  void read(std::string_view name, const kind::Seeds&, std::vector<ShardSeed>& value);
  template <size_t n, class Enum>
  void read(std::string_view name, const kind::Choice<n>& kind, Enum& value) {
    if (const auto position = choice(name, {kind.words.begin(), kind.words.end()})) value = Enum(*position);
  }
  /// Those written without a name.
  void read(std::string_view name, const kind::Selected& kind, Filter& value);
  void read(std::string_view name, const kind::Where&, DeviceChoice& value);
  void read(std::string_view name, const kind::Count& kind, int& value);
  void read(std::string_view name, const kind::File&, std::string& value);
  void read(std::string_view name, const kind::Axes& kind, std::vector<MeshAxis>& value);
  void read(std::string_view name, const kind::Elements&, std::vector<OrderElement>& value);

  /// Says what was wrong first, also about arguments nobody asked for.
  Checked finish();

 private:
  std::optional<ParsedArgument> take(std::string_view name);
  std::optional<ParsedArgument> take_positional();
  void fail(Diagnostic problem);
  std::optional<int> choice(std::string_view name, const std::vector<std::string>& words);
  std::optional<int> to_integer(const ParsedArgument& argument, int low, int high);
  std::optional<std::vector<int>> to_integers(const ParsedArgument& argument);
  std::optional<OrderElement> to_element(ParsedArgument argument);

  std::string verb_;
  std::vector<ParsedArgument> arguments_;
  SourceRange where_;
  std::vector<std::string> known_;
  std::optional<Diagnostic> problem_;
};

}  // namespace piper
