#include "train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/json_string.h"

namespace piper {
namespace {

constexpr int version = 1;

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

}  // namespace

std::string print_json(const RunDescription& run) {
  return fmt::format(
      R"({{"format": "piper-metrics", "version": {}, "model": {}, "schedule": {}, "plan_hash": {}, "parameters": {}, )"
      R"("devices": {}, "batch": {}, "sequence": {}, "steps": {}, "seed": {}}})"
      "\n",
      version, quoted(run.model), run.schedule.empty() ? "null" : quoted(run.schedule), quoted(run.plan_hash),
      run.parameters, run.devices, run.batch, run.sequence, run.steps, run.seed);
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
  MetricsFile metrics(std::move(file));
  metrics.file_.reset(std::fopen(metrics.name_.path.c_str(), "wb"));
  if (!metrics.file_) return cannot_write(metrics.name_, errno);
  PIPER_CHECK(metrics.write(print_json(run)));
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
