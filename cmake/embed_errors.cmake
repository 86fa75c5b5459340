# The pages of docs/errors as C++ text, for `piper explain E405`.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/errors/E*.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
set(rows "")
foreach(file ${files})
  cmake_path(GET file STEM code)
  file(READ ${file} text)
  string(APPEND rows "      {\"${code}\", R\"page(${text})page\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/error_pages.cc @ONLY CONTENT [[
// Made by cmake/embed_errors.cmake.
#include "tools/list_command.h"

namespace piper {

const std::vector<ErrorPage>& error_pages() {
  static const std::vector<ErrorPage> pages = {
@rows@  };
  return pages;
}

}  // namespace piper
]])
target_sources(piper_commands PRIVATE ${CMAKE_BINARY_DIR}/error_pages.cc)
