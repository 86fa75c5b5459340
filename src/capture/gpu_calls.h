// Calls that PyTorch makes for a GPU and that cannot be recorded as they are, because of random numbers.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace piper {

/// Before a call for a GPU is recorded, its arguments on top of the stack. True: it was made of other calls, which were
/// recorded instead, and its results are there.
/// `native_dropout` draws from a generator that nobody can give it: it becomes a mask drawn by `bernoulli_`, and a
/// product. The backward of an attention that drops nothing gets a state of random numbers that nobody kept; with cuDNN
/// also the gradient in the order of the result, without which libtorch 2.11 computes something else.
bool rewrite_gpu_call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// Of attention that drops nothing, its results on top of the stack: it returns no state of random numbers. Where that
/// lies depends on whether a graph of CUDA is recorded.
void forget_random_state(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace piper
