#include "checkpoint/problems.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace piper {

Diagnostic not_a_checkpoint(const std::string& path, std::string_view reason) {
  return error(ErrorCode::E901, {}, fmt::format("{} is not a checkpoint: {}", path, reason));
}

Diagnostic damaged(const std::string& file, std::string_view reason) {
  return error(ErrorCode::E902, {}, fmt::format("{}: {}", file, reason));
}

Diagnostic cannot_write(const std::string& path, int reason) {
  return error(ErrorCode::E903, {}, fmt::format("cannot write {}: {}", path, std::strerror(reason)))
      .help(reason == ENOSPC || reason == EDQUOT ? "free some space, keep fewer checkpoints, or name a folder elsewhere"
            : reason == EACCES || reason == EROFS || reason == EPERM ? "name a folder that may be written to"
                                                                     : "");
}

}  // namespace piper
