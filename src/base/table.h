// Tables: vectors that only ids of their own kind index.
#pragma once

#include <utility>
#include <vector>

#include "base/id.h"

namespace piper {

/// Ids in order, from `first` to the one before `past`.
template <class Key>
struct IdRange {
  struct Iterator {
    Key id;
    constexpr Key operator*() const { return id; }
    constexpr Iterator& operator++() {
      ++id.value;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;
  };

  Key first, past;

  constexpr Iterator begin() const { return {first}; }
  constexpr Iterator end() const { return {past}; }
  constexpr size_t size() const { return past.index() - first.index(); }
  friend constexpr bool operator==(const IdRange&, const IdRange&) = default;
};

/// A vector of T whose operator[] takes a `Key`, which is an Id, and nothing else.
template <class Key, class T>
struct Table : std::vector<T> {
  using std::vector<T>::vector;

  T& operator[](Key id) { return this->data()[id.index()]; }
  const T& operator[](Key id) const { return this->data()[id.index()]; }

  /// Appends; the id of what was added.
  Key add(T item) {
    this->push_back(std::move(item));
    return Key(this->size() - 1);
  }
  bool contains(Key id) const { return id.valid() && id.index() < this->size(); }
  /// All of them: for (const OpId op : ops.ids()).
  IdRange<Key> ids() const { return {Key(size_t{0}), Key(this->size())}; }
};

}  // namespace piper
