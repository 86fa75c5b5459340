// Compiled kernels on disk: a folder for each, named after a hash of all that it depends on, with the files
//   text        what was compiled
//   kernel.so   the library, and whatever else of it AOTInductor puts beside
//   sums        a line for each of those files: name and hash
#pragma once

#include <string>

namespace piper {

/// A file or folder, or why it cannot be had.
struct CachePath {
  std::string path, problem;
};

class KernelCache {
 public:
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }

  /// The library of a text; neither path nor problem: there is none. An entry that is damaged, or of something else, is
  /// a problem.
  CachePath find(const std::string& text) const;

  /// A folder beside the entries, with the file `text`.
  CachePath begin(const std::string& text) const;
  /// Makes it the entry of its text: removes what is not needed to run, adds the sums, renames. Where another process
  /// was faster, its entry stays if it is sound. Gives the library.
  CachePath finish(const std::string& begun, const std::string& text) const;
  /// Nothing came of it.
  void abandon(const std::string& begun) const;

 private:
  std::string entry(const std::string& text) const;

  std::string folder_;
};

/// `$XDG_CACHE_HOME/piper/kernels`, or `~/.cache/piper/kernels`.
std::string usual_kernel_cache();

}  // namespace piper
