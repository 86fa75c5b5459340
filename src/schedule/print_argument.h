// The values of arguments as the text form writes them: one function for each kind of argument.
#pragma once

#include <fmt/format.h>

#include "schedule/fields.h"

namespace piper {

std::string print(const kind::Integer&, int value);
std::string print(const kind::Integer&, const std::optional<int>& value);
std::string print(const kind::IntegerOr& kind, const std::optional<int>& value);
std::string print(const kind::Name&, const std::string& value);
std::string print(const kind::Bytes&, int64_t value);
std::string print(const kind::Load&, int64_t value);
std::string print(const kind::Integers&, const std::vector<int>& value);
std::string print(const kind::Flag&, bool value);
std::string print(const kind::Seeds&, const std::vector<ShardSeed>& value);
template <size_t n, class Enum>
std::string print(const kind::Choice<n>& kind, Enum value) {
  return std::string(kind.words.at(static_cast<size_t>(value)));
}
std::string print(const kind::Selected&, const Filter& value);
std::string print(const kind::Where&, const DeviceChoice& value);
std::string print(const kind::Count&, int value);
std::string print(const kind::File&, const std::string& value);
std::string print(const kind::Axes&, const std::vector<MeshAxis>& value);
std::string print(const kind::Elements&, const std::vector<OrderElement>& value);

/// `zero=1`, or without a name as filters are; empty if there is nothing to write.
template <class Row, class Body>
std::string print_argument(const Row& row, const Body& body) {
  const std::string value = print(row.kind, body.*row.member);
  return kind::is_named<decltype(row.kind)> ? fmt::format("{}={}", row.name, value) : value;
}

/// The argument that this member is: print_argument(&Place::shape, place) is `shape=v`.
template <class Body, class Member>
std::string print_argument(Member Body::*member, const Body& body) {
  std::string out;
  for_each_field<Body>([&](const auto& row) {
    if constexpr (std::is_same_v<decltype(row.member), Member Body::*>)
      if (row.member == member) out = print_argument(row, body);
  });
  return out;
}

}  // namespace piper
