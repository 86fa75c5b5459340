# The script that compiles kernels as C++ text, so that the program needs no file beside it.
set(script ${CMAKE_SOURCE_DIR}/src/kernels/compile_kernels.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
file(READ ${script} text)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/compile_kernels_script.cc @ONLY CONTENT [[
// Made by cmake/embed_kernels.cmake.
#include "kernels/compile_kernels.h"

namespace piper {

const char* const compile_kernels_script = R"python(@text@)python";

}  // namespace piper
]])
target_sources(piper_kernels PRIVATE ${CMAKE_BINARY_DIR}/compile_kernels_script.cc)
