#include "cost/collective.h"

namespace piper {

std::string_view name(CollectiveKind kind) {
  constexpr std::string_view names[] = {"all_reduce",    "reduce_scatter", "all_gather", "all_to_all",
                                        "reduce_pieces", "local_slice",    "shift",      "rounds"};
  return names[static_cast<int>(kind)];
}

}  // namespace piper
