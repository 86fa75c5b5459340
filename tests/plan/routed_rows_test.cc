// Rows for experts arrive once each, in the order of experts and members, whatever the buffer holds.
#include "plan/routed_rows.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <tuple>

namespace piper {
namespace {

/// (expert, member, the member's row): what a row is.
using Row = std::tuple<int64_t, int, int64_t>;

/// What receivers put together of the messages of all rounds.
std::vector<std::vector<Row>> delivered(const RoutedRows& rows, const std::vector<int32_t>& ends, int members,
                                        int64_t room) {
  const auto experts = static_cast<int64_t>(ends.size()) / members;
  const auto expert_of = [&](int member, int64_t row) {
    int64_t e = 0;
    while (ends[static_cast<size_t>(member * experts + e)] <= row) ++e;
    return e;
  };
  std::vector<std::vector<Row>> out(static_cast<size_t>(members));
  for (int64_t round = 0; round < rows.rounds(); ++round)
    for (int to = 0; to < members; ++to) {
      std::vector<Row> messages, buffer(static_cast<size_t>(room));
      for (int from = 0; from < members; ++from) {
        const RowRange sent = rows.sent(from, to, round);
        EXPECT_EQ(rows.arrivals(to, round)[static_cast<size_t>(from)].count, sent.count);
        for (int64_t r = sent.first; r < sent.first + sent.count; ++r)
          messages.emplace_back(expert_of(from, r), from, r);
      }
      int64_t filled = 0;
      for (const RowPiece& piece : rows.pieces(to, round))
        for (int64_t i = 0; i < piece.count; ++i, ++filled)
          buffer[static_cast<size_t>(piece.at + i)] = messages[static_cast<size_t>(piece.in_messages + i)];
      EXPECT_EQ(filled, static_cast<int64_t>(messages.size()));
      std::vector<int32_t> here(static_cast<size_t>(rows.experts_here()));
      rows.ends_in(to, round, here);
      EXPECT_EQ(here.back(), filled);
      for (int64_t i = 0; i < filled; ++i) {
        const auto local = static_cast<size_t>(std::get<0>(buffer[static_cast<size_t>(i)]) - to * rows.experts_here());
        EXPECT_LT(i, here[local]);
        EXPECT_GE(i, local == 0 ? 0 : here[local - 1]);
        out[static_cast<size_t>(to)].push_back(buffer[static_cast<size_t>(i)]);
      }
    }
  return out;
}

TEST(RoutedRows, ArriveOnceInOrder) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int members = 1 + static_cast<int>(random() % 4), each = 1 + static_cast<int>(random() % 3);
    const int experts = members * each;
    const int64_t room = 1 + static_cast<int64_t>(random() % 20);
    std::vector<int32_t> ends;
    std::vector<Row> all;
    for (int m = 0; m < members; ++m) {
      int32_t row = 0;
      for (int e = 0; e < experts; ++e) {
        const auto count = random() % 3 == 0 ? 0 : static_cast<int32_t>(random() % 9);
        for (int32_t i = 0; i < count; ++i) all.emplace_back(e, m, row++);
        ends.push_back(row);
      }
    }
    const RoutedRows rows(ends, members, room);
    const auto got = delivered(rows, ends, members, room);
    std::sort(all.begin(), all.end());
    std::vector<Row> together;
    for (int to = 0; to < members; ++to) {
      EXPECT_EQ(rows.received(to), static_cast<int64_t>(got[static_cast<size_t>(to)].size()));
      together.insert(together.end(), got[static_cast<size_t>(to)].begin(), got[static_cast<size_t>(to)].end());
    }
    EXPECT_EQ(together, all) << trial;  // receivers have experts in order
  }
}

/// All rows of four members to one, through a buffer of three.
TEST(RoutedRows, MakesAsManyRoundsAsTheBusiestNeeds) {
  const std::vector<int32_t> ends = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
  EXPECT_EQ(RoutedRows(ends, 4, 3).rounds(), 7);
  EXPECT_EQ(RoutedRows(ends, 4, 20).rounds(), 1);
  EXPECT_EQ(RoutedRows(ends, 4, 3).sent(1, 0, 2), (RowRange{1, 3}));
  EXPECT_EQ(RoutedRows(std::vector<int32_t>(4, 0), 2, 3).rounds(), 1);  // there are none
}

}  // namespace
}  // namespace piper
