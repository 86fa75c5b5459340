#include "run_piper.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace piper::testing {
namespace {

struct Folders {
  std::vector<std::filesystem::path> paths;
  ~Folders() {
    for (const auto& path : paths) std::filesystem::remove_all(path);
  }
};

}  // namespace

std::string temporary_folder() {
  static Folders folders;
  std::string pattern = (std::filesystem::temp_directory_path() / "piper_test_XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
  folders.paths.emplace_back(pattern);
  return pattern;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// What `piper check` adds where libtorch is not built in: tests compare the rest with the documentation.
std::string without_libtorch_note(std::string errors) {
  const std::string note =
      "note: built without libtorch: whether piper train accepts the model with this schedule is not known\n";
  const bool has_libtorch = std::filesystem::exists(std::filesystem::path(PIPER_PROGRAM).parent_path() / "piper-train");
  if (const size_t at = errors.find(note); at != std::string::npos && !has_libtorch) errors.erase(at, note.size());
  return errors;
}

ProgramResult run_piper(const std::string& arguments, const std::string& folder) {
  const std::string results = temporary_folder();
  const std::string command =
      "cd '" + folder + "' && '" PIPER_PROGRAM "' " + arguments + " >'" + results + "/out' 2>'" + results + "/err'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(results + "/out"),
          without_libtorch_note(read_text(results + "/err"))};
}

}  // namespace piper::testing
