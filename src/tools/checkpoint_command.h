// `piper checkpoint`: what checkpoints hold, whether they are sound, in what they differ, and models for others.
#pragma once

#include <string>

namespace piper {

struct CheckpointListCommand {
  std::string parent;
  std::string format = "text";
  bool color = false;
};
int run(const CheckpointListCommand& command);

struct CheckpointShowCommand {
  std::string folder;
  std::string format = "text";
  bool color = false;
};
int run(const CheckpointShowCommand& command);

/// Refused if something is damaged.
struct CheckpointVerifyCommand {
  std::string folder;  // of a checkpoint, or of several
  std::string format = "text";
  bool color = false;
};
int run(const CheckpointVerifyCommand& command);

/// Refused if something differs.
struct CheckpointDiffCommand {
  std::string first, second;
  std::string format = "text";
  bool color = false;
};
int run(const CheckpointDiffCommand& command);

struct CheckpointExportCommand {
  std::string folder, output;
  bool color = false;
};
int run(const CheckpointExportCommand& command);

}  // namespace piper
