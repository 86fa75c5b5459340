# The files of clusters/ as C++ text, so that the program needs no files beside it.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/clusters/*.toml)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
set(rows "")
foreach(file ${files})
  cmake_path(GET file STEM name)
  file(READ ${file} text)
  string(APPEND rows "      {\"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/shipped_clusters.cc @ONLY CONTENT [[
// Made by cmake/embed_clusters.cmake.
#include "cost/load_cluster.h"

namespace piper {

const std::vector<ShippedCluster>& shipped_clusters() {
  static const std::vector<ShippedCluster> clusters = {
@rows@  };
  return clusters;
}

}  // namespace piper
]])
target_sources(piper_cost PRIVATE ${CMAKE_BINARY_DIR}/shipped_clusters.cc)
