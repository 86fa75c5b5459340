#include "tools/list_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/bytes.h"
#include "base/suggest.h"
#include "base/text_table.h"
#include "cost/load_cluster.h"
#include "model/analytic/builtin_models.h"
#include "model/analytic/parameter_counts.h"
#include "tools/commands.h"

namespace piper {
namespace {

/// 8.19B, 596M
std::string count_text(int64_t count) {
  const auto value = static_cast<double>(count);
  return value >= 1e9 ? fmt::format("{:.3g}B", value / 1e9) : fmt::format("{:.3g}M", value / 1e6);
}

Result<std::string> models() {
  TextTable table({"analytic:", "parameters", "active", "layers", "hidden"});
  for (const std::string& listed : builtin_model_names()) {
    const std::string name = listed.substr(0, listed.find(' '));
    PIPER_TRY(const ModelConfig config, builtin_model(name));
    table.add({name, count_text(total_parameters(config)), count_text(active_parameters(config)),
               fmt::format("{}", config.layers), fmt::format("{}", config.hidden)});
  }
  return table.print();
}

Result<std::string> clusters() {
  TextTable table({"--cluster", "device", "memory", "peak of bf16", "links"});
  for (const ShippedCluster& shipped : shipped_clusters()) {
    PIPER_TRY(const Cluster cluster, load_cluster(shipped.name));
    const DeviceKind& kind = cluster.kinds[0];
    std::vector<std::string> links;
    for (const LinkLevel& level : cluster.levels)
      links.push_back(fmt::format("{} {:.3g} GB/s{}", level.name, level.bandwidth * level.ports / 1e9,
                                  level.joins > 0 ? fmt::format(" among {}", level.joins) : ""));
    table.add({shipped.name, kind.name, kind.memory ? human_bytes(*kind.memory) : "",
               fmt::format("{:.4g} TFLOPS", kind.peak[static_cast<size_t>(DType::BFloat16)] / 1e12),
               fmt::format("{}", fmt::join(links, ", "))});
  }
  return table.print();
}

}  // namespace

int run(const ListCommand& command) {
  auto text = command.what == Listed::Models ? models() : clusters();
  if (!text) return report_text(text.error(), false);
  put(*text);
  return fine;
}

bool is_error_code(std::string_view text) {
  return text.size() == 4 && (text[0] == 'E' || text[0] == 'e') &&
         std::all_of(text.begin() + 1, text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

int run(const ErrorCommand& command) {
  std::string code = command.code;
  code[0] = 'E';
  std::vector<std::string> codes;
  for (const ErrorPage& page : error_pages()) {
    if (page.code == code) {
      put(std::string(page.text));
      return fine;
    }
    codes.emplace_back(page.code);
  }
  return report_text(
      error(ErrorCode::E105, {}, fmt::format("there is no error {}", code)).help(did_you_mean(code, codes)),
      command.color);
}

}  // namespace piper
