#include "timelines/load_timeline.h"

#include <fmt/format.h>

#include "base/read_file.h"
#include "schedule/json_schedule.h"
#include "schedule/schedule_text.h"
#include "timelines/csv.h"
#include "timelines/from_schedule.h"
#include "timelines/notation.h"
#include "timelines/validate_actions.h"

namespace piper {
namespace {

enum class Format { Csv, Notation, Json, Schedule };

Format format_of(const SourceFile& file) {
  if (file.name.ends_with(".csv")) return Format::Csv;
  if (file.name.ends_with(".json")) return Format::Json;
  if (file.name.ends_with(".piper")) return Format::Schedule;
  const size_t first = file.text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && file.text[first] == '[') return Format::Json;
  return file.text.find(',') != std::string::npos ? Format::Csv : Format::Notation;
}

Result<ParsedTimeline> read(const SourceFilePtr& file) {
  switch (format_of(*file)) {
    case Format::Csv:
      return parse_csv_actions(file);
    case Format::Notation:
      return parse_notation(file);
    case Format::Json: {
      PIPER_TRY(const Schedule schedule, parse_json_schedule(file));
      return timeline_of_orders(schedule, file);
    }
    case Format::Schedule: {
      PIPER_TRY(const Schedule schedule, parse_schedule(file));
      return timeline_of_orders(schedule, file);
    }
  }
  internal_error("a timeline has a format");
}

}  // namespace

Result<ParsedTimeline> parse_timeline(const SourceFilePtr& file) {
  PIPER_TRY(ParsedTimeline parsed, read(file));
  PIPER_CHECK(validate(parsed));
  return parsed;
}

Result<ParsedTimeline> load_timeline(const std::string& path) {
  PIPER_TRY(const SourceFilePtr file, read_file(path, "timeline"));
  return parse_timeline(file);
}

}  // namespace piper
