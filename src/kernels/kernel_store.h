// Compiled kernels by the text of what they do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/compile_kernels.h"
#include "kernels/kernel_cache.h"

namespace piper {

struct KernelOptions {
  std::string cache = usual_kernel_cache();  // folder
  KernelCompiler compiler;
  std::string gpu = {};  // what kernels for GPUs are made for: its name and architecture
  /// What users should know, a line each; from any thread, one at a time.
  std::function<void(const std::string& line)> say = nullptr;
};

/// Something to compile.
struct KernelText {
  std::string text;
  std::string what;    // for people: a chunk and its pass
  std::string device;  // cpu or cuda
};

/// A loaded kernel, or none.
struct Kernel {
  int64_t number = -1;  // as piper::run_kernel knows it
  std::string problem;  // why there is none
  bool ok() const { return number >= 0; }
};

struct KernelCount {
  size_t kernels = 0;   // distinct ones that were asked for
  size_t compiled = 0;  // of these, by this process
  size_t failed = 0;    // of these: there is none
};

/// Any thread may use it. What was said once is not said again.
class KernelStore {
 public:
  explicit KernelStore(KernelOptions options) : cache_(options.cache), options_(std::move(options)) {}

  /// Finds or compiles all of them, in parallel, and loads them. What cannot be compiled is said.
  void build(const std::vector<KernelText>& texts);
  /// Builds it where `build` has not.
  Kernel find(const KernelText& text);
  /// A kernel that was built turns out not to do what it should: from now on it has a problem.
  void refuse(const KernelText& text, const std::string& problem);
  KernelCount count() const;
  const std::string& gpu() const { return options_.gpu; }

 private:
  void say(const std::string& line) const;
  void load(const KernelText& text, const std::string& library);
  void fail(const KernelText& text, const std::string& problem);

  KernelCache cache_;
  KernelOptions options_;
  mutable std::mutex mutex_;
  size_t compiled_ = 0;
  std::map<std::string, Kernel> known_;  // by text
};

}  // namespace piper
