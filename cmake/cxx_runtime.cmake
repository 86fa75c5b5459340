# share_cxx_runtime(TARGET LIBRARY): programs that link TARGET get the C++ runtime that the shared LIBRARY loads, and no second one.
# Some compilers have only libstdc++.a beside them and link it into every program. Beside a library that brings libstdc++.so.6 there are then two
# runtimes, with two sets of locales and two ideas of who frees what: the program aborts at the first object that crosses. So a small
# program is linked and looked at; if it has a runtime of its own, the shared one is linked by name; if that does not help, this fails with the reason.
function(share_cxx_runtime target library)
  execute_process(COMMAND ldd ${library} OUTPUT_VARIABLE loaded ERROR_QUIET)
  if(NOT loaded MATCHES "libstdc\\+\\+\\.so\\.6 => ([^ ]+)")
    return()  # it has another runtime, such as libc++: nothing to compare with
  endif()
  set(shared ${CMAKE_MATCH_1})
  piper_links_shared_runtime(as_it_is "" "")
  if(as_it_is)
    return()
  endif()
  foreach(options "" -nostdlib++)
    piper_links_shared_runtime(by_name "${options}" ${shared})
    if(by_name)
      message(STATUS "C++ runtime: the compiler links its own statically; linking ${shared}, as ${library} does")
      target_link_libraries(${target} INTERFACE ${shared})
      target_link_options(${target} INTERFACE ${options})
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "the C++ compiler ${CMAKE_CXX_COMPILER} links its own C++ runtime into every program, while PyTorch loads ${shared}: "
    "programs with both abort. Linking that file instead did not work: it may be older than the compiler. "
    "Use a compiler with a shared libstdc++ (on Debian and Ubuntu: g++), or build without PyTorch (cmake --preset core)")
endfunction()

# Whether a program linked so needs libstdc++.so.6 and defines none of its symbols.
function(piper_links_shared_runtime out options libraries)
  set(program ${CMAKE_BINARY_DIR}/CMakeFiles/cxx_runtime_program)
  file(REMOVE ${program})
  try_compile(linked SOURCE_FROM_CONTENT cxx_runtime.cc [[
#include <iostream>
#include <locale>
#include <sstream>
#include <stdexcept>
int main(int count, char** words) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << count << 0.5;
  if (text.str() == words[0]) throw std::runtime_error(text.str());
  std::cout << text.str();
}
]] LINK_OPTIONS ${options} LINK_LIBRARIES ${libraries} COPY_FILE ${program})
  set(shared FALSE)
  if(linked)
    execute_process(COMMAND ${CMAKE_READELF} --dynamic ${program} OUTPUT_VARIABLE needed)
    execute_process(COMMAND ${CMAKE_NM} --defined-only ${program} OUTPUT_VARIABLE defined ERROR_QUIET)
    # T, D, B: a definition of its own; W and V are templates that every program instantiates
    if(needed MATCHES "libstdc\\+\\+\\.so\\.6" AND NOT defined MATCHES " [TD] _ZNSt6locale")
      set(shared TRUE)
    endif()
  endif()
  set(${out} ${shared} PARENT_SCOPE)
endfunction()
