#include "kernels/kernel_cache.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "base/hash.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

constexpr int text_version = 1;  // of what texts mean
constexpr const char *text_file = "text", *sums_file = "sums", *library_file = "kernel.so";

/// Inductor compiles for the CPU that it finds.
std::string cpu_features() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return {};
}

std::string key(const std::string& text) {
  static const std::string machine =
      fmt::format("{} {} {} {}", text_version, TORCH_VERSION, at::get_cpu_capability(), cpu_features());
  std::string out;
  for (const std::string_view half : {"first", "second"}) {
    StableHash hash;
    hash.add(half);
    hash.add(machine);
    hash.add(text);
    out += fmt::format("{:016x}", hash.value());
  }
  return out;
}

std::optional<std::string> contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string out{std::istreambuf_iterator<char>(in), {}};
  return in.bad() ? std::nullopt : std::optional(std::move(out));
}

bool write(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return !out.fail();
}

/// A line for each file of the folder but the sums themselves; none: one of them cannot be read.
std::optional<std::string> sums_of(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code problem;
  for (const fs::directory_entry& file : fs::directory_iterator(folder, problem))
    if (file.path().filename() != sums_file) names.insert(file.path().filename().string());
  std::string out;
  for (const std::string& name : names) {
    const auto bytes = contents(folder / name);
    if (!bytes) return std::nullopt;
    StableHash hash;
    hash.add(*bytes);
    out += fmt::format("{} {:016x}\n", name, hash.value());
  }
  return out;
}

/// Empty: the entry is sound.
std::string problem_of(const fs::path& entry, const std::string& text) {
  const auto known = contents(entry / sums_file), seen = sums_of(entry);
  if (!known) return "has no checksums";
  if (seen != known) return "is damaged: its checksums are wrong";
  if (contents(entry / text_file) != text) return "was made of something else";
  return fs::exists(entry / library_file) ? "" : "has no library";
}

CachePath not_possible(const fs::path& path, const std::string& what) {
  return {"", fmt::format("{} cannot be {}", path.string(), what)};
}

}  // namespace

std::string usual_kernel_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const fs::path base = cache && *cache ? fs::path(cache)
                        : home          ? fs::path(home) / ".cache"
                                        : fs::temp_directory_path();
  return (base / "piper" / "kernels").string();
}

std::string KernelCache::entry(const std::string& text) const {
  return (fs::path(folder_) / key(text)).string();
}

CachePath KernelCache::find(const std::string& text) const {
  const fs::path path = entry(text);
  std::error_code problem;
  if (!fs::exists(path, problem)) return {};
  if (const std::string why = problem_of(path, text); !why.empty())
    return {"", fmt::format("{} {}", path.string(), why)};
  return {(path / library_file).string(), ""};
}

CachePath KernelCache::begin(const std::string& text) const {
  static std::atomic<int> begun = 0;
  const fs::path path = fs::path(folder_) / fmt::format(".{}-{}-{}", key(text), getpid(), begun++);
  std::error_code problem;
  fs::remove_all(path, problem);
  fs::create_directories(path, problem);
  if (problem) return not_possible(path, "made: " + problem.message());
  if (!write(path / text_file, text)) return not_possible(path / text_file, "written");
  return {path.string(), ""};
}

CachePath KernelCache::finish(const std::string& begun, const std::string& text) const {
  const fs::path path = entry(text);
  std::error_code problem;
  std::set<fs::path> others;
  for (const fs::directory_entry& file : fs::directory_iterator(begun, problem))
    if (const std::string name = file.path().filename().string(); name != text_file && !name.starts_with("kernel."))
      others.insert(file.path());
  for (const fs::path& other : others) fs::remove_all(other, problem);
  const auto sums = sums_of(begun);
  if (!sums || !write(fs::path(begun) / sums_file, *sums)) return not_possible(fs::path(begun) / sums_file, "written");
  fs::rename(begun, path, problem);
  if (problem && fs::exists(path)) {
    if (problem_of(path, text).empty()) {
      abandon(begun);
      return {(path / library_file).string(), ""};
    }
    const fs::path damaged = begun + "-damaged";
    fs::rename(path, damaged, problem);
    fs::remove_all(damaged, problem);
    fs::rename(begun, path, problem);
  }
  if (problem) return not_possible(begun, "renamed: " + problem.message());
  return {(path / library_file).string(), ""};
}

void KernelCache::abandon(const std::string& begun) const {
  std::error_code problem;
  std::filesystem::remove_all(begun, problem);
}

}  // namespace piper
