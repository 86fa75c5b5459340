#include "tools/front_page.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/time_text.h"
#include "page/plain_page.h"

namespace piper {

std::string front_page(const Problem& problem, const SearchResult& result) {
  const std::string title = fmt::format("{} on {} devices of {}, batch {}", problem.model, problem.limits.devices,
                                        problem.cluster.name, problem.limits.batch);
  std::string out = fmt::format(
      "<h1>{}</h1>\n<div class=\"charts\"><figure><figcaption>Time against memory of {} "
      "schedules</figcaption>\n{}</figure></div>\n",
      escaped_text(title), result.evaluated.size(), front_svg(problem, result));
  out += "<table>\n<tr><th>step</th><th>memory</th><th>no other schedule is faster with as little memory</th></tr>\n";
  for (const Evaluated* made : pareto_front(result))
    out += fmt::format(
        "<tr><td>{}</td><td>{}{}</td><td><details><summary>{}</summary><pre>{}</pre></details></td></tr>\n",
        human_seconds(made->report.seconds), human_bytes(made->memory.total), made->fits ? "" : ", does not fit",
        escaped_text(in_short(*made)), escaped_text(explained(problem, *made)));
  return plain_page("Piper: " + title, out + "</table>\n");
}

}  // namespace piper
