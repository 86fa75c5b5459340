#include "tools/option_in.h"

namespace piper {

std::string option_in(const std::vector<std::string>& train, const std::string& option) {
  std::string out;
  for (size_t i = 0; i < train.size(); ++i) {
    if (train[i] == option && i + 1 < train.size()) out = train[i + 1];
    if (train[i].starts_with(option + "=")) out = train[i].substr(option.size() + 1);
  }
  return out;
}

}  // namespace piper
