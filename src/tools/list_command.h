// What there is: `piper models`, `piper clusters`, `piper schedules`; and what an error means: `piper explain E405`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piper {

enum class Listed { Models, Clusters };

struct ListCommand {
  Listed what = Listed::Models;
};
int run(const ListCommand& command);

/// The pages of docs/errors, built into the program, by code.
struct ErrorPage {
  std::string_view code, text;
};
const std::vector<ErrorPage>& error_pages();

/// E405, e405
bool is_error_code(std::string_view text);

struct ErrorCommand {
  std::string code;
  bool color = false;
};
int run(const ErrorCommand& command);

}  // namespace piper
