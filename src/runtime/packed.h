// Plain data as bytes, between processes of the same build.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace piper {

class Packing {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  void add(std::string_view text) {
    add(text.size());
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what was packed, in the same order. Where there is too little, values stay as they are and `complete` is false.
class Unpacking {
 public:
  explicit Unpacking(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  void take(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (rest_.size() < sizeof value) return stop();
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  template <class T>
  void take(std::vector<T>& values) {
    for (size_t left = count(); left > 0 && complete_; --left) take(values.emplace_back());
  }
  void take(std::string& text) {
    const size_t size = count();
    if (rest_.size() < size) return stop();
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }
  size_t count() {
    size_t out = 0;
    take(out);
    return out;
  }
  bool complete() const { return complete_; }

 private:
  void stop() {
    complete_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool complete_ = true;
};

}  // namespace piper
