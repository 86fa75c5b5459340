# The layers of src/, bottom to top. A row is a static library piper_<name>: all sources in its folder, but for those in folders that have a
# row of their own. scripts/check_layers checks the includes and the table in src/README.md against these rows.
# A layer is left out where something it needs is not here; what ends in `?` is used where it is.
#
#  name       | folder in src      | layers it stands on              | libraries
set(PIPER_LAYERS
  "base       | base               |                                  | fmt::fmt tomlplusplus::tomlplusplus nlohmann_json::nlohmann_json"
  "trace      | trace              | base                             |"
  "model      | model              | base                             |"
  "cost       | cost               | model                            |"
  "schedule   | schedule           | model                            |"
  "timelines  | timelines          | schedule                         |"
  "ir         | ir                 | schedule cost                    |"
  "directives | directives         | ir timelines                     |"
  "passes     | passes             | ir                               |"
  "plan       | plan               | ir                               |"
  "compile    | compile            | directives passes plan           |"
  "sim        | sim                | plan trace timelines             |"
  "calibrate  | calibrate          | sim                              |"
  "search     | search             | compile sim                      | Threads::Threads"
  "recover    | recover            | search                           |"
  "comm       | comm               | base                             | Threads::Threads"
  "mpi        | comm/mpi           | comm                             | MPI::MPI_CXX"
  "comm_gpu   | comm/gpu           | comm                             | CUDA::cudart"
  "nccl       | comm/nccl/library  | comm_gpu                         | nccl::nccl CUDA::cudart"
  "stream     | runtime/stream     | base                             | Threads::Threads"
  "random     | runtime/random     | model                            |"
  "optimizer  | runtime/optimizer  | random                           |"
  "cuda       | runtime/cuda       | optimizer comm_gpu               | CUDA::cudart"
  "runtime    | runtime            | plan comm trace optimizer stream | libtorch::cpu"
  "gpu        | runtime/gpu        | runtime cuda nccl?               | libtorch::cuda?"
  "kernels    | kernels            | base                             | libtorch::cpu Threads::Threads"
  "capture    | capture            | runtime kernels                  |"
  "models     | models             | capture                          |"
  "checkpoint | checkpoint         | base                             | ZLIB::ZLIB Threads::Threads"
  "train_data | train/data         | base                             |"
  "train      | train              | train_data optimizer stream cost |"
  "train_loop | train/loop         | train models compile sim checkpoint |"
  "devices    | train/devices      | train_loop mpi? gpu?             |"
  "page       | page               | trace                            | ZLIB::ZLIB"
  "commands   | tools              | comm search recover calibrate train page checkpoint | CLI11::CLI11"
)

# The programs and the Python package: a folder each, and what it stands on.
set(PIPER_PROGRAMS
  "piper       | tools/start        | commands                         |"
  "piper-train | tools/training     | commands devices                 |"
)
set(PIPER_PYTHON_PACKAGE
  "python      | python             | devices page search              |"
)

# What may be missing. A file with_X.cc is compiled where X is here, without_X.cc where it is not.
set(PIPER_HAS_mpi 0)
set(PIPER_HAS_gpu 0)
set(PIPER_HAS_nccl 0)
if(TARGET MPI::MPI_CXX)
  set(PIPER_HAS_mpi 1)
endif()
if(TARGET libtorch::cuda)
  set(PIPER_HAS_gpu 1)
endif()
if(TARGET nccl::nccl)
  set(PIPER_HAS_nccl 1)
endif()

# piper_cells(ROW OUT...): the cells of a row, each a list.
function(piper_cells row)
  string(REPLACE "|" ";" cells "${row}")
  foreach(out ${ARGN})
    list(POP_FRONT cells cell)
    string(STRIP "${cell}" cell)
    string(REGEX REPLACE " +" ";" cell "${cell}")
    set(${out} "${cell}" PARENT_SCOPE)
  endforeach()
endfunction()

# The sources of a row's folder.
function(piper_sources folder out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc ${CMAKE_SOURCE_DIR}/src/${folder}/*.cu)
  foreach(row ${PIPER_LAYERS} ${PIPER_PROGRAMS})
    piper_cells("${row}" name other)
    if(other MATCHES "^${folder}/")
      list(FILTER sources EXCLUDE REGEX "/src/${other}/")
    endif()
  endforeach()
  foreach(part mpi gpu nccl)
    if(PIPER_HAS_${part})
      list(FILTER sources EXCLUDE REGEX "/without_${part}\\.cc$")
    else()
      list(FILTER sources EXCLUDE REGEX "/with_${part}\\.cc$")
    endif()
  endforeach()
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")  # newer CMakes would compile these at once too; they share local names
  set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The targets that a row names in its last two columns and that are here; empty, if one is missing that must be.
function(piper_links row out)
  piper_cells("${row}" name folder below libraries)
  set(links "")
  foreach(needed ${below} ${libraries})
    string(REGEX REPLACE "[?]$" "" found "${needed}")
    set(here 1)
    if(NOT found MATCHES "::")
      if(DEFINED PIPER_HAS_${found} AND needed MATCHES "[?]$")
        set(here ${PIPER_HAS_${found}})
      endif()
      set(found piper_${found})
    endif()
    if(here AND TARGET ${found})
      list(APPEND links ${found})
    elseif(NOT needed MATCHES "[?]$")
      set(links "")
      break()
    endif()
  endforeach()
  set(${out} ${links} PARENT_SCOPE)
endfunction()

# Headers that most files include, compiled once: for what needs no libtorch, and for what does.
function(piper_precompiled name)
  file(CONFIGURE OUTPUT ${name}.cc CONTENT "")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PUBLIC fmt::fmt tomlplusplus::tomlplusplus nlohmann_json::nlohmann_json ${ARGN})
  target_precompile_headers(${name} PRIVATE <fmt/format.h> <fmt/ranges.h> <algorithm> <functional> <map> <memory> <optional> <set>
    <string> <unordered_map> <variant> <vector>)
endfunction()
piper_precompiled(piper_headers)
if(TARGET libtorch::cpu)
  piper_precompiled(piper_torch_headers libtorch::cpu)
  target_precompile_headers(piper_torch_headers PRIVATE <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h>)
endif()

# What a row's target is compiled with: all its files at once, and the precompiled headers that fit.
function(piper_compile_as_layer target links)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${PIPER_UNITY} UNITY_BUILD_BATCH_SIZE 0)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${links})
  set(headers piper_headers)
  foreach(link ${links})
    get_property(needs_torch GLOBAL PROPERTY piper_needs_torch_${link})
    if(needs_torch OR link STREQUAL libtorch::cpu)
      set(headers piper_torch_headers)
    endif()
  endforeach()
  if(headers STREQUAL piper_torch_headers)
    set_property(GLOBAL PROPERTY piper_needs_torch_${target} 1)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

foreach(row ${PIPER_LAYERS} ${PIPER_PROGRAMS})
  piper_cells("${row}" name folder)
  piper_links("${row}" links)
  if(NOT links)
    continue()
  endif()
  piper_sources(${folder} sources)
  if(row IN_LIST PIPER_PROGRAMS)
    add_executable(${name} ${sources})
    piper_compile_as_layer(${name} "${links}")
  else()
    add_library(piper_${name} STATIC ${sources})
    piper_compile_as_layer(piper_${name} "${links}")
  endif()
endforeach()
