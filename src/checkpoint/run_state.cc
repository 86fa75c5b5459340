#include "checkpoint/run_state.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_string.h"
#include "checkpoint/problems.h"
#include "checkpoint/unique_json.h"

namespace piper {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "piper-checkpoint";
/// Before and behind the eight digits at the end of the file.
constexpr std::string_view before_crc = "  \"crc32\": \"", behind_crc = "\"\n}\n";
constexpr size_t crc_digits = 8;

std::string quoted_text(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

/// The shortest text that reads back as the same bits; JSON has none for what is not finite.
std::string print_double(double value) {
  std::string out = fmt::format("{}", value);
  if (!std::isfinite(value)) return fmt::format("\"{}\"", out);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";  // "-0" would be an integer, without its sign
  return out;
}

uint32_t crc_of_text(std::string_view text) {
  return crc_of(std::as_bytes(std::span(text)));
}

std::string hexadecimal(const BlockSums& sums) {
  std::string out;
  for (const uint32_t sum : sums) out += fmt::format("{:08x}", sum);
  return out;
}

/// The text with zeros for its own sum; nothing if it does not end as it must.
std::optional<std::string> without_crc(std::string_view text) {
  const size_t ending = before_crc.size() + crc_digits + behind_crc.size();
  if (text.size() < ending || !text.substr(text.size() - ending).starts_with(before_crc) || !text.ends_with(behind_crc))
    return std::nullopt;
  std::string out(text);
  out.replace(text.size() - behind_crc.size() - crc_digits, crc_digits, crc_digits, '0');
  return out;
}

/// Members of the object by name and kind. What is wrong first sticks.
class Members {
 public:
  Members(const std::string& file, const Json& object) : file_(file), object_(object) {}

  std::optional<Diagnostic> problem;

  const Json* find(const char* member, bool (Json::*is)() const noexcept, std::string_view kind) {
    const auto found = object_.find(member);
    if (found != object_.end() && (*found.*is)()) return &*found;
    if (!problem) problem = damaged(file_, fmt::format("\"{}\" is missing or no {}", member, kind));
    return nullptr;
  }
  std::string text(const char* member) {
    const Json* found = find(member, &Json::is_string, "text");
    return found ? found->get<std::string>() : "";
  }
  int64_t count(const char* member) {
    const Json* found = find(member, &Json::is_number_unsigned, "count");
    if (found && found->get<uint64_t>() <= INT64_MAX) return found->get<int64_t>();
    if (!problem) problem = damaged(file_, fmt::format("\"{}\" is too large", member));
    return 0;
  }
  double number(const char* member) {
    if (const auto found = object_.find(member); found != object_.end() && found->is_string()) {
      for (const double value : {INFINITY, -INFINITY, NAN, -NAN})
        if (*found == fmt::format("{}", value)) return value;
    }
    const Json* found = find(member, &Json::is_number, "number");
    return found ? found->get<double>() : 0;
  }
  /// Sixteen digits.
  uint64_t hash(const char* member) {
    const std::string digits = text(member);
    uint64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (read.ec == std::errc() && digits == fmt::format("{:016x}", value)) return value;
    if (!problem) problem = damaged(file_, fmt::format("\"{}\" is no hash", member));
    return 0;
  }

 private:
  const std::string& file_;
  const Json& object_;
};

RunState read_state(Members& members) {
  RunState state;
  state.program = members.text("program");
  state.step = members.count("step");
  state.samples = members.count("samples");
  state.updates = members.count("updates");
  if (const Json* seed = members.find("seed", &Json::is_number_unsigned, "count")) state.seed = seed->get<uint64_t>();
  state.learning_rate = members.number("learning_rate");
  state.loss = members.number("loss");
  state.plan = members.hash("plan");
  state.configuration = members.text("configuration");
  if (const Json* extra = members.find("extra", &Json::is_object, "object"))
    for (const auto& [key, value] : extra->items())
      if (value.is_string()) state.extra[key] = value.get<std::string>();
  return state;
}

Result<FileSums> read_sums(const std::string& file, const Json& json) {
  Members members(file, json);
  FileSums out{members.text("name"), members.count("bytes"), {}};
  const std::string digits = members.text("crc32");
  if (members.problem) return *members.problem;
  if (out.name.empty() || out.name.find('/') != std::string::npos || out.name == "." || out.name == "..")
    return damaged(file, fmt::format("\"{}\" is no name of a file", out.name));
  if (static_cast<int64_t>(digits.size()) != blocks_in(out.bytes) * static_cast<int64_t>(crc_digits))
    return damaged(file, fmt::format("{} has sums of other blocks than its {} bytes have", out.name, out.bytes));
  for (size_t at = 0; at < digits.size(); at += crc_digits) {
    const char* begin = digits.data() + at;
    uint32_t sum = 0;
    const auto read = std::from_chars(begin, begin + crc_digits, sum, 16);
    if (read.ptr != begin + crc_digits) return damaged(file, fmt::format("a sum of {} is no number", out.name));
    out.blocks.push_back(sum);
  }
  return out;
}

}  // namespace

std::string print(const PiperJson& json) {
  const RunState& state = json.state;
  std::string out = fmt::format("{{\n  \"format\": \"{}\",\n  \"version\": {},\n", format_name, checkpoint_format);
  const auto add = [&](std::string_view member, const std::string& value) {
    out += fmt::format("  \"{}\": {},\n", member, value);
  };
  add("program", quoted_text(state.program));
  add("step", fmt::format("{}", state.step));
  add("samples", fmt::format("{}", state.samples));
  add("updates", fmt::format("{}", state.updates));
  add("seed", fmt::format("{}", state.seed));
  add("learning_rate", print_double(state.learning_rate));
  add("loss", print_double(state.loss));
  add("plan", fmt::format("\"{:016x}\"", state.plan));
  add("configuration", quoted_text(state.configuration));
  std::string list;
  for (const auto& [key, value] : state.extra)
    list += fmt::format("{}\n    {}: {}", list.empty() ? "" : ",", quoted_text(key), quoted_text(value));
  add("extra", list.empty() ? "{}" : fmt::format("{{{}\n  }}", list));
  add("block_bytes", fmt::format("{}", block_bytes));
  list.clear();
  for (const FileSums& file : json.files)
    list += fmt::format("{}\n    {{\"name\": {}, \"bytes\": {}, \"crc32\": \"{}\"}}", list.empty() ? "" : ",",
                        quoted_text(file.name), file.bytes, hexadecimal(file.blocks));
  add("files", fmt::format("[{}\n  ]", list));
  const size_t digits = out.size() + before_crc.size();
  out += fmt::format("{}{}{}", before_crc, std::string(crc_digits, '0'), behind_crc);
  return out.replace(digits, crc_digits, fmt::format("{:08x}", crc_of_text(out)));
}

Result<PiperJson> parse_piper_json(const std::string& file, std::string_view text) {
  PIPER_TRY(const Json json, parse_json_object(file, "it", text));
  if (json.value("format", Json()) != format_name) return not_a_checkpoint(file, "its format is another");
  if (json.value("version", Json()) != checkpoint_format)
    return not_a_checkpoint(file, fmt::format("its version is {}; this program reads version {}",
                                              json.value("version", Json()).dump(), checkpoint_format))
        .help("use the piper that wrote it, or a newer one");
  const auto zeros = without_crc(text);
  const std::string_view digits = text.substr(text.size() - std::min(text.size(), behind_crc.size() + crc_digits));
  if (!zeros || digits.substr(0, crc_digits) != fmt::format("{:08x}", crc_of_text(*zeros)))
    return damaged(file, "its bytes do not have the sum at its end");
  Members members(file, json);
  PiperJson out{read_state(members), {}};
  const Json* files = members.find("files", &Json::is_array, "list");
  if (members.count("block_bytes") != block_bytes && !members.problem)
    return damaged(file, fmt::format("its blocks do not have {} bytes", block_bytes));
  if (members.problem) return *members.problem;
  for (const Json& entry : *files) {
    if (!entry.is_object()) return damaged(file, "a file in its list is no object");
    PIPER_TRY(FileSums sums, read_sums(file, entry));
    out.files.push_back(std::move(sums));
  }
  return out;
}

}  // namespace piper
