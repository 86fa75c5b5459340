#include "tools/checkpoint_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/text_table.h"
#include "checkpoint/compare.h"
#include "checkpoint/export_model.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/folders.h"
#include "checkpoint/reader.h"
#include "tools/commands.h"

namespace piper {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// For machines: fields are documented in docs/json.md.
void put_json(const Json& json) {
  put(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json json_of(const Diagnostic& problem) {
  return Json::parse(render_json(problem));
}

std::string name_of(const std::string& folder) {
  const fs::path path(folder);
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

Json json_of(const RunState& state) {
  return {{"step", state.step},
          {"samples", state.samples},
          {"updates", state.updates},
          {"seed", state.seed},
          {"learning_rate", state.learning_rate},
          {"loss", state.loss},
          {"plan", fmt::format("{:016x}", state.plan)},
          {"program", state.program},
          {"configuration", state.configuration},
          {"extra", state.extra}};
}

/// The folder itself, or all checkpoints in it.
Result<std::vector<std::string>> checkpoints_at(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / piper_json_file, ignored) || step_of(name_of(folder))) return std::vector{folder};
  PIPER_TRY(const std::vector<CheckpointFolder> found, list_checkpoints(folder));
  if (found.empty())
    return error(ErrorCode::E901, {}, fmt::format("{} is not a checkpoint, and there is none in it", folder))
        .help("name a folder step-…, or the one that has such folders");
  std::vector<std::string> paths;
  for (const CheckpointFolder& checkpoint : found) paths.push_back(checkpoint.path);
  return paths;
}

void put_state(const RunState& state) {
  put(fmt::format("step {}: {} samples, {} updates, loss {}, learning rate {}, seed {}\n", state.step, state.samples,
                  state.updates, state.loss, state.learning_rate, state.seed));
  put(fmt::format("plan {:016x}, written by piper {}\n", state.plan, state.program));
  for (const auto& [key, value] : state.extra) put(fmt::format("{}: {}\n", key, value));
  put("\n");
}

void put_files(const FolderLayout& layout) {
  TextTable files({"file", "size", "tensors"});
  for (const StoredFile& file : layout.files)
    files.add({file.name, human_bytes(file.bytes), fmt::format("{}", file.tensors.size())});
  TextTable tensors({"tensor", "dtype", "shape", "file"});
  for (const StoredFile& file : layout.files)
    for (const TensorEntry& entry : file.tensors)
      tensors.add({entry.tensor.name, std::string(name(entry.tensor.dtype)),
                   fmt::format("[{}]", fmt::join(entry.tensor.sizes, ", ")), file.name});
  put(files.print() + "\n" + tensors.print());
}

Json json_of(const FolderLayout& layout) {
  Json files = Json::array();
  for (const StoredFile& file : layout.files) {
    Json tensors = Json::array();
    for (const TensorEntry& entry : file.tensors)
      tensors.push_back({{"name", entry.tensor.name},
                         {"dtype", name(entry.tensor.dtype)},
                         {"shape", entry.tensor.sizes},
                         {"begin", entry.begin},
                         {"bytes", entry.bytes}});
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"tensors", std::move(tensors)}});
  }
  return files;
}

void put_difference(const FolderDifference& difference) {
  for (const std::string& name : difference.only_first) put(fmt::format("only in the first: {}\n", name));
  for (const std::string& name : difference.only_second) put(fmt::format("only in the second: {}\n", name));
  for (const TypeDifference& type : difference.types)
    put(fmt::format("other type: {} is {} and {}\n", type.first.name, print_type(type.first), print_type(type.second)));
  if (!difference.values.empty()) {
    TextTable table({"tensor", "differing elements", "largest difference"});
    for (const TensorDifference& value : difference.values)
      table.add(
          {value.name, fmt::format("{}", value.elements), value.largest ? fmt::format("{:.3g}", *value.largest) : "-"});
    put(table.print());
  }
  put(fmt::format("{} of {} common tensors are equal\n", difference.equal,
                  difference.equal + std::ssize(difference.values) + std::ssize(difference.types)));
}

