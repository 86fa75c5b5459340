#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/json_string.h"
#include "train/loop/diff/diff.h"

namespace piper {
namespace {

std::string devices_text(const Finding& finding) {
  return finding.devices.empty() ? fmt::format("device {}", finding.device)
                                 : fmt::format("devices {} together", fmt::join(finding.devices, ", "));
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}
std::string number_json(double number) {
  return std::isfinite(number) ? fmt::format("{:.6g}", number) : "null";
}
std::string strings_json(const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) quoted.push_back(json_string(text));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

/// What it should be equal to.
std::string other_side(const DiffReport& report, Finding::What what) {
  switch (what) {
    case Finding::What::Memory:
      return "what was written there: it was used after its end, or by somebody else";
    case Finding::What::Reduction:
      return "what its members put in";
    case Finding::What::Update:
      return "what the optimizer makes of these gradients";
    case Finding::What::Copy:
      return "what was updated";
    default:
      return report.against;
  }
}

std::string title(const DiffReport& report, const FirstDifference& first) {
  return fmt::format("step {}: {} on {} {}\n", first.step, first.what, devices_text(first.finding),
                     report.finite ? "is not finite" : "differs from " + other_side(report, first.finding.what));
}

/// By reason: all are counted, the first are named. JSON has all.
std::string not_compared_text(const DiffReport& report) {
  constexpr size_t named = 4;
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [name, why] : report.not_compared) names[why].push_back(name);
  std::string out;
  for (auto& [why, of] : names) {
    const size_t more = of.size() > named ? of.size() - named : 0;
    of.resize(of.size() - more);
    out += fmt::format("  not compared: {}{}: {}\n", fmt::join(of, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "", why);
  }
  return out;
}

}  // namespace

std::string print(const DiffReport& report) {
  std::string out;
  if (!report.first) {
    out = report.finite ? fmt::format("finite: {} values, weights and gradients of {} step{}\n", report.compared,
                                      report.steps, report.steps == 1 ? "" : "s")
                        : fmt::format("equal to {}: {} values, weights and gradients of {} step{}\n", report.against,
                                      report.compared, report.steps, report.steps == 1 ? "" : "s");
    if (!report.where.empty())
      out += fmt::format("  the largest difference is {:.1e} of the norm: {}\n", report.largest, report.where);
  } else {
    const FirstDifference& first = *report.first;
    const Finding& finding = first.finding;
    const auto line = [&](std::string_view what, const std::string& text) {
      if (!text.empty()) out += fmt::format("  {:<10}  {}\n", what, text);
    };
    out = title(report, first);
    const bool missing = finding.what == Finding::What::Update && !finding.op.valid();
    line("operation", !first.operation.empty() ? first.operation
                      : missing                ? "none: nothing updates it"
                                               : "none: it was so before the step");
    line("read by", first.read_by);
    line("written by", first.written_by);
    line("last right", first.last_right);
    const bool bucket = first.pass.empty();
    line(bucket ? "of" : "chunk",
         first.chunk + (bucket ? "" : ", pass " + first.pass) +
             (first.microbatch.empty() ? "" : ", " + first.microbatch) +
             (finding.first_sample < 0
                  ? ""
                  : fmt::format(", samples {}..{}", finding.first_sample, finding.first_sample + finding.samples - 1)));
    line("operator", first.made_by);
    if (!first.line.empty()) line("schedule", fmt::format("{}: {}", first.line, first.directive));
    if (!report.finite && !missing && finding.what != Finding::What::Memory)
      line("by", fmt::format("at most {:.3g}; {:.3g} of the norm, where {:.3g} is allowed", finding.measure.largest,
                             finding.measure.relative(), finding.tolerance));
    line(report.finite ? "finite" : "agrees", fmt::format("{}", fmt::join(first.agreed, ", ")));
    line(report.finite ? "not finite" : "differs", fmt::format("{}", fmt::join(first.differed, ", ")));
    line("unknown", fmt::format("{}", fmt::join(first.unknown, ", ")));
    if (report.differing > 1)
      out += fmt::format("  {} others of this step {}\n", report.differing - 1,
                         report.finite ? "are not finite either" : "differ too");
  }
  return out + not_compared_text(report);
}

std::string print_json(const DiffReport& report) {
  std::string out = fmt::format(
      "{{\"version\": 1, \"equal\": {}, \"looked_for\": \"{}\", \"against\": {}, \"steps\": {}, \"compared\": {}, "
      "\"differing\": {}",
      report.equal(), report.finite ? "not finite" : "differences",
      report.finite ? "null" : json_string(report.against), report.steps, report.compared, report.differing);
  if (report.first) {
    const FirstDifference& first = *report.first;
    const Finding& finding = first.finding;
    out += fmt::format(
        ", \"first\": {{\"step\": {}, \"what\": {}, \"name\": {}, \"operation\": {}, \"read_by\": {}, "
        "\"written_by\": {}, \"last_right\": {}, \"chunk\": {}, "
        "\"pass\": {}, "
        "\"microbatch\": {}, \"devices\": [{}], \"operator\": {}, \"line\": {}, \"directive\": {}, \"largest\": {}, "
        "\"relative\": {}, \"tolerance\": {}, \"agrees\": {}, \"differs\": {}, \"unknown\": {}}}",
        first.step, json_string(first.what), json_string(finding.name), json_string(first.operation),
        json_string(first.read_by), json_string(first.written_by), json_string(first.last_right),
        json_string(first.chunk), json_string(first.pass), json_string(first.microbatch),
        finding.devices.empty() ? std::to_string(finding.device) : fmt::format("{}", fmt::join(finding.devices, ", ")),
        json_string(first.made_by), json_string(first.line), json_string(first.directive),
        number_json(finding.measure.largest), number_json(finding.measure.relative()), number_json(finding.tolerance),
        strings_json(first.agreed), strings_json(first.differed), strings_json(first.unknown));
  }
  std::vector<std::string> missing;
  for (const auto& [name, why] : report.not_compared)
    missing.push_back(fmt::format("{{\"name\": {}, \"reason\": {}}}", json_string(name), json_string(why)));
  return out + fmt::format(", \"not_compared\": [{}]}}\n", fmt::join(missing, ", "));
}

}  // namespace piper
