// The Python text behind `piper data`.
#pragma once

namespace piper {

/// For `python -c`; its argument is a command as JSON, see prepare.py.
extern const char* const prepare_script;

}  // namespace piper
