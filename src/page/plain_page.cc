#include "page/plain_page.h"

#include <fmt/format.h>

namespace piper {
namespace {

constexpr std::string_view style = R"(
:root { color-scheme: light dark; --page: #f7f7f5; --raised: #ffffff; --text: #1d2126; --quiet: #5d6670; --line: #d9dcdf;
  font: 13px/1.45 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) { :root { --page: #16191d; --raised: #1f2429; --text: #e6e8ea; --quiet: #9aa4ae; --line: #363d45; } }
body { margin: 14px; background: var(--page); color: var(--text); }
h1 { font-size: 16px; margin: 0 0 8px; font-weight: 650; }
.runs { display: grid; grid-template-columns: auto auto 1fr; gap: 2px 10px; margin-bottom: 12px; }
.runs i { width: 18px; height: 3px; align-self: center; }
.runs span { color: var(--quiet); }
.charts { display: flex; flex-wrap: wrap; gap: 14px; }
figure { margin: 0; padding: 8px; background: var(--raised); border: 1px solid var(--line); border-radius: 8px; }
figcaption { font-weight: 600; }
svg text { fill: var(--quiet); font-size: 11px; }
svg .grid { stroke: var(--line); }
svg path { fill: none; stroke-width: 1.5; }
svg rect { fill: var(--raised); }
table { border-collapse: collapse; margin-top: 12px; }
th, td { text-align: left; padding: 2px 14px 2px 0; vertical-align: top; border-bottom: 1px solid var(--line); }
pre { margin: 4px 0; white-space: pre-wrap; }
)";

}  // namespace

std::string escaped_text(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string plain_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title><style>{}"
      "</style></head><body>\n{}</body></html>\n",
      escaped_text(title), style, body);
}

}  // namespace piper
