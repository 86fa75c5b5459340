// What names a message: the same at both ends, unique among those in progress.
#pragma once

#include <compare>
#include <cstdint>

namespace piper {

struct MessageKey {
  int32_t world = 0;
  int32_t group = -1;        // -1: a transfer between two
  int32_t from = 0, to = 0;  // devices; outside of worlds ranks
  int32_t step = 0;          // of an exchange that takes several
  int64_t sequence = 0;      // of the exchange

  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

/// The members of an exchange bring different sizes: how both carriers say it.
inline constexpr char different_sizes[] = "the members of an exchange bring different sizes";

}  // namespace piper
