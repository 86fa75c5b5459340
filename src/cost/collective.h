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
  LocalSlice,    // each member keeps its part of what all have; nothing is sent
  Shift,         // every member sends its part to the one some ranks further, modulo their number
  Rounds,        // of rows for experts that did not fit into a buffer: there, through the experts, and back
};
std::string_view name(CollectiveKind kind);

}  // namespace piper
