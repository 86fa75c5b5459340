// What is proved on plans before anything runs. One file per proof; the order below is the order they run in.
#pragma once

#include "base/result.h"
#include "plan/plan.h"

namespace piper {

/// Every index points somewhere, waits point backwards to other streams, buffers are freed once (E408).
Checked verify_structure(const Plan& plan);
/// Every communication is reached once, in the right role, by exactly its devices; devices of one template agree (E407,
/// E409).
Checked verify_matching(const Plan& plan);
/// All members of an exchange of rows make the same number of rounds, because all compute it from the counts of the
/// same all_gather (E407). All do the same in a round, so the other proofs treat the rounds as one operation.
Checked verify_rounds(const Plan& plan);
/// On every communicator all members issue the same sequence (E402).
Checked verify_collective_order(const Plan& plan);
/// The product of all queues has no cycle, nor has the issue order of all communication (E401).
Checked verify_deadlock(const Plan& plan);
/// Conflicting uses of a buffer are ordered by the device's own queues and waits (E403); nothing is used after its free
/// (E404).
Checked verify_races(const Plan& plan);
/// The peak does not depend on how fast streams run (E406).
Checked verify_memory_order(const Plan& plan);

/// All of them.
Checked verify(const Plan& plan);

}  // namespace piper
