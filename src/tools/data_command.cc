#include "tools/data_command.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/usual_python.h"
#include "tools/become.h"
#include "tools/commands.h"
#include "train/data/find_files.h"
#include "train/data/prepare/prepare_script.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

/// What `save_to_disk` of Hugging Face's datasets writes.
bool is_dataset(const std::string& path) {
  return fs::exists(path + "/state.json") || fs::exists(path + "/dataset_dict.json");
}

Result<std::vector<std::string>> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> out;
  for (const std::string& input : inputs) {
    if (is_dataset(input)) {
      out.push_back(input);
      continue;
    }
    PIPER_TRY(const auto files, find_files({input, {}}));
    for (const NamedFile& file : files) out.push_back(file.path);
  }
  return out;
}

/// Goes on as Python.
int run_python(const nlohmann::json& command, bool color) {
  const std::string python = usual_python();
  become(python, {python, "-c", prepare_script, command.dump()});
  return report_text(error(ErrorCode::E108, {}, fmt::format("cannot start \"{}\": {}", python, std::strerror(errno)))
                         .help("PIPER_PYTHON names an interpreter that has the package tokenizers"),
                     color);
}

}  // namespace

int run(const DataPrepareCommand& command) {
  const auto files = files_of(command.inputs);
  if (!files) return report_text(files.error(), command.color);
  return run_python({{"command", "prepare"},
                     {"inputs", *files},
                     {"tokenizer", command.tokenizer},
                     {"out", command.out},
                     {"as", command.as},
                     {"field", command.field},
                     {"end", command.end},
                     {"shard_size", command.shard_size},
                     {"processes", command.processes}},
                    command.color);
}

int run(const DataVerifyCommand& command) {
  return run_python({{"command", "verify"}, {"folder", command.folder}}, command.color);
}

}  // namespace piper
