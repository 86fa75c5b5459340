#include "checkpoint/unique_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "checkpoint/problems.h"

namespace piper {
namespace {

using Json = nlohmann::json;

constexpr int deepest_json = 16;

/// What the library passes on as it parses: the names of every object that is open.
class Names {
 public:
  std::string problem;

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (depth > deepest_json && problem.empty()) problem = fmt::format("is nested more than {} deep", deepest_json);
    if (event != Json::parse_event_t::key || open_.empty()) return problem.empty();
    const auto& key = parsed.get_ref<const std::string&>();
    if (!open_.back().insert(key).second && problem.empty()) problem = fmt::format("names \"{}\" twice", key);
    return problem.empty();
  }

 private:
  std::vector<std::set<std::string>> open_;
};

}  // namespace

Result<Json> parse_json_object(const std::string& file, std::string_view what, std::string_view text) {
  Names names;
  Json json;
  try {
    json = Json::parse(text, std::ref(names));
  } catch (const Json::exception&) {
    return damaged(file, fmt::format("{} is not JSON", what));
  }
  if (!names.problem.empty()) return damaged(file, fmt::format("{} {}", what, names.problem));
  if (!json.is_object()) return damaged(file, fmt::format("{} is no JSON object", what));
  return json;
}

}  // namespace piper
