// The kind of sharding whose devices exchange rows that a router sends, so that how many go is known when they go.
#pragma once

#include "model/shards.h"

namespace piper {

constexpr ShardKind routed_kind = ShardKind::Expert;

}  // namespace piper
