// Calls that are recorded as others, and what models can do where there are none.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace piper {

/// Before a call is recorded, its arguments on top of the stack. True: it was made of other calls, which were recorded
/// instead, and its result is there.
/// `bincount` with a minlength has that length: a larger number is refused when the model runs, by the kernel.
/// What has no elements has nothing to be labelled by: `cat` joins the others, `slice_backward` of it is zeros.
/// `_grouped_mm` of rows is our own (capture/experts), which takes all types and widths; others of its forms stay.
/// `as_strided_copy` counts from the beginning of a storage, which a parameter shares with others: a view and its copy.
bool rewrite_call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// What a model can do instead of a call that depends on values.
std::string_view instead_of(const c10::OperatorHandle& op);

}  // namespace piper
