#include "train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/files_in_use.h"
#include "base/json_string.h"

namespace piper {
namespace {

constexpr int version = 1;
constexpr std::string_view first_words = R"({"format": "piper-metrics")";

std::string quoted(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

/// JSON has no word for numbers that are not finite.
std::string number(double x) {
  return std::isfinite(x) ? fmt::format("{}", x) : "null";
}

Diagnostic cannot_write(const NamedFile& file, int reason) {
  const std::string folder = std::filesystem::path(file.path).parent_path().string();
  return error(ErrorCode::E108, file.where,
               fmt::format("cannot write metrics \"{}\": {}", file.path, std::strerror(reason)))
      .help(reason == ENOENT   ? fmt::format("make the folder \"{}\" first", folder)
            : reason == ENOSPC ? "free some space, or name a file on another disk"
                               : "");
}

/// What earlier runs have left in the file. Only where that are metrics, something is added to it.
struct Earlier {
  bool metrics = true;  // or nothing
  bool whole = true;    // the last line has its end
};
Earlier look_into(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return {};
  std::ifstream in(path, std::ios::binary);
  std::string first(first_words.size(), '\0');
  in.read(first.data(), static_cast<std::streamsize>(first.size()));
  in.clear();
  in.seekg(-1, std::ios::end);
  return {first == first_words, in.get() == '\n'};
}

}  // namespace

std::string print_json(const RunDescription& run) {
  return fmt::format(R"({}, "version": {}, "model": {}, "schedule": {}, "plan_hash": {}, "parameters": {}, )"
                     R"("devices": {}, "batch": {}, "sequence": {}, "steps": {}, "seed": {}}})"
                     "\n",
                     first_words, version, quoted(run.model), run.schedule.empty() ? "null" : quoted(run.schedule),
                     quoted(run.plan_hash), run.parameters, run.devices, run.batch, run.sequence, run.steps, run.seed);
}

std::string print_json(const StepMetrics& step) {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "gradient_norm": {}, "learning_rate": {}, "seconds": {}, "tokens": {}, )"
      R"("tokens_per_second": {}, "skipped": {}}})"
      "\n",
      step.step, number(step.loss), number(step.gradient_norm), number(step.learning_rate), number(step.seconds),
      step.tokens, number(step.tokens_per_second()), step.skipped);
}

Result<MetricsFile> MetricsFile::create(NamedFile file, const RunDescription& run) {
  if (auto good = check_not_in_use(file.path); !good) {
    good.error().where = file.where;
    return std::move(good.error());
  }
  const Earlier earlier = look_into(file.path);
  if (!earlier.metrics)
    return error(ErrorCode::E108, file.where,
                 fmt::format("cannot write metrics \"{}\": there is something else in it", file.path))
        .help("name another file; metrics are only added to metrics");
  MetricsFile metrics(std::move(file));
  metrics.file_.reset(std::fopen(metrics.name_.path.c_str(), "ab"));
  if (!metrics.file_) return cannot_write(metrics.name_, errno);
  PIPER_CHECK(metrics.write((earlier.whole ? "" : "\n") + print_json(run)));
  return metrics;
}

Checked MetricsFile::add(const StepMetrics& step) {
  return write(print_json(step));
}

Checked MetricsFile::write(const std::string& line) {
  const bool whole = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!whole || std::fflush(file_.get()) != 0) return cannot_write(name_, errno);
  return Ok{};
}

}  // namespace piper
