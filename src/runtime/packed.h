// Plain data as bytes, between processes of the same build. A type names its fields once, with `each_field`.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
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
  template <class A, class B>
  void add(const std::pair<A, B>& both) {
    add(both.first);
    add(both.second);
  }
  void add(const std::string& text) {
    add(text.size());
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what was packed, in the same order. Where there is too little, values stay as they are and `complete` is
/// false.
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
  template <class A, class B>
  void take(std::pair<A, B>& both) {
    take(both.first);
    take(both.second);
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

template <class T>
std::string pack_all(const std::vector<T>& items) {
  Packing out;
  out.add(items.size());
  for (const T& item : items) T::each_field(item, [&](const auto& field) { out.add(field); });
  return out.take();
}

/// Nothing if the bytes are not what `pack_all` gives.
template <class T>
std::vector<T> unpack_all(std::string_view bytes) {
  Unpacking in(bytes);
  std::vector<T> out;
  for (size_t left = in.count(); left > 0 && in.complete(); --left)
    T::each_field(out.emplace_back(), [&](auto& field) { in.take(field); });
  if (!in.complete()) out.clear();
  return out;
}

}  // namespace piper
