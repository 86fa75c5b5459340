// Every pair of placements: the collective that `redistribute` names, done as MPI defines it, leads from one to the
// other.
#include "ir/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace piper {
namespace {

constexpr size_t devices = 4, rows = 8, columns = 12;  // rows are experts or tokens, columns what they are made of
using Dense = std::vector<std::vector<double>>;

Dense matrix(size_t height, size_t width) {
  return Dense(height, std::vector<double>(width));
}

Dense random_matrix(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> number(-1, 1);
  Dense out = matrix(rows, columns);
  for (auto& row : out)
    for (double& element : row) element = number(random);
  return out;
}

/// What a value is on each device: shards lie along rows (tp) or columns (sequence); the terms of a partial value are
/// any numbers whose sum, or maximum, it is.
std::vector<Dense> place(const Dense& dense, const Placement& placement) {
  std::vector<Dense> out(devices, dense);
  if (placement.is_shard()) {
    const bool by_rows = placement.label == tp_label;
    for (size_t d = 0; d < devices; ++d) {
      const size_t height = by_rows ? rows / devices : rows, width = by_rows ? columns : columns / devices;
      out[d] = matrix(height, width);
      const size_t owner = (d + devices - static_cast<size_t>(placement.rotation)) % devices;
      for (size_t i = 0; i < height; ++i)
        for (size_t j = 0; j < width; ++j)
          out[d][i][j] = by_rows ? dense[owner * height + i][j] : dense[i][owner * width + j];
    }
  }
  if (placement.is_partial()) {
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) {
        const size_t owner = (i + j) % devices;
        for (size_t d = 0; d < devices; ++d)
          out[d][i][j] = placement.op == Partial::Max ? (d == owner ? dense[i][j] : dense[i][j] - 1)
                                                      : (d == owner ? dense[i][j] - 3.0 * (devices - 1) : 3.0);
      }
  }
  return out;
}

/// The pieces of all devices one after another, along rows or columns.
Dense concatenate(const std::vector<Dense>& pieces, bool by_rows) {
  Dense out;
  for (const Dense& piece : pieces) {
    if (by_rows || out.empty()) {
      out.insert(out.end(), piece.begin(), piece.end());
      continue;
    }
    for (size_t i = 0; i < piece.size(); ++i) out[i].insert(out[i].end(), piece[i].begin(), piece[i].end());
  }
  return out;
}

std::vector<Dense> run(CollectiveKind kind, const std::vector<Dense>& before, const Placement& from,
                       const Placement& to) {
  const auto combine = [&] {
    Dense out = before[0];
    for (size_t d = 1; d < devices; ++d)
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = 0; j < columns; ++j)
          out[i][j] = from.op == Partial::Max ? std::max(out[i][j], before[d][i][j]) : out[i][j] + before[d][i][j];
    return out;
  };
  switch (kind) {
    case CollectiveKind::AllReduce:
      return std::vector<Dense>(devices, combine());
    case CollectiveKind::ReduceScatter:
      return place(combine(), to);
    case CollectiveKind::AllGather:
      return std::vector<Dense>(devices, concatenate(before, from.label == tp_label));
    case CollectiveKind::LocalSlice: {
      std::vector<Dense> out;
      for (size_t d = 0; d < devices; ++d) out.push_back(place(before[d], to)[d]);  // of its own alone
      return out;
    }
    case CollectiveKind::AllToAll: {  // every device sends to each of the others its part of what that one keeps
      std::vector<std::vector<Dense>> received(devices);
      for (size_t sender = 0; sender < devices; ++sender) {
        const Dense& mine = before[sender];
        for (size_t receiver = 0; receiver < devices; ++receiver) {
          Dense block;
          if (to.label == tp_label) {
            const size_t height = rows / devices;
            block.assign(mine.begin() + static_cast<int64_t>(receiver * height),
                         mine.begin() + static_cast<int64_t>((receiver + 1) * height));
          } else {
            const size_t width = columns / devices;
            for (const auto& row : mine)
              block.emplace_back(row.begin() + static_cast<int64_t>(receiver * width),
                                 row.begin() + static_cast<int64_t>((receiver + 1) * width));
          }
          received[receiver].push_back(std::move(block));
        }
      }
      std::vector<Dense> out;
      for (const auto& blocks : received) out.push_back(concatenate(blocks, from.label == tp_label));
      return out;
    }
    case CollectiveKind::Shift: {
      std::vector<Dense> out(devices);
      const auto by = static_cast<size_t>(shift_by(from, to, devices));
      for (size_t sender = 0; sender < devices; ++sender) out[(sender + by) % devices] = before[sender];
      return out;
    }
    default:
      ADD_FAILURE() << "no such redistribution";
      return before;
  }
}

const std::vector<Placement> reached = {Placement::replicate(), Placement::shard(tp_label),
                                        Placement::shard(sequence_label)};

void expect_leads(const Placement& from, const Placement& to) {
  const Dense dense = random_matrix(7);
  const std::vector<Dense> before = place(dense, from), expected = place(dense, to);
  const auto kind = redistribute(from, to);
  EXPECT_EQ(kind.has_value(), from != to);
  const std::vector<Dense> after = kind ? run(*kind, before, from, to) : before;
  for (size_t d = 0; d < devices; ++d) {
    ASSERT_EQ(after[d].size(), expected[d].size());
    for (size_t i = 0; i < expected[d].size(); ++i) {
      ASSERT_EQ(after[d][i].size(), expected[d][i].size());
      for (size_t j = 0; j < expected[d][i].size(); ++j) ASSERT_NEAR(after[d][i][j], expected[d][i][j], 1e-12);
    }
  }
}

TEST(Redistribute, LeadsFromEveryPlacementToEveryOther) {
  std::vector<Placement> all = reached;
  all.push_back(Placement::partial(Partial::Sum));
  all.push_back(Placement::partial(Partial::Max));
  for (size_t f = 0; f < all.size(); ++f)
    for (size_t t = 0; t < reached.size(); ++t) {
      SCOPED_TRACE(testing::Message() << f << " to " << t);
      expect_leads(all[f], reached[t]);
    }
}

/// Steps of a ring: a device has the shard of another one, and passes it on.
TEST(Redistribute, LeadsFromEveryRotationToEveryOther) {
  for (const std::string_view label : {tp_label, sequence_label})
    for (int from = 0; from < static_cast<int>(devices); ++from)
      for (int to = 0; to < static_cast<int>(devices); ++to) {
        SCOPED_TRACE(testing::Message() << label << ": " << from << " to " << to);
        const Placement before = Placement::shard(label, from), after = Placement::shard(label, to);
        if (from != to) {
          ASSERT_EQ(redistribute(before, after), CollectiveKind::Shift);
        }
        expect_leads(before, after);
      }
}

TEST(Redistribute, NothingBecomesPartial) {
  for (const Placement& from : reached) EXPECT_FALSE(redistribute(from, Placement::partial(Partial::Sum)));
}

}  // namespace
}  // namespace piper
