// Ranks that have lost replicas get smaller stages.
#pragma once

#include "recover/sharing.h"

namespace piper {

/// The schedule with stages cut anew, each as large as what is left of its rank is fast with these shares; nothing if
/// the cuts stay, or no place directive cuts stages.
std::optional<Schedule> with_lighter_stages(const Loss& loss, const std::vector<Hit>& hits,
                                            const std::vector<Share>& shares);

}  // namespace piper
