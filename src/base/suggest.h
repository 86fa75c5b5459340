// "did you mean": the nearest of the names that would have been right.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piper {

/// The candidate closest to `wrong` by edits (a swap of neighbours is one; upper case, and _ for -, are none), if it is
/// close enough to be meant.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

/// `did you mean "x"?`, else `known: a, b, c` (shortened), else nothing. For Diagnostic::help.
std::string did_you_mean(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace piper
