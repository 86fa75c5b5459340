# find_libtorch(): headers and libraries of the PyTorch wheel. Defines the target libtorch::cpu, or only says why not; and
# libtorch::cuda where PIPER_PYTHON (or PIPER_CUDA=ON, or pip) asks for it, all its libraries are there and CUDA's compiler is here;
# nccl::nccl where that compiler is and NCCL lies beside PyTorch.
# The wheel is found through the interpreter that PIPER_PYTHON names, or .venv, without importing it: the small installation
# of scripts/setup --torch cannot be imported, and its own CMake package insists on a CUDA toolkit.
include(${CMAKE_CURRENT_LIST_DIR}/cxx_runtime.cmake)
function(find_libtorch)
  set(wanted 2.11.0)
  if(DEFINED ENV{PIPER_PYTHON})  # kept, so that building does not depend on the environment
    set(PIPER_PYTHON $ENV{PIPER_PYTHON} CACHE FILEPATH "Interpreter whose PyTorch is used; none: .venv" FORCE)
  endif()
  set(python ${PIPER_PYTHON})
  if(NOT python AND SKBUILD)  # pip builds for the interpreter it runs in
    set(python ${Python_EXECUTABLE})
  endif()
  if(NOT python)
    set(python ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
  string(CONCAT find "import importlib.util as u, importlib.metadata as m\n"
    "print(u.find_spec('torch').submodule_search_locations[0], m.version('torch').split('+')[0], sep=chr(59))")
  execute_process(COMMAND ${python} -c ${find} OUTPUT_VARIABLE found RESULT_VARIABLE status ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(STATUS "libtorch: not found with ${python}; building without it (scripts/setup --torch installs it)")
    return()
  endif()
  list(GET found 0 root)
  list(GET found 1 version)
  if(NOT version STREQUAL wanted)
    message(STATUS "libtorch: ${root} has version ${version}, ${wanted} is needed; building without it")
    return()
  endif()
  foreach(library c10 torch_cpu)
    add_library(libtorch::${library} SHARED IMPORTED GLOBAL)
    set_target_properties(libtorch::${library} PROPERTIES
      IMPORTED_LOCATION ${root}/lib/lib${library}.so
      INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include")
  endforeach()
  add_library(libtorch::cpu INTERFACE IMPORTED GLOBAL)
  # the wheel brings its own, newer fmt headers without their library: compiled once here, not in every file
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/libtorch_fmt.cc @ONLY CONTENT [[
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
]])
  add_library(libtorch_fmt STATIC ${CMAKE_BINARY_DIR}/libtorch_fmt.cc)
  target_include_directories(libtorch_fmt SYSTEM PRIVATE ${root}/include)
  target_link_libraries(libtorch::cpu INTERFACE libtorch_fmt libtorch::torch_cpu libtorch::c10)
  share_cxx_runtime(libtorch::cpu ${root}/lib/libc10.so)
  target_link_options(libtorch::cpu INTERFACE LINKER:-u,piper_blas_without_sve)  # src/runtime/blas_without_sve.cc
  # its GPU side only if asked for, because programs that have it take longer to start; the small installation lacks cuBLAS
  file(GLOB cublas ${root}/../nvidia/*/lib/libcublas.so.*)
  if((PIPER_PYTHON OR SKBUILD OR PIPER_CUDA STREQUAL ON) AND EXISTS ${root}/lib/libtorch_cuda.so AND cublas AND TARGET CUDA::cudart)
    add_library(libtorch::cuda INTERFACE IMPORTED GLOBAL)
    # nothing refers to torch_cuda by name: it brings operators, which only have to be there. What these libraries need
    # themselves is found when they run
    target_link_options(libtorch::cuda INTERFACE LINKER:--no-as-needed LINKER:--allow-shlib-undefined)
    target_link_libraries(libtorch::cuda INTERFACE libtorch::cpu ${root}/lib/libc10_cuda.so
      ${root}/lib/libtorch_cuda.so CUDA::cudart)
    set(gpu " with GPUs")
  endif()
  set(nccl ${root}/../nvidia/nccl)
  if(TARGET CUDA::cudart AND EXISTS ${nccl}/include/nccl.h AND EXISTS ${nccl}/lib/libnccl.so.2)
    add_library(nccl::nccl SHARED IMPORTED GLOBAL)
    set_target_properties(nccl::nccl PROPERTIES IMPORTED_LOCATION ${nccl}/lib/libnccl.so.2
      INTERFACE_INCLUDE_DIRECTORIES ${nccl}/include INTERFACE_LINK_LIBRARIES CUDA::cudart)
    string(APPEND gpu ", NCCL")
  endif()
  set(PIPER_LIBTORCH_PYTHON ${python} PARENT_SCOPE)  # has the same PyTorch, if it can be imported
  message(STATUS "libtorch: ${version}${gpu} in ${root}")
endfunction()
