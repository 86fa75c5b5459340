#include "train/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/files_in_use.h"
#include "base/json_string.h"
#include "base/time_text.h"
#include "model/analytic/model_config.h"

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

/// `, "metric.aux_loss": 1.5, "expert_load": [[0.5, 0.5]]`
std::string further(const ReportedMetrics& reported) {
  std::string out;
  for (const NamedScalar& of : reported.named)
    out += fmt::format(", {}: {}", quoted("metric." + of.name), number(of.value));
  if (reported.expert_load.empty()) return out;
  std::vector<std::string> layers;
  for (const std::vector<double>& layer : reported.expert_load) {
    std::vector<std::string> shares;
    for (const double share : layer) shares.push_back(number(share));
    layers.push_back(fmt::format("[{}]", fmt::join(shares, ", ")));
  }
  return out + fmt::format(", \"expert_load\": [{}]", fmt::join(layers, ", "));
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

/// The greatest over the mean.
double greatest_load(const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  return *std::ranges::max_element(shares) * static_cast<double>(shares.size()) / sum;
}
/// In relation to that of equal shares.
double entropy(const std::vector<double>& shares) {
  if (shares.size() == 1) return 1;
  double out = 0;
  for (const double share : shares) out -= share > 0 ? share * std::log(share) : 0;
  return out / std::log(static_cast<double>(shares.size()));
}

}  // namespace

ReportedMetrics reported_metrics(const std::vector<std::string>& names, const std::vector<double>& values) {
  ReportedMetrics out;
  std::string_view last;  // what the names of a layer begin with
  for (size_t m = 0; m < names.size(); ++m) {
    if (!names[m].starts_with(expert_load_metric)) {
      out.named.push_back({names[m], values[m]});
      continue;
    }
    const std::string_view layer = std::string_view(names[m]).substr(0, names[m].rfind('.'));
    if (layer != last) out.expert_load.emplace_back();
    out.expert_load.back().push_back(values[m]);
    last = layer;
  }
  if (out.expert_load.empty()) return out;
  double greatest = 0, least = 1;
  for (const std::vector<double>& layer : out.expert_load) {
    greatest = std::max(greatest, greatest_load(layer));
    least = std::min(least, entropy(layer));
  }
  out.named.push_back({"expert_load_max", greatest});
  out.named.push_back({"expert_load_entropy", least});
  return out;
}

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
      number(step.data_seconds), step.peak_bytes, further(step.reported));
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
  for (const NamedScalar& of : step.reported.named) out.push_back({"metric." + of.name, of.value});
  return out;
}

std::vector<NamedScalar> scalars_of(const EvaluationMetrics& evaluation) {
  std::vector<NamedScalar> out = {{"evaluation.loss", evaluation.loss},
                                  {"evaluation.perplexity", evaluation.perplexity}};
  for (const NamedScalar& of : evaluation.reported.named) out.push_back({"evaluation.metric." + of.name, of.value});
  return out;
}

std::string print_json(const EvaluationMetrics& evaluation) {
  return fmt::format(
      R"({{"evaluation": {{"steps": {}, "loss": {}, "perplexity": {}, "batches": {}, "tokens": {}, "seconds": {}{}{}}}}})"
      "\n",
      evaluation.steps, number(evaluation.loss), number(evaluation.perplexity), evaluation.batches, evaluation.tokens,
      number(evaluation.seconds), further(evaluation.reported), further(evaluation.samples));
}

std::string print_line(const EvaluationMetrics& evaluation) {
  std::string named;
  for (const NamedScalar& of : evaluation.reported.named) named += fmt::format(", {} {:.4g}", of.name, of.value);
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
