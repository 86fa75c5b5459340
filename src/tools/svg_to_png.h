// Pictures as pixels: programs that may be installed draw them.
#pragma once

#include <string>

#include "base/result.h"

namespace piper {

/// The bytes of a PNG file of the picture, which says its width and height. By rsvg-convert, or a headless Chromium.
/// E108: neither is installed, or what is there fails.
Result<std::string> svg_to_png(const std::string& svg);

}  // namespace piper
