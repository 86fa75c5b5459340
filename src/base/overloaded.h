// Exhaustive visits: std::visit(overloaded{…}, variant) without a default.
#pragma once

namespace piper {

template <class... Ts>
struct overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
overloaded(Ts...) -> overloaded<Ts...>;

}  // namespace piper
