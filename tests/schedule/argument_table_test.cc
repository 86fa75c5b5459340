// The rows of fields.h as plain data: the documentation has exactly these tables.
#include "schedule/argument_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "schedule/schedule.h"

namespace piper {
namespace {

/// "`devices`, `mesh` or `along`"
std::string any_of(std::string_view names) {
  std::istringstream in{std::string(names)};
  std::vector<std::string> all;
  for (std::string name; in >> name;) all.push_back(fmt::format("`{}`", name));
  std::string out = all.front();
  for (size_t i = 1; i < all.size(); ++i) out += (i + 1 < all.size() ? ", " : " or ") + all[i];
  return out;
}

std::string markdown(const ArgumentRow& row) {
  const bool where = row.kind == "where";
  return fmt::format("| {} | {} | {} |\n", row.named || where ? any_of(row.name) : std::string(row.kind),
                     where          ? "one required"
                     : row.required ? "required"
                                    : row.usual,
                     row.meaning);
}

/// From the heading to the next one.
std::string section(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("\n" + heading + "\n");
  return begin == page.npos ? "" : page.substr(begin, page.find("\n#", begin + 1) - begin);
}

TEST(ArgumentTable, TheDocumentationHasItsTables) {
  std::ifstream file(PIPER_SOURCE_DIR "/docs/schedule.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const std::string& verb : all_verbs()) {
    const std::vector<ArgumentRow> rows = arguments_of(verb);
    if (std::none_of(rows.begin(), rows.end(), [](const ArgumentRow& row) { return row.named; })) continue;
    std::string table = "| argument | default | meaning |\n| --- | --- | --- |\n";
    for (const ArgumentRow& row : rows) table += markdown(row);
    EXPECT_TRUE(section(page, "### " + verb).find("\n\n" + table + "\n") != std::string::npos)
        << "docs/schedule.md: the table of " << verb << " must be\n\n"
        << table;
  }
}

}  // namespace
}  // namespace piper
