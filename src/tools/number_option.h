// Numbers that options take: the text is one to its last character, and in the range.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.h"

namespace piper {

template <class Number>
CLI::Validator number_in(Number least, Number most, const char* kind) {
  const std::string range = fmt::format("{} from {} to {}", kind, least, most);
  return {[=](const std::string& text) {
            Number value{};
            const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = problem == std::errc() && end == text.data() + text.size() && value >= least &&
                              value <= most;  // both are false of NaN
            return good ? "" : fmt::format("{} is no {}", text, range);
          },
          ""};
}

inline CLI::Validator whole_number(int64_t least, int64_t most) {
  return number_in(least, most, "whole number");
}

inline CLI::Validator any_number(double least, double most) {
  return number_in(least, most, "number");
}

/// `example`: two sizes, for the message.
inline CLI::Option* add_size(CLI::App& app, const std::string& option, const std::string& help,
                             const std::string& example, std::function<void(int64_t)> take) {
  return app
      .add_option_function<std::string>(
          option, [take = std::move(take)](const std::string& text) { take(*parse_bytes(text)); }, help)
      ->check([example](const std::string& text) {
        return parse_bytes(text).value_or(0) > 0 ? "" : fmt::format("{} is no size such as {}", text, example);
      });
}

}  // namespace piper
