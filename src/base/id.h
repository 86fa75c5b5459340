// Strong ids: an index into one particular table, never mixed up with another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace piper {

/// An index into the table that `Tag` stands for. Default-constructed: absent.
template <class Tag>
struct Id {
  int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(int32_t v) : value(v) {}
  constexpr explicit Id(size_t v) : value(static_cast<int32_t>(v)) {}

  constexpr bool valid() const { return value >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value); }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace piper

template <class Tag>
struct std::hash<piper::Id<Tag>> {
  size_t operator()(piper::Id<Tag> id) const noexcept { return std::hash<int32_t>{}(id.value); }
};
