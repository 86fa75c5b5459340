// Every error a user can see: one row each. `docs/errors/CODE.md` explains it, a golden case shows it.
#pragma once

#include <string_view>

namespace piper {

// clang-format off
#define PIPER_ERROR_CODES(X)                                                     \
  /* E1xx: the text cannot be read */                                            \
  X(E101, "unexpected text")                                                     \
  X(E102, "bad number or size")                                                  \
  X(E103, "unknown directive")                                                   \
  X(E104, "unknown, missing or repeated argument")                               \
  X(E105, "argument of the wrong kind or value")                                 \
  X(E106, "bad JSON")                                                            \
  X(E107, "bad JSON directive")                                                  \
  X(E108, "file cannot be read or written")                                      \
  X(E109, "bad model description")                                               \
  X(E110, "unknown name in a model description")                                 \
  X(E111, "bad configuration file")                                              \
  X(E112, "unknown model or architecture")                                       \
  X(E113, "input too large")                                                     \
  /* E2xx: selection and placement */                                            \
  X(E201, "already placed elsewhere")                                            \
  X(E202, "unknown tag")                                                         \
  X(E203, "nothing selected")                                                    \
  X(E204, "not placed")                                                          \
  X(E205, "unknown device")                                                      \
  X(E206, "name is taken")                                                       \
  X(E207, "devices are declared twice or not at all")                            \
  X(E208, "unknown mesh axis")                                                   \
  X(E209, "cannot cut the model into these stages")                              \
  X(E210, "passes of one chunk on different devices")                            \
  X(E211, "several devices, neither replicated nor sharded")                     \
  X(E212, "devices differ from the placement")                                   \
  X(E213, "batch does not divide")                                               \
  /* E3xx: illegal rewrite */                                                    \
  X(E301, "replicated twice")                                                    \
  X(E302, "structure directive after a time directive")                          \
  X(E303, "orders contradict each other or the data")                            \
  X(E304, "consecutive elements share no device")                                \
  X(E305, "overlapped parts depend on each other")                               \
  X(E306, "backward cannot be split here")                                       \
  X(E307, "backward is split, so pass=B is ambiguous")                           \
  X(E308, "region cannot be sharded")                                            \
  X(E309, "sharded twice")                                                       \
  X(E310, "holders of one parameter overlap")                                    \
  X(E311, "value without a batch dimension crosses groups of different size")    \
  X(E312, "nothing to recompute")                                                \
  X(E313, "timeline does not fit the placement")                                 \
  X(E314, "illegal size for this timeline")                                      \
  X(E315, "unknown timeline")                                                    \
  X(E316, "prefetch needs sharded parameters")                                   \
  X(E317, "cannot be sharded by tensor parallelism")                             \
  X(E318, "chunk runs on groups of different size")                              \
  X(E319, "lost devices leave nothing to go on with")                            \
  X(E320, "cannot be computed in float8")                                        \
  /* E4xx: the plan */                                                           \
  X(E401, "deadlock")                                                            \
  X(E402, "collectives in different order")                                      \
  X(E403, "race")                                                                \
  X(E404, "use after free")                                                      \
  X(E405, "does not fit in memory")                                              \
  X(E406, "peak depends on timing")                                              \
  X(E407, "unmatched communication")                                             \
  X(E408, "malformed plan")                                                      \
  X(E409, "devices of one template are not symmetric")                           \
  X(E410, "malformed DAG")                                                       \
  X(E411, "cost table without an operation of the plan")                         \
  /* E5xx: traces */                                                             \
  X(E501, "not a trace of Piper")                                                \
  X(E502, "trace of another version")                                            \
  X(E503, "malformed trace")                                                     \
  X(E504, "traces of different plans")                                           \
  /* E6xx: capture of a libtorch model */                                        \
  X(E601, "operator depends on data")                                            \
  X(E602, "operator without a shape rule")                                       \
  X(E603, "random numbers that would depend on the plan")                        \
  X(E604, "tensor the model does not own")                                       \
  X(E605, "model code failed")                                                   \
  X(E606, "state written in one place and used in another")                      \
  X(E607, "sizes that are no function of the samples")                           \
  X(E608, "parameter without a gradient")                                        \
  X(E609, "operator gives something else than its rule says")                    \
  X(E610, "hook on gradients")                                                   \
  /* E7xx: training */                                                           \
  X(E701, "too little data")                                                     \
  X(E702, "token that the model does not know")                                  \
  X(E703, "not a file of tokens")                                                \
  X(E705, "data cannot be prepared")                                             \
  /* E8xx: the run */                                                            \
  X(E801, "an operation failed")                                                 \
  X(E802, "the run stalled")                                                     \
  X(E803, "loss or gradients are not finite")                                    \
  X(E804, "built without libtorch")                                              \
  X(E805, "the processes of a job do not fit together")                          \
  X(E806, "built without MPI")                                                   \
  X(E807, "no GPU can be used")                                                  \
  X(E808, "no memory for the copies of a save")                                  \
  /* E9xx: checkpoints */                                                        \
  X(E901, "not a checkpoint")                                                    \
  X(E902, "damaged checkpoint")                                                  \
  X(E903, "checkpoint cannot be written")                                        \
  X(E904, "checkpoint of another model")                                         \
  X(E905, "checkpoint of another run")
// clang-format on

enum class ErrorCode {
#define PIPER_DECLARE(code, title) code,
  PIPER_ERROR_CODES(PIPER_DECLARE)
#undef PIPER_DECLARE
};

std::string_view name(ErrorCode code);
std::string_view title(ErrorCode code);

}  // namespace piper
