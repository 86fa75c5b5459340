// Shapes of results for operators that libtorch's C++ library cannot run on meta tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace piper {

/// Takes the arguments from the stack and leaves meta tensors for the results, as a boxed kernel would.
using ShapeRule = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// The rule for `aten::embedding` and the like on the target, or null.
ShapeRule shape_rule(std::string_view full_name, c10::DeviceType target);

}  // namespace piper
