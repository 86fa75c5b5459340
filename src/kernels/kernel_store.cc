#include "kernels/kernel_store.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/time_text.h"
#include "kernels/run_kernel.h"

namespace piper {

void KernelStore::say(const std::string& line) const {
  if (options_.say) options_.say("kernels: " + line);
}

void KernelStore::load(const KernelText& text, const std::string& library) {
  try {
    known_[text.text] = {load_kernel(library, text.device), ""};
  } catch (const c10::Error& problem) {
    fail(text, problem.what_without_backtrace());
  } catch (const std::exception& problem) {
    fail(text, problem.what());
  }
}

void KernelStore::fail(const KernelText& text, const std::string& problem) {
  known_[text.text] = {-1, problem};
  say(fmt::format("{} runs as recorded operators: {}", text.what, problem));
}

void KernelStore::build(const std::vector<KernelText>& texts) {
  const std::lock_guard lock(mutex_);
  std::vector<const KernelText*> missing;
  std::set<std::string> seen;
  for (const KernelText& text : texts) {
    if (known_.contains(text.text) || !seen.insert(text.text).second) continue;
    const CachePath found = cache_.find(text.text);
    if (!found.problem.empty()) say(found.problem + "; it is compiled again");
    if (found.path.empty())
      missing.push_back(&text);
    else
      load(text, found.path);
  }
  if (missing.empty()) return;

  std::vector<std::string> folders;
  std::vector<const KernelText*> begun;
  for (const KernelText* text : missing) {
    const CachePath folder = cache_.begin(text->text);
    if (folder.path.empty()) {
      fail(*text, folder.problem);
      continue;
    }
    folders.push_back(folder.path);
    begun.push_back(text);
  }
  const auto start = std::chrono::steady_clock::now();
  if (!begun.empty()) say(fmt::format("{} of {} are compiled, in {}", begun.size(), seen.size(), cache_.folder()));
  size_t compiled = 0;
  compile_kernels(options_.compiler, folders, [&](size_t i, const std::string& problem) {
    ++compiled;
    const CachePath library = problem.empty() ? cache_.finish(folders[i], begun[i]->text) : CachePath{"", problem};
    if (library.path.empty()) {
      cache_.abandon(folders[i]);
      return fail(*begun[i], library.problem);
    }
    ++compiled_;
    load(*begun[i], library.path);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    say(fmt::format("{} of {} after {}: {}", compiled, begun.size(), human_seconds(seconds.count()), begun[i]->what));
  });
}

KernelCount KernelStore::count() const {
  const std::lock_guard lock(mutex_);
  const auto failed = std::count_if(known_.begin(), known_.end(), [](const auto& item) { return !item.second.ok(); });
  return {known_.size(), compiled_, static_cast<size_t>(failed)};
}

Kernel KernelStore::find(const KernelText& text) {
  build({text});
  const std::lock_guard lock(mutex_);
  return known_.at(text.text);
}

void KernelStore::refuse(const KernelText& text, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (known_[text.text].ok()) fail(text, problem);
}

}  // namespace piper
