// golden_tests [PATH…] [--update]: runs the cases below tests/golden (or those named) and compares the whole output.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "golden_case.h"

namespace {

namespace fs = std::filesystem;
using piper::golden::Case;
using piper::golden::Outcome;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// A plain line diff: longest common subsequence.
std::string diff(const std::string& expected, const std::string& found) {
  const auto a = lines(expected), b = lines(found);
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::string out;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      out += "  " + a[i] + "\n";
      ++i, ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      out += "- " + a[i++] + "\n";
    } else {
      out += "+ " + b[j++] + "\n";
    }
  }
  return out;
}

/// Empty if the case holds, else what is wrong.
std::string check(const fs::path& path, bool update) {
  Case c = piper::golden::parse_case(read(path));
  const Outcome outcome = piper::golden::run_case(c);
  if (c.find("expect-same-plan")) return outcome.text;
  const std::string wanted = outcome.failed ? "expect-error" : "expect";
  const auto expectation =
      std::find_if(c.sections.begin(), c.sections.end(), [](const auto& s) { return s.name.starts_with("expect"); });
  if (expectation != c.sections.end() && expectation->name == wanted && expectation->text == outcome.text) return "";
  if (update) {
    if (expectation == c.sections.end())
      c.sections.push_back({wanted, outcome.text, {}});
    else
      *expectation = {wanted, outcome.text, {}};
    std::ofstream(path, std::ios::binary) << piper::golden::print_case(c);
    return "";
  }
  if (expectation == c.sections.end()) return "no section expect; run golden_tests --update " + path.string();
  if (expectation->name != wanted)
    return fmt::format("expected {}, got {}:\n{}", expectation->name, wanted, outcome.text);
  return diff(expectation->text, outcome.text);
}

}  // namespace

int main(int argc, char** argv) {
  bool update = false;
  std::vector<fs::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--update")
      update = true;
    else
      paths.emplace_back(argv[i]);
  }
  if (paths.empty()) paths.emplace_back(fs::path(PIPER_SOURCE_DIR) / "tests" / "golden");
  std::vector<fs::path> cases;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path))
      cases.push_back(path);
    else
      for (const auto& entry : fs::recursive_directory_iterator(path))
        if (entry.path().extension() == ".test") cases.push_back(entry.path());
  }
  std::sort(cases.begin(), cases.end());
  int failed = 0;
  for (const fs::path& path : cases) {
    std::string problem;
    try {
      problem = check(path, update);
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (problem.empty()) continue;
    ++failed;
    std::cout << "FAILED " << path.string() << "\n" << problem << "\n";
  }
  std::cout << cases.size() - static_cast<size_t>(failed) << " passed, " << failed << " failed\n";
  return failed == 0 && !cases.empty() ? 0 : 1;
}
