#include "schedule/load_schedule.h"

#include "base/read_file.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"

namespace piper {

Result<Schedule> load_schedule(const std::string& path) {
  PIPER_TRY(const SourceFilePtr file, read_file(path, "schedule"));
  return path.ends_with(".json") ? parse_json_schedule(file) : parse_schedule(file);
}

}  // namespace piper