Json json_of(const FolderDifference& difference) {
  Json types = Json::array(), values = Json::array();
  for (const TypeDifference& type : difference.types)
    types.push_back(
        {{"name", type.first.name}, {"first", print_type(type.first)}, {"second", print_type(type.second)}});
  for (const TensorDifference& value : difference.values)
    values.push_back({{"name", value.name},
                      {"elements", value.elements},
                      {"largest", value.largest ? Json(*value.largest) : Json(nullptr)}});
  return {{"version", 1},
          {"equal", difference.none()},
          {"only_first", difference.only_first},
          {"only_second", difference.only_second},
          {"types", std::move(types)},
          {"values", std::move(values)}};
}

}  // namespace

int run(const CheckpointListCommand& command) {
  auto found = list_checkpoints(command.parent);
  if (!found) return report(command.format, command.color, found.error());
  TextTable table({"checkpoint", "samples", "loss", "size", "problem"});
  Json list = Json::array();
  for (const CheckpointFolder& checkpoint : *found) {
    const std::string name = name_of(checkpoint.path);
    auto reader = FolderReader::open(checkpoint.path);
    if (!reader) {
      table.add({name, "-", "-", "-", reader.error().message});
      list.push_back({{"folder", checkpoint.path}, {"step", checkpoint.step}, {"problem", json_of(reader.error())}});
      continue;
    }
    const RunState& state = (*reader)->state();
    const int64_t bytes = (*reader)->layout().bytes();
    table.add({name, fmt::format("{}", state.samples), fmt::format("{:.4f}", state.loss), human_bytes(bytes), ""});
    list.push_back({{"folder", checkpoint.path},
                    {"step", state.step},
                    {"samples", state.samples},
                    {"loss", state.loss},
                    {"bytes", bytes},
                    {"problem", nullptr}});
  }
  if (command.format == "json")
    put_json({{"version", 1}, {"checkpoints", std::move(list)}});
  else
    put(list.empty() ? fmt::format("no checkpoints in {}\n", command.parent) : table.print());
  return fine;
}

int run(const CheckpointShowCommand& command) {
  auto opened = FolderReader::open_any(command.folder);
  if (!opened) return report(command.format, command.color, opened.error());
  const FolderReader& reader = **opened;
  if (command.format == "json") {
    put_json({{"version", 1},
              {"state", reader.is_foreign() ? Json(nullptr) : json_of(reader.state())},
              {"files", json_of(reader.layout())}});
    return fine;
  }
  if (!reader.is_foreign()) put_state(reader.state());
  put_files(reader.layout());
  return fine;
}

int run(const CheckpointVerifyCommand& command) {
  auto found = checkpoints_at(command.folder);
  if (!found) return report(command.format, command.color, found.error());
  const bool json = command.format == "json";
  Json list = Json::array();
  bool all_sound = true;
  for (const std::string& path : *found) {
    const VerifiedFolder verified = FolderReader::open_verified(path);
    all_sound &= verified.problems.empty();
    Json problems = Json::array();
    for (const Diagnostic& problem : verified.problems) {
      problems.push_back(json_of(problem));
      if (!json) report_text(problem, command.color);
    }
    list.push_back({{"folder", path}, {"sound", verified.problems.empty()}, {"problems", std::move(problems)}});
    if (json) continue;
    if (verified.reader)
      put(fmt::format("{}: sound, {} in {} files\n", path, human_bytes(verified.reader->layout().bytes()),
                      verified.reader->layout().files.size()));
    else
      put(fmt::format("{}: damaged\n", path));
  }
  if (json) put_json({{"version", 1}, {"sound", all_sound}, {"checkpoints", std::move(list)}});
  return all_sound ? fine : refused;
}

int run(const CheckpointDiffCommand& command) {
  auto first = FolderReader::open_any(command.first);
  if (!first) return report(command.format, command.color, first.error());
  auto second = FolderReader::open_any(command.second);
  if (!second) return report(command.format, command.color, second.error());
  auto difference = diff(**first, **second);
  if (!difference) return report(command.format, command.color, difference.error());
  if (command.format == "json")
    put_json(json_of(*difference));
  else
    put_difference(*difference);
  return difference->none() ? fine : refused;
}

int run(const CheckpointExportCommand& command) {
  const VerifiedFolder verified = FolderReader::open_verified(command.folder);
  for (const Diagnostic& problem : verified.problems) report_text(problem, command.color);
  if (!verified.reader) return refused;
  if (auto done = export_model(*verified.reader, command.output); !done) {
    report_text(done.error(), command.color);
    return run_failed;
  }
  return fine;
}

}  // namespace piper
