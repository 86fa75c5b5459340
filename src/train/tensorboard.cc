#include "train/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

namespace piper {
namespace {

/// Castagnoli's polynomial, bit-reversed.
uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = out[i] >> 1 ^ (out[i] & 1 ? 0x82F63B78u : 0);
    }
    return out;
  }();
  uint32_t sum = ~0u;
  for (const char byte : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~sum;
}

/// As TensorFlow stores sums of data that may have sums in it.
uint32_t masked(uint32_t sum) {
  return (sum >> 15 | sum << 17) + 0xA282EAD8u;
}

template <class T>
std::string little_endian(T number) {
  std::string out;
  for (size_t byte = 0; byte < sizeof(T); ++byte) out += static_cast<char>(number >> (8 * byte) & 0xFF);
  return out;
}

// ---- protocol buffers

std::string varint(uint64_t number) {
  std::string out;
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  return out + static_cast<char>(number);
}
enum class Wire { Varint = 0, Bits64 = 1, Bytes = 2, Bits32 = 5 };
std::string key(int field, Wire wire) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}
std::string bytes_field(int field, const std::string& bytes) {
  return key(field, Wire::Bytes) + varint(bytes.size()) + bytes;
}

/// Event.wall_time
std::string wall_time(double seconds) {
  return key(1, Wire::Bits64) + little_endian(std::bit_cast<uint64_t>(seconds));
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Diagnostic cannot_write(const NamedFile& file, int reason) {
  return error(ErrorCode::E108, file.where,
               fmt::format("cannot write events for TensorBoard \"{}\": {}", file.path, std::strerror(reason)))
      .help(reason == ENOSPC ? "free some space, or name a folder on another disk"
                             : "tensorboard names a folder that is there or can be made");
}

}  // namespace

std::string event_record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  return length + little_endian(masked(crc32c(length))) + std::string(event) + little_endian(masked(crc32c(event)));
}

std::string first_event(double seconds) {
  return wall_time(seconds) + bytes_field(3, "brain.Event:2");  // Event.file_version
}

std::string scalar_event(int64_t step, const std::vector<NamedScalar>& scalars, double seconds) {
  std::string summary;
  for (const auto& [name, value] : scalars)  // Summary.value: tag, simple_value
    summary += bytes_field(1, bytes_field(1, name) + key(2, Wire::Bits32) +
                                  little_endian(std::bit_cast<uint32_t>(static_cast<float>(value))));
  return wall_time(seconds) + key(2, Wire::Varint) + varint(static_cast<uint64_t>(step)) + bytes_field(5, summary);
}

Result<EventFile> EventFile::create(NamedFile folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder.path, problem);
  if (problem) return cannot_write(folder, problem.value());
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  const double now = seconds_now();
  EventFile out;
  out.name_ = {fmt::format("{}/events.out.tfevents.{:.0f}.{}.{}.piper", folder.path, now, host, getpid()),
               folder.where};
  out.file_.reset(std::fopen(out.name_.path.c_str(), "wb"));
  if (!out.file_) return cannot_write(out.name_, errno);
  PIPER_CHECK(out.write(event_record(first_event(now))));
  return out;
}

Checked EventFile::add(int64_t step, const std::vector<NamedScalar>& scalars, double seconds) {
  return write(event_record(scalar_event(step, scalars, seconds)));
}

Checked EventFile::write(const std::string& record) {
  const bool whole = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (!whole || std::fflush(file_.get()) != 0) return cannot_write(name_, errno);
  return Ok{};
}

}  // namespace piper
