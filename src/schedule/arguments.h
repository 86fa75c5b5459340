// The arguments of one directive as written, and a reader that turns them into typed fields or a diagnostic.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text/scanner.h"
#include "schedule/schedule.h"

namespace piper {

/// One argument: a word or number (`text`), a filter, a list, a range of numbers, or lists separated by `|`.
struct Argument {
  enum class Kind { Text, Filter, List, Range, Alternatives };
  Kind kind = Kind::Text;
  std::string key;  // empty: positional
  std::string text;
  Filter filter;
  IndexRange range;
  std::vector<Argument> items;
  SourceRange where;
};

/// `verb(argument, key=argument, …)` from the opening bracket on.
Result<std::vector<Argument>> parse_arguments(Scanner& in);

/// Where they stand, for errors that are found later.
ArgumentPlaces places_of(const std::vector<Argument>& arguments);

/// Takes arguments by name; what is left at the end is an error. The first wrong argument is kept as the error.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view verb, std::vector<Argument> arguments, SourceRange where);

  /// Positional arguments, in order.
  Filter filter(std::string_view what);
  /// A positional word that must be this one, as in split(batch, …).
  void keyword(std::string_view word);
  std::string required_word(std::string_view what);

  std::optional<int> integer(const std::string& key, int low, int high);
  int required_integer(const std::string& key, int low, int high);
  /// A number, `usual` if it is not given, or this word: empty.
  std::optional<int> integer_unless(const std::string& key, std::string_view word, int usual, int low, int high);
  std::optional<std::string> word(const std::string& key);
  /// `"*.wo: 1, *.w_down: 1"`: patterns of names, each with a dimension.
  std::vector<ShardSeed> shard_seeds(const std::string& key);
  std::optional<int64_t> bytes(const std::string& key);
  std::optional<std::vector<int>> integers(const std::string& key);
  /// One of the words; their position.
  std::optional<int> choice(const std::string& key, const std::vector<std::string>& words);
  DeviceChoice devices();
  /// All remaining named arguments with integer values, as in mesh(pp=2, dp=4).
  std::vector<MeshAxis> named_integers(int low, int high);

  /// Says what was wrong first, also about arguments nobody asked for.
  Checked finish();

 private:
  std::optional<Argument> take(const std::string& key);
  std::optional<Argument> take_positional();
  void fail(Diagnostic problem);
  std::optional<int> to_integer(const Argument& argument, int low, int high);
  std::optional<DeviceList> to_devices(const Argument& argument);

  std::string verb_;
  std::vector<Argument> arguments_;
  SourceRange where_;
  std::vector<std::string> known_;
  std::optional<Diagnostic> problem_;
};

}  // namespace piper
