// Shell completion, generated from the command line itself.
#pragma once

#include <string>
#include <vector>

namespace piper {

struct CompletionWords {
  std::string command;
  std::vector<std::string> options;
};

/// A bash script: commands first, then a command's options, and files.
std::string bash_completion(const std::vector<CompletionWords>& commands);

}  // namespace piper
