# Toolchain of the sanitizer presets: clang compiles sanitized code several times faster than g++.
# Takes clang 16 or a newer one whose sanitizer libraries are installed; otherwise leaves CMake's default compiler.
# -DCMAKE_CXX_COMPILER=... on the command line wins.
if(NOT CMAKE_CXX_COMPILER)
  foreach(version 16 21 20 19 18 17)
    find_program(PIPER_CLANG_${version} clang++-${version})
    file(GLOB runtime /usr/lib/llvm-${version}/lib/clang/*/lib/linux/libclang_rt.asan-*.a)
    if(PIPER_CLANG_${version} AND runtime)
      set(CMAKE_CXX_COMPILER ${PIPER_CLANG_${version}})
      break()
    endif()
  endforeach()
endif()
