#include "cost/quantity.h"

#include <charconv>
#include <cmath>

namespace piper {
namespace {

struct Unit {
  Quantity quantity;
  std::string_view name;
  double factor;
};
constexpr Unit all_units[] = {
    {Quantity::Rate, "B/s", 1},          {Quantity::Rate, "KB/s", 1e3},        {Quantity::Rate, "MB/s", 1e6},
    {Quantity::Rate, "GB/s", 1e9},       {Quantity::Rate, "TB/s", 1e12},       {Quantity::Rate, "Mbit/s", 1e6 / 8},
    {Quantity::Rate, "Gbit/s", 1e9 / 8}, {Quantity::Rate, "Tbit/s", 1e12 / 8}, {Quantity::Seconds, "s", 1},
    {Quantity::Seconds, "ms", 1e-3},     {Quantity::Seconds, "us", 1e-6},      {Quantity::Seconds, "ns", 1e-9},
    {Quantity::Compute, "GFLOPS", 1e9},  {Quantity::Compute, "TFLOPS", 1e12},  {Quantity::Compute, "PFLOPS", 1e15},
};

}  // namespace

std::optional<double> parse_quantity(Quantity quantity, std::string_view text) {
  double number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc()) return std::nullopt;
  const std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  for (const Unit& unit : all_units)
    if (unit.quantity == quantity && unit.name == suffix && std::isfinite(number * unit.factor))
      return number * unit.factor;
  return std::nullopt;
}

std::string_view example(Quantity quantity) {
  constexpr std::string_view examples[] = {"\"450GB/s\"", "\"4us\"", "\"989TFLOPS\""};
  return examples[static_cast<int>(quantity)];
}

std::string_view plain_unit(Quantity quantity) {
  constexpr std::string_view names[] = {"bytes per second", "seconds", "operations per second"};
  return names[static_cast<int>(quantity)];
}

std::string_view units(Quantity quantity) {
  constexpr std::string_view names[] = {"B/s, KB/s, MB/s, GB/s, TB/s (bytes) and Mbit/s, Gbit/s, Tbit/s (bits)",
                                        "s, ms, us, ns", "GFLOPS, TFLOPS, PFLOPS"};
  return names[static_cast<int>(quantity)];
}

}  // namespace piper
