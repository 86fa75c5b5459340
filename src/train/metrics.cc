#include "train/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/files_in_use.h"
#include "base/json_string.h"
#include "base/time_text.h"

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

std::string number(const std::optional<double>& x) {
  return x ? number(*x) : "null";
}

/// `, "metric.aux_loss": 1.5`
std::string further(const std::vector<NamedScalar>& named) {
  std::string out;
  for (const NamedScalar& of : named) out += fmt::format(", {}: {}", quoted("metric." + of.name), number(of.value));
  return out;
}

/// `, "samples": [{"prompt": "Once", "text": " upon"}]`
std::string further(const std::vector<WrittenText>& samples) {
  std::string out;
  for (const WrittenText& of : samples)
    out +=
        fmt::format(R"({}{{"prompt": {}, "text": {}}})", out.empty() ? "" : ", ", quoted(of.prompt), quoted(of.text));
  return samples.empty() ? "" : fmt::format(", \"samples\": [{}]", out);
}

Diagnostic cannot_write_metrics(const NamedFile& file, int reason) {
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
  return fmt::format(
      R"({}, "version": {}, "model": {}, "schedule": {}, "plan_hash": {}, "parameters": {}, )"
      R"("devices": {}, "batch": {}, "sequence": {}, "steps": {}, "seed": {}, "data": {}, "predicted_seconds": {}}})"
      "\n",
      first_words, version, quoted(run.model), run.schedule.empty() ? "null" : quoted(run.schedule),
      quoted(run.plan_hash), run.parameters, run.devices, run.batch, run.sequence, run.steps, run.seed,
      quoted(run.data), number(run.predicted_seconds));
}

std::string print_json(const StepMetrics& step) {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "gradient_norm": {}, "learning_rate": {}, "seconds": {}, "tokens": {}, )"
      R"("tokens_per_second": {}, "skipped": {}, "mfu": {}, "predicted_seconds": {}, "data_seconds": {}, )"
      R"("peak_bytes": {}{}}})"
      "\n",
      step.step, number(step.loss), number(step.gradient_norm), number(step.learning_rate), number(step.seconds),
      step.tokens, number(step.tokens_per_second()), step.skipped, number(step.mfu), number(step.predicted_seconds),
      number(step.data_seconds), step.peak_bytes, further(step.named));
}

std::vector<NamedScalar> scalars_of(const StepMetrics& step) {
  std::vector<NamedScalar> out = {{"loss", step.loss}};
  if (step.updates) out.push_back({"gradient_norm", step.gradient_norm});
  out.push_back({"learning_rate", step.learning_rate});
  out.push_back({"seconds", step.seconds});
  out.push_back({"tokens_per_second", step.tokens_per_second()});
  out.push_back({"data_seconds", step.data_seconds});
  out.push_back({"peak_bytes", static_cast<double>(step.peak_bytes)});
  if (step.mfu) out.push_back({"mfu", *step.mfu});
  if (step.predicted_seconds) out.push_back({"predicted_seconds", *step.predicted_seconds});
  for (const NamedScalar& of : step.named) out.push_back({"metric." + of.name, of.value});
  return out;
}

std::vector<NamedScalar> scalars_of(const EvaluationMetrics& evaluation) {
  std::vector<NamedScalar> out = {{"evaluation.loss", evaluation.loss},
                                  {"evaluation.perplexity", evaluation.perplexity}};
  for (const NamedScalar& of : evaluation.named) out.push_back({"evaluation.metric." + of.name, of.value});
  return out;
}

std::string print_json(const EvaluationMetrics& evaluation) {
  return fmt::format(
      R"({{"evaluation": {{"steps": {}, "loss": {}, "perplexity": {}, "batches": {}, "tokens": {}, "seconds": {}{}{}}}}})"
      "\n",
      evaluation.steps, number(evaluation.loss), number(evaluation.perplexity), evaluation.batches, evaluation.tokens,
      number(evaluation.seconds), further(evaluation.named), further(evaluation.samples));
}

std::string print_line(const EvaluationMetrics& evaluation) {
  std::string named;
  for (const NamedScalar& of : evaluation.named) named += fmt::format(", {} {:.4g}", of.name, of.value);
  std::string samples;
  for (const WrittenText& of : evaluation.samples)
    samples += fmt::format("  {} -> {}\n", quoted(of.prompt), quoted(of.text));
  return fmt::format("evaluation after {} step{}: loss {:.4f}, perplexity {:.4g}{} ({} batch{})\n{}", evaluation.steps,
                     evaluation.steps == 1 ? "" : "s", evaluation.loss, evaluation.perplexity, named,
                     evaluation.batches, evaluation.batches == 1 ? "" : "es", samples);
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
  if (!metrics.file_) return cannot_write_metrics(metrics.name_, errno);
  PIPER_CHECK(metrics.write((earlier.whole ? "" : "\n") + print_json(run)));
  return metrics;
}

Checked MetricsFile::add(const StepMetrics& step) {
  return write(print_json(step));
}

Checked MetricsFile::add(const EvaluationMetrics& evaluation) {
  return write(print_json(evaluation));
}

Checked MetricsFile::write(const std::string& line) {
  const bool whole = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size();
  if (!whole || std::fflush(file_.get()) != 0) return cannot_write_metrics(name_, errno);
  return Ok{};
}

}  // namespace piper
