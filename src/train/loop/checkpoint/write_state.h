// Writes what processes hold of a model into the files of a checkpoint, in runs that are as long as can be.
#pragma once

#include "checkpoint/writer.h"
#include "train/loop/checkpoint/snapshot.h"
#include "train/loop/checkpoint/writers.h"

namespace piper {

/// Every process writes what its devices hold. Where the bytes of several lie interleaved in a block of 4 MiB, as those
/// of a parameter that is sharded along an inner dimension, one of them is sent the others' and writes the block at
/// once. All processes call it. Returns the first error, but sends and receives all messages, so that no
/// other process waits for ever. Throws CommunicationError.
Checked write_state(const Plan& plan, const Computations& computations, const ModelState& state,
                    const Snapshot& snapshot, Writers& writers, FolderWriter& files);

}  // namespace piper
