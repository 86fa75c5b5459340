#include "tools/restart.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/read_file.h"
#include "base/time_text.h"
#include "checkpoint/folders.h"
#include "tools/option_in.h"
#include "train/config.h"

namespace piper {
namespace {

std::string configuration_in(const std::vector<std::string>& train) {
  const auto found = std::ranges::find_if(train, [](const std::string& word) { return word.ends_with(".toml"); });
  return found == train.end() ? "" : *found;
}

/// Empty: the run saves none. None: the configuration cannot be read.
std::optional<std::string> checkpoint_folder(const std::vector<std::string>& train) {
  if (std::string given = option_in(train, "--checkpoints"); !given.empty()) return given;
  const auto file = read_file(configuration_in(train), "the configuration");
  if (!file) return {};
  const auto config = parse_train_config(*file);
  if (!config) return {};
  const auto& folder = config->run.checkpoints.folder;
  return folder ? folder->path : "";
}

/// A process knows the name of its host, which may lack the domain that the list has, or have one.
std::string without_domain(const std::string& name) {
  const bool is_address = name.find_first_not_of("0123456789.:") == std::string::npos;
  return is_address ? name : name.substr(0, name.find('.'));
}

/// `3.2 s`, or nothing if one of them is not known.
std::string between(const char* name, std::optional<double> from, std::optional<double> to) {
  return from && to ? fmt::format(", {} {}", name, human_seconds(std::max(*to - *from, 0.0))) : "";
}

}  // namespace

std::vector<std::string> resuming(const std::vector<std::string>& train) {
  std::vector<std::string> out;
  for (size_t i = 0; i < train.size(); ++i) {
    const std::string& word = train[i];
    if (word == "--fault") ++i;  // planted for the first time only
    if (word == "--fault" || word.starts_with("--fault=") || word == "--resume" || word.starts_with("--resume="))
      continue;
    out.push_back(word);
  }
  out.emplace_back("--resume");
  return out;
}

bool saves_checkpoints(const std::vector<std::string>& train) {
  const auto folder = checkpoint_folder(train);
  return !folder || !folder->empty();  // otherwise `piper train` says what is wrong
}

std::string newest_checkpoint(const std::vector<std::string>& train) {
  const auto folder = checkpoint_folder(train);
  if (!folder || folder->empty()) return "";
  const auto all = list_checkpoints(*folder);
  if (!all || all->empty()) return fmt::format("piper: there is no checkpoint in {} to resume from\n", *folder);
  return fmt::format("piper: the newest checkpoint is {}; --resume takes it\n", all->back().path);
}

std::vector<Host> without(const std::vector<Host>& hosts, const std::set<std::string>& blamed, int processes) {
  std::set<std::string> names;
  for (const std::string& name : blamed) names.insert(without_domain(name));
  std::vector<Host> out;
  int64_t slots = 0;
  for (const Host& host : hosts)
    if (!names.contains(without_domain(host.name))) {
      out.push_back(host);
      slots += slots_of(host);
    }
  return slots >= processes ? out : hosts;
}

std::string describe_restart(int restart, int restarts, const Supervised& failed, const Supervised& again) {
  const int64_t first = again.first_step.value_or(0), lost = std::max<int64_t>(failed.last_step.value_or(0) - first, 0);
  const JobTimes &before = failed.times, &after = again.times;
  // a launcher may end a job before that can say why
  const std::string end = before.failed ? between("noticed within", before.last_step_known, before.failed) +
                                              between("ended", before.failed, before.ended)
                                        : between("noticed and ended", before.last_step_known, before.ended);
  return fmt::format("restart {} of {}: resumes after step {}, repeats {} step{}{}{}{}{}\n", restart, restarts, first,
                     lost, lost == 1 ? "" : "s", end, between("started", before.ended, after.begun),
                     between("planned and read", after.begun, after.first_step_known),
                     between("first step", after.first_step_known, after.second_step_known));
}

}  // namespace piper
