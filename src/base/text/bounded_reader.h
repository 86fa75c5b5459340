// What the text forms of DAGs and plans have in common: numbers, references and lists of devices. Everything is
// bounded, so that a short text never makes a large table.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/device_list.h"
#include "base/text/scanner.h"

namespace piper {

/// The most devices a text may name.
constexpr int most_devices_in_text = 1 << 20;

/// Names in the order of their declaration, and where each stands.
class NameTable {
 public:
  void add(const std::string& name);
  /// The first with this name, or -1.
  int find(const std::string& name) const;
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, int> first_;
};

/// A name for parts of the batch.
struct DimText {
  std::string name;
  int parts = 1;
};

/// A scanner whose numbers and references are checked: bad syntax is E101, what is out of bounds is `code`.
class BoundedReader {
 public:
  using ReadPart = std::function<Checked()>;
  struct Option {
    std::string_view key;
    ReadPart read;
  };

  BoundedReader(Scanner scanner, ErrorCode code) : in(std::move(scanner)), code_(code) {}

  Diagnostic wrong(SourceRange where, std::string message) const;
  /// A whole number from `low` to `high`; `what` names it in messages.
  Result<int64_t> number(std::string_view what, int64_t low, int64_t high);
  /// `g12`: the letter, then an index below `count`.
  Result<int> reference(char letter, std::string_view what, size_t count);
  /// The number that a line must carry because so many stand before it.
  Checked numbered(std::string_view what, size_t before);
  Checked numbered(char letter, std::string_view what, size_t before);
  /// One of the names, perhaps with `@index` where an earlier one is equal.
  Result<int> named(const NameTable& known, std::string_view what);
  /// `[0..3, 8]`: at least one device; all lists of one text together have at most 2^24.
  Result<DeviceList> devices();
  /// One of these words; its place among them.
  Result<int> one_of(const std::vector<std::string>& words, std::string_view what);
  /// `mb=1 part=0`: all dims in their order, or none (-1); `whole` if there are no dims.
  Result<int> slice(const std::vector<DimText>& dims);
  /// `(item, item)`, perhaps empty.
  Checked list(const ReadPart& item);
  /// `key=value …` up to the end of the line, each at most once.
  Checked options(std::vector<Option> known);

  Scanner in;

 private:
  Checked add_range(DeviceList& list);
  bool is_dim(const DimText& dim) const;

  ErrorCode code_;
  size_t devices_left_ = size_t{1} << 24;
};

/// The names as references that BoundedReader::named reads back: `x`, or `x@7` if an earlier one is equal.
std::vector<std::string> references_to(const std::vector<std::string>& names);

}  // namespace piper
