#include "capture/record/annotate.h"

#include <utility>

namespace piper {
namespace {

thread_local ScopeListener* listener = nullptr;

}  // namespace

annotate::annotate(std::string_view name, ScopeAttributes attributes) {
  if (listener) listener->enter(name, attributes);
}
annotate::~annotate() {
  if (listener) listener->leave();
}

ListenToScopes::ListenToScopes(ScopeListener& to) : previous_(std::exchange(listener, &to)) {}
ListenToScopes::~ListenToScopes() {
  listener = previous_;
}

}  // namespace piper
