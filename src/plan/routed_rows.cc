#include "plan/routed_rows.h"

#include <algorithm>

#include "base/saturate.h"

namespace piper {

RoutedRows::RoutedRows(std::span<const int32_t> ends, int members, int64_t room)
    : ends_(ends.begin(), ends.end()),
      members_(members),
      experts_(static_cast<int64_t>(ends.size()) / members),
      room_(room) {}

int64_t RoutedRows::first_row(int member, int64_t expert) const {
  return expert == 0 ? 0 : ends_[static_cast<size_t>(member * experts_ + expert - 1)];
}

int64_t RoutedRows::count(int member, int64_t expert) const {
  return ends_[static_cast<size_t>(member * experts_ + expert)] - first_row(member, expert);
}

template <class Visit>
void RoutedRows::each(int to, Visit visit) const {
  int64_t place = 0;
  for (int64_t e = to * experts_here(); e < (to + 1) * experts_here(); ++e)
    for (int member = 0; member < members_; ++member) {
      visit(e, member, place, count(member, e));
      place += count(member, e);
    }
}

int64_t RoutedRows::received(int to) const {
  int64_t rows = 0;
  each(to, [&](int64_t, int, int64_t, int64_t count) { rows += count; });
  return rows;
}

int64_t RoutedRows::rounds() const {
  int64_t most = 1;
  for (int to = 0; to < members_; ++to) most = std::max(most, ceil_divide(received(to), room_));
  return most;
}

RowRange RoutedRows::sent(int from, int to, int64_t round) const {
  const int64_t begin = round * room_, end = begin + room_;
  RowRange out;
  each(to, [&](int64_t expert, int member, int64_t place, int64_t count) {
    const int64_t first = std::max(place, begin), last = std::min(place + count, end);
    if (member != from || first >= last) return;
    if (out.count == 0) out.first = first_row(from, expert) + first - place;
    out.count += last - first;
  });
  return out;
}

std::vector<RowRange> RoutedRows::arrivals(int to, int64_t round) const {
  std::vector<RowRange> out;
  int64_t before = 0;
  for (int member = 0; member < members_; ++member) {
    out.push_back({before, sent(member, to, round).count});
    before += out.back().count;
  }
  return out;
}

std::vector<RowPiece> RoutedRows::pieces(int to, int64_t round) const {
  const int64_t begin = round * room_, end = begin + room_;
  std::vector<RowPiece> out;
  std::vector<RowRange> left = arrivals(to, round);
  each(to, [&](int64_t, int member, int64_t place, int64_t count) {
    const int64_t first = std::max(place, begin), last = std::min(place + count, end);
    if (first >= last) return;
    int64_t& next = left[static_cast<size_t>(member)].first;
    out.push_back({next, first - begin, last - first});
    next += last - first;
  });
  return out;
}

void RoutedRows::ends_in(int to, int64_t round, std::span<int32_t> out) const {
  const int64_t begin = round * room_;
  each(to, [&](int64_t expert, int, int64_t place, int64_t count) {
    out[static_cast<size_t>(expert - to * experts_here())] =
        static_cast<int32_t>(std::clamp<int64_t>(place + count - begin, 0, room_));
  });
}

}  // namespace piper
