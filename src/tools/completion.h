// Shell completion, generated from the command line itself.
#pragma once

#include <string>
#include <vector>

namespace piper {

struct CompletionWords {
  std::string command, help;
  std::vector<std::string> options;
};

/// Scripts: commands first, then a command's options, files, and `analytic:` with the names of `models`.
std::string bash_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models);
std::string zsh_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models);
std::string fish_completion(const std::vector<CompletionWords>& commands, const std::vector<std::string>& models);

}  // namespace piper
