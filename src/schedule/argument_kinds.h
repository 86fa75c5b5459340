// How an argument of a directive is written, with its limits. Read by argument_reader.h, written by print_argument.h.
#pragma once

#include <array>
#include <string_view>

namespace piper::kind {

struct Integer {  // zero=1
  static constexpr std::string_view name = "whole";
  int low = 0;
  int high = 0;
  bool required = false;
};
struct IntegerOr {  // distance=2; distance=all: no number
  static constexpr std::string_view name = "whole or word";
  std::string_view word;
  int low = 0;
  int high = 0;
};
struct Name {  // stream=dp
  static constexpr std::string_view name = "name";
};
struct Bytes {  // bucket=25MB
  static constexpr std::string_view name = "bytes";
};
struct Load {  // buffer=1.5; none: 0
  static constexpr std::string_view name = "decimal";
};
struct Integers {  // at=[1, 3..5]
  static constexpr std::string_view name = "wholes";
  bool required = false;
};
template <size_t n>
struct Choice {  // shape=v
  static constexpr std::string_view name = "choice";
  std::array<std::string_view, n> words;  // of the enumerators
};
struct Flag {  // vocabulary=on
  static constexpr std::string_view name = "flag";
};
template <size_t n>
struct FlagOr : Choice<n> {  // sequence=on, sequence=gather; the first words are off and on
  static constexpr std::string_view name = "flag or word";
};
struct Seeds {  // parameters="*.wo: 1, *.w_down: 1"
  static constexpr std::string_view name = "seeds";
};
struct Selected {  // {layer=0..3}
  static constexpr std::string_view name = "filter";
  std::string_view what;  // in messages
};
struct Where {  // devices=[0, 1] | [2, 3]; mesh={pp=0}; along=dp. The name of the row lists those that are accepted
  static constexpr std::string_view name = "where";
};
struct Count {  // devices(4)
  static constexpr std::string_view name = "count";
  int low = 0;
  int high = 0;
};
struct File {  // use file("zb.csv")
  static constexpr std::string_view name = "file";
};
struct Axes {  // mesh(pp=2, dp=4)
  static constexpr std::string_view name = "axes";
  int low = 0;
  int high = 0;
};
struct Elements {  // order({mb=0, pass=F}, [{mb=1, pass=F}, {mb=0, pass=B}])
  static constexpr std::string_view name = "elements";
};

/// One of these words.
template <size_t n>
constexpr Choice<n> choice(const std::array<std::string_view, n>& words) {
  return {words};
}
template <class... Words>
constexpr auto choice(Words... words) {
  return Choice<sizeof...(words)>{{words...}};
}

template <size_t n>
constexpr FlagOr<n> flag_or(const std::array<std::string_view, n>& words) {
  return {{words}};
}

/// Whether it is written as NAME=VALUE.
template <class Kind>
inline constexpr bool is_named = true;
template <>
inline constexpr bool is_named<Selected> = false;
template <>
inline constexpr bool is_named<Where> = false;
template <>
inline constexpr bool is_named<Count> = false;
template <>
inline constexpr bool is_named<File> = false;
template <>
inline constexpr bool is_named<Axes> = false;
template <>
inline constexpr bool is_named<Elements> = false;

}  // namespace piper::kind
