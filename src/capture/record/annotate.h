// Marks regions of a model: `auto scope = annotate("layer");` until the end of the block. Costs nothing outside
// capture.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper {

/// What the author of a model says about a region besides its name.
struct ScopeAttributes {
  /// The region works on values [experts, capacity, ...], whose first dimension has this size: it can be sharded. Or
  /// on rows that are sorted by expert (capture/experts): it cannot.
  int64_t experts = 0;
};

/// Scopes nest; instances of one name are numbered inside the enclosing instance, in order of execution.
class [[nodiscard]] annotate {
 public:
  explicit annotate(std::string_view name, ScopeAttributes attributes = {});
  ~annotate();
  annotate(const annotate&) = delete;
  annotate& operator=(const annotate&) = delete;
};

/// Hears of the scopes that this thread enters and leaves.
class ScopeListener {
 public:
  virtual ~ScopeListener() = default;
  virtual void enter(std::string_view name, const ScopeAttributes& attributes) = 0;
  virtual void leave() = 0;
};

/// While it lives, the scopes of this thread go to the listener.
class ListenToScopes {
 public:
  explicit ListenToScopes(ScopeListener& listener);
  ~ListenToScopes();
  ListenToScopes(const ListenToScopes&) = delete;
  ListenToScopes& operator=(const ListenToScopes&) = delete;

 private:
  ScopeListener* previous_;
};

}  // namespace piper
