// Runs the built program as a user would.
#pragma once

#include <string>

namespace piper::testing {

struct ProgramResult {
  int exit_code = -1;
  std::string output, errors;
};

/// Of the repository.
inline const std::string root = PIPER_SOURCE_DIR;

/// `piper ARGUMENTS` through a shell, in `folder`.
ProgramResult run_piper(const std::string& arguments, const std::string& folder);

/// A fresh folder that goes away with the test program.
std::string temporary_folder();

void write_file(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);

}  // namespace piper::testing
