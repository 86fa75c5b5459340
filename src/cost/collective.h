// What a group of devices can do together with the data of its members.
#pragma once

#include <string_view>

namespace piper {

enum class CollectiveKind {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  ReducePieces,  // of gradients held by several groups: the owners of each piece, one per group, add up what they have
  LocalSlice,    // of what all have; nothing is sent
};
std::string_view name(CollectiveKind kind);

}  // namespace piper
