// Shell completion, generated from the command line itself.
#pragma once

#include <string>
#include <vector>

namespace piper {

struct CompletionWords {
  std::string command;
  std::vector<std::string> options;
};

/// A bash script: commands first, then a command's options, files, and `analytic:` with the names of `models`.
std::string bash_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models);

}  // namespace piper
