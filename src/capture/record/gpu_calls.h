// Calls that cannot be recorded as they are, because of random numbers; most are made for a GPU.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace piper {

/// Before a call is recorded, its arguments on top of the stack. True: it was `native_dropout`, whose numbers nobody
/// could draw for it. It became a mask drawn by `bernoulli_`, and a product, which were recorded; the results are
/// there.
bool rewrite_dropout(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// The same for a GPU: the backward of an attention that drops nothing gets a state of random numbers that nobody kept;
/// with cuDNN also the gradient in the order of the result, without which libtorch 2.11 computes something else.
void complete_gpu_call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Of attention that drops nothing, its results on top of the stack: it returns no state of random numbers. Where that
/// lies depends on whether a CUDA graph is recorded.
void forget_random_state(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace piper
