// Either a value or the diagnostic that says why there is none.
#pragma once

#include <utility>
#include <variant>

#include "base/diagnostic.h"
#include "base/invariant.h"

namespace piper {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Diagnostic problem) : state_(std::in_place_index<1>, std::move(problem)) {}

  explicit operator bool() const { return state_.index() == 0; }

  T& operator*() & { return value(); }
  const T& operator*() const& { return const_cast<Result*>(this)->value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<Result*>(this)->value(); }

  Diagnostic& error() {
    invariant(!*this, "a Result with a value has no error");
    return std::get<1>(state_);
  }
  const Diagnostic& error() const { return const_cast<Result*>(this)->error(); }

 private:
  T& value() {
    invariant(bool(*this), "a Result with an error has no value");
    return std::get<0>(state_);
  }

  std::variant<T, Diagnostic> state_;
};

/// A check that found nothing wrong.
struct Ok {};
using Checked = Result<Ok>;

}  // namespace piper

/// `PIPER_TRY(auto x, f());` binds the value of a Result, or returns its diagnostic to the caller.
#define PIPER_TRY(binding, expression) PIPER_TRY_AS(PIPER_CONCAT(result_, __LINE__), binding, expression)
/// `PIPER_CHECK(f());` returns the diagnostic to the caller if there is one.
#define PIPER_CHECK(expression) \
  if (auto checked = (expression); !checked) return std::move(checked.error())

#define PIPER_CONCAT_(a, b) a##b
#define PIPER_CONCAT(a, b) PIPER_CONCAT_(a, b)
#define PIPER_TRY_AS(result, binding, expression) \
  auto result = (expression);                     \
  if (!result) return std::move(result.error());  \
  binding = *std::move(result)
