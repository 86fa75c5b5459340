#include "schedule/load_schedule.h"

#include "base/read_file.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"

namespace piper {

Result<Schedule> load_schedule(const std::string& path) {
  auto file = read_file(path, "schedule");
  if (!file) return std::move(file.error()).help("give a schedule as text, or as JSON in a file that ends in .json");
  return path.ends_with(".json") ? parse_json_schedule(*file) : parse_schedule(*file);
}

}  // namespace piper
