// libFuzzer target: files that begin with any bytes are read as safetensors files, and their headers printed.
#include <cstdint>
#include <string>

#include "base/invariant.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace piper;
  std::string text(8, '\0');  // the length of the header, so that inputs can be JSON; then as it is
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(size >> (8 * i));
  const std::string json(reinterpret_cast<const char*>(data), size);
  for (const std::string& file : {text + json, json})
    for (const int64_t behind : {0, 32, 39}) {
      const auto header = parse_header("fuzz", file, static_cast<int64_t>(file.size()) + behind);
      if (!header) continue;
      const std::string printed = print(*header);
      const int64_t tensors = static_cast<int64_t>(file.size()) + behind - header->bytes;
      invariant(bool(parse_header("printed", printed, static_cast<int64_t>(printed.size()) + tensors)),
                "a header reads back");
    }
  return 0;
}
