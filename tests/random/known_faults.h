// Faults that are known and not mended yet, each by its name, so that others do not hide behind them.
#pragma once

#include "random/judge.h"

namespace piper::random {

bool is_known(const Verdict& fault);

}  // namespace piper::random
