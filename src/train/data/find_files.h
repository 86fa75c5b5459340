// Which files a user means.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/data/named_file.h"

namespace piper {

/// A file is itself; a folder is all files below it; a pattern is all files that match. In names `*` stands for any
/// characters and `?` for one; the folder `**` for any number of folders. Hidden files and folders are left out unless
/// they are named, links to folders are not followed. Sorted, so that every machine sees the same order.
/// E108: not there, nothing matches, or a folder cannot be read.
Result<std::vector<NamedFile>> find_files(const NamedFile& file);

/// Whether a name without `/` matches.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace piper
