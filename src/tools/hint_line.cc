#include "tools/hint_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/time_text.h"
#include "schedule/schedule_text.h"

namespace piper {
namespace {

/// As a shell takes it for one word.
std::string word(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("-_./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// Without what only `piper check` knows.
std::string command_to_see(const Hint& hint, const std::vector<std::string>& command_line) {
  std::string out = "piper simulate";
  for (size_t i = 2; i < command_line.size(); ++i) {
    const std::string& given = command_line[i];
    if (given == "--processes") ++i;
    if (!given.starts_with("--processes") && given != "--checkpoint") out += " " + word(given);
  }
  for (const Directive& directive : hint.instead) out += " --with " + word(print(directive.body));
  return out;
}

}  // namespace

std::string hint_lines(const std::vector<Hint>& hints, double seconds, const std::vector<std::string>& command_line) {
  std::string out;
  for (const Hint& hint : hints)
    out += fmt::format("hint: {} instead of {}, {}: {}\n", human_seconds(hint.seconds), human_seconds(seconds),
                       hint.why, command_to_see(hint, command_line));
  return out;
}

void add_hints_to(nlohmann::ordered_json& out, const std::vector<Hint>& hints) {
  for (const Hint& hint : hints) {
    nlohmann::ordered_json entry = {{"seconds", hint.seconds}, {"why", hint.why}};
    for (const Directive& directive : hint.instead) entry["instead"].push_back(print(directive.body));
    out["hints"].push_back(std::move(entry));
  }
}

}  // namespace piper
