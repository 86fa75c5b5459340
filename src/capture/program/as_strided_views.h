// Views without operators.
#pragma once

#include "capture/chunk/chunk_ir.h"

namespace piper {

/// A call that only shows a storage needs no operator: what it makes is known from its layout and the tensor that is
/// all of the storage. Such calls have no operator, that argument and one result; views of views that nothing else uses
/// are gone.
///   before:  v = view(y, …); w = t(v); mm(w, x)        after:  w = y, seen so; mm(w, x)
ChunkIr as_strided_views(ChunkIr body);

}  // namespace piper
