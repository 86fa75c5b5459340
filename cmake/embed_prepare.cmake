# The Python files that prepare data as C++ text, one after the other, so that the program needs no file beside it.
set(folder ${CMAKE_SOURCE_DIR}/src/train/data/prepare)
set(script "import sys, types\n\n\ndef add(name, text):\n    module = sys.modules[name] = types.ModuleType(name)\n    module.__path__ = []\n    exec(compile(text, name, 'exec'), module.__dict__)\n\n\nadd('prepare', '')\n")
foreach(name refusal documents encoding answering conversations data_folder prepare)  # what a file imports comes before it
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${name}.py)
  file(READ ${folder}/${name}.py text)
  string(APPEND script "add('prepare.${name}', r'''${text}''')\n")
endforeach()
string(APPEND script "sys.exit(sys.modules['prepare.prepare'].main())\n")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/prepare_script.cc @ONLY CONTENT [[
// Made by cmake/embed_prepare.cmake.
#include "train/data/prepare/prepare_script.h"

namespace piper {

const char* const prepare_script = R"python(@script@)python";

}  // namespace piper
]])
target_sources(piper_train_data PRIVATE ${CMAKE_BINARY_DIR}/prepare_script.cc)
