#include "comm/processes/control_message.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace piper {

void send_control(Transport& transport, int to, const ControlMessage& control, std::span<const std::byte> data,
                  int use) {
  std::vector<std::byte> bytes(sizeof control + data.size());
  std::memcpy(bytes.data(), &control, sizeof control);
  std::copy(data.begin(), data.end(), bytes.begin() + sizeof control);
  transport.send_control(to, std::move(bytes), use);
}

ReceivedControl read_control(std::span<const std::byte> bytes) {
  ReceivedControl out;
  std::memcpy(&out.control, bytes.data(), sizeof out.control);
  out.data = bytes.subspan(sizeof out.control);
  return out;
}

}  // namespace piper
