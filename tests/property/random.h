// Random choices that are the same on every machine for the same seed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

namespace piper::property {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// 0 … n-1.
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  /// Both ends included.
  int between(int low, int high) { return low + below(high - low + 1); }
  bool percent(int chance) { return below(100) < chance; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int>(from.size())))];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int>(i)))]);
  }

 private:
  std::mt19937_64 engine_;
};

/// The long version of the tests was asked for.
inline bool long_run() {
  const char* set = std::getenv("PIPER_LONG");
  return set && std::string_view(set) == "1";
}

#ifdef PIPER_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// How many random cases. Sanitizers make each several times slower, so a third of them run there.
inline int cases(int usual, int long_version) {
  return long_run() ? long_version : sanitized ? (usual + 2) / 3 : usual;
}

}  // namespace piper::property
