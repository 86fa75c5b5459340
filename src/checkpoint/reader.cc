#include "checkpoint/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/in_parallel.h"
#include "base/invariant.h"
#include "checkpoint/input_file.h"
#include "checkpoint/problems.h"
#include "checkpoint/unique_json.h"

namespace piper {
namespace {

constexpr int64_t largest_json = 1'000'000'000;

bool holds_tensors(std::string_view file) {
  return file.ends_with(".safetensors");
}

/// The bytes of a block of a file.
int64_t bytes_in_block(int64_t file_bytes, int64_t block) {
  return std::min(block_bytes, file_bytes - block * block_bytes);
}

std::unique_ptr<std::byte[]> block_buffer() {
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(block_bytes));
}

}  // namespace

struct FolderReader::OpenFile {
  InputFile file;
  std::optional<BlockSums> sums;              // none: a foreign file
  std::unique_ptr<std::atomic<bool>[]> good;  // by block: its sum is right

  OpenFile(InputFile opened, std::optional<BlockSums> known) : file(std::move(opened)), sums(std::move(known)) {
    if (sums) good = std::make_unique<std::atomic<bool>[]>(sums->size());
  }
};

FolderReader::FolderReader(std::string folder) : folder_(std::move(folder)) {}
FolderReader::~FolderReader() = default;

std::string FolderReader::path_of(std::string_view name) const {
  return fmt::format("{}/{}", folder_, name);
}

Result<std::unique_ptr<FolderReader>> FolderReader::open(const std::string& folder) {
  std::unique_ptr<FolderReader> reader(new FolderReader(folder));
  const std::vector<Diagnostic> problems = reader->load();
  if (auto good = reader->check_heads(); !good) return std::move(good.error());  // the cause, if it is one
  if (!problems.empty()) return problems[0];
  return reader;
}

VerifiedFolder FolderReader::open_verified(const std::string& folder) {
  VerifiedFolder out{std::unique_ptr<FolderReader>(new FolderReader(folder)), {}};
  out.problems = out.reader->load();
  for (Diagnostic& problem : out.reader->verify()) out.problems.push_back(std::move(problem));
  if (!out.problems.empty()) out.reader.reset();
  return out;
}

Result<std::unique_ptr<FolderReader>> FolderReader::open_foreign(const std::string& folder) {
  std::unique_ptr<FolderReader> reader(new FolderReader(folder));
  PIPER_CHECK(reader->load_foreign());
  return reader;
}

Result<std::unique_ptr<FolderReader>> FolderReader::open_any(const std::string& folder) {
  auto own = open(folder);
  if (own || own.error().code != ErrorCode::E901) return own;
  auto foreign = open_foreign(folder);
  return foreign ? std::move(foreign) : std::move(own);
}

/// Everything but sums. What is wrong with one file does not hide what is wrong with another.
std::vector<Diagnostic> FolderReader::load() {
  const std::string path = path_of(piper_json_file);
  if (std::error_code ignored; !std::filesystem::exists(path, ignored))
    return {not_a_checkpoint(folder_, std::filesystem::is_directory(folder_, ignored)
                                          ? fmt::format("it has no {}", piper_json_file)
                                          : "there is no such folder")};
  auto text = read_small_file(path, largest_json);
  if (!text) return {text.error()};
  auto json = parse_piper_json(path, *text);
  if (!json) return {json.error()};
  state_ = std::move(json->state);
  std::vector<Diagnostic> problems;
  for (const FileSums& sums : json->files)
    if (auto loaded = load_file(sums); !loaded) problems.push_back(std::move(loaded.error()));
  return problems;
}

Checked FolderReader::load_file(const FileSums& sums) {
  const std::string path = path_of(sums.name);
  auto file = InputFile::open(path);
  if (!file && file.error().code == ErrorCode::E901) return damaged(path, "the file is missing");
  if (!file) return std::move(file.error());
  if (file->bytes() != sums.bytes)
    return damaged(path, fmt::format("it has {} bytes when it should have {}", file->bytes(), sums.bytes));
  layout_.files.push_back({sums.name, {}, {}, sums.bytes});
  open_.emplace_back(std::move(*file), sums.blocks);
  if (!holds_tensors(sums.name)) return Ok{};
  PIPER_TRY(SafetensorsHeader header, read_header(path));
  return add_tensors(std::move(header.tensors));
}

/// To the file that was added last.
Checked FolderReader::add_tensors(std::vector<TensorEntry> tensors) {
  StoredFile& file = layout_.files.back();
  file.tensors = std::move(tensors);
  for (const TensorEntry& entry : file.tensors)
    if (!layout_.places.try_emplace(entry.tensor.name, TensorPlace{static_cast<int>(layout_.files.size()) - 1, entry})
             .second)
      return damaged(path_of(file.name), fmt::format("tensor \"{}\" is in another file too", entry.tensor.name));
  return Ok{};
}

Checked FolderReader::load_foreign() {
  std::error_code ignored;
  const std::string index = path_of(index_file);
  if (!std::filesystem::exists(index, ignored)) {
    constexpr std::string_view only = "model.safetensors";
    if (!std::filesystem::exists(path_of(only), ignored))
      return error(ErrorCode::E901, {},
                   fmt::format("{} is no model folder: it has neither {} nor {}", folder_, index_file, only));
    return add_file(std::string(only));
  }
  PIPER_TRY(const std::string text, read_small_file(index, largest_json));
  PIPER_TRY(const nlohmann::json json, parse_json_object(index, "it", text));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object()) return damaged(index, "it has no weight_map");
  std::set<std::string> names;
  for (const nlohmann::json& name : *map) {
    if (!name.is_string() || name.get_ref<const std::string&>().find('/') != std::string::npos)
      return damaged(index, fmt::format("{} is no name of a file", name.dump()));
    names.insert(name.get<std::string>());
  }
  for (const std::string& name : names) PIPER_CHECK(add_file(name));
  for (const auto& [tensor, file] : map->items()) {
    const TensorPlace* place = layout_.find(tensor);
    if (!place || layout_.files[static_cast<size_t>(place->file)].name != file.get_ref<const std::string&>())
      return damaged(path_of(file.get_ref<const std::string&>()),
                     fmt::format("tensor \"{}\" is not in it, although {} says so", tensor, index_file));
  }
  return Ok{};
}

Checked FolderReader::add_file(const std::string& name) {
  PIPER_TRY(InputFile file, InputFile::open(path_of(name)));
  PIPER_TRY(SafetensorsHeader header, read_header(path_of(name)));
  layout_.files.push_back({name, {}, {}, file.bytes()});
  open_.emplace_back(std::move(file), std::nullopt);
  return add_tensors(std::move(header.tensors));
}

const RunState& FolderReader::state() const {
  invariant(state_.has_value(), "only a checkpoint has a state");
  return *state_;
}

/// The blocks that say what the others are: headers, and whole texts.
Checked FolderReader::check_heads() const {
  for (size_t file = 0; file < open_.size(); ++file) {
    const StoredFile& stored = layout_.files[file];
    // a header that cannot be read ends nobody knows where; its first block is wrong, or the file was written wrongly
    const int64_t head = !holds_tensors(stored.name) ? stored.bytes
                         : stored.tensors.empty()    ? std::min(stored.bytes, block_bytes)
                                                     : stored.tensors.front().begin;
    for (int64_t block = 0; block < blocks_in(head); ++block) PIPER_CHECK(verify_block(file, block));
  }
  return Ok{};
}

std::vector<Diagnostic> FolderReader::verify() const {
  struct Block {
    size_t file;
    int64_t block;
    std::optional<Diagnostic> problem;
  };
  std::vector<Block> blocks;
  for (size_t file = 0; file < open_.size(); ++file)
    for (int64_t block = 0; block < blocks_in(layout_.files[file].bytes); ++block) blocks.push_back({file, block, {}});
  (void)in_parallel(blocks.size(), std::max(1u, std::thread::hardware_concurrency()), [&](size_t i) -> Checked {
    if (auto good = verify_block(blocks[i].file, blocks[i].block); !good) blocks[i].problem = std::move(good.error());
    return Ok{};  // all are looked at
  });
  std::vector<Diagnostic> problems;
  for (Block& block : blocks)
    if (block.problem) problems.push_back(std::move(*block.problem));
  return problems;
}

Checked FolderReader::verify_block(size_t file, int64_t block) const {
  const OpenFile& open = open_[file];
  if (!open.sums || open.good[block]) return Ok{};
  const auto buffer = block_buffer();
  const std::span bytes(buffer.get(), static_cast<size_t>(bytes_in_block(layout_.files[file].bytes, block)));
  PIPER_CHECK(open.file.read(block * block_bytes, bytes));
  return check_sum(file, block, bytes);
}

/// `bytes`: the whole block.
Checked FolderReader::check_sum(size_t file, int64_t block, std::span<const std::byte> bytes) const {
  const OpenFile& open = open_[file];
  if (crc_of(bytes) == (*open.sums)[static_cast<size_t>(block)]) {
    open.good[block] = true;
    return Ok{};
  }
  const int64_t begin = block * block_bytes, end = begin + std::ssize(bytes);
  const std::string tensors = tensors_in(layout_.files[file], begin, end);
  return damaged(open.file.path(), fmt::format("bytes {} to {}{} have changed since they were written", begin, end,
                                               tensors.empty() ? "" : fmt::format(" ({})", tensors)))
      .help("continue from another checkpoint: piper checkpoint verify shows which are sound");
}

Checked FolderReader::read_in_block(size_t file, int64_t begin, std::span<std::byte> to) const {
  const OpenFile& open = open_[file];
  const int64_t block = begin / block_bytes;
  if (!open.sums || open.good[block]) return open.file.read(begin, to);
  const int64_t whole = bytes_in_block(layout_.files[file].bytes, block);
  if (std::ssize(to) == whole) {
    PIPER_CHECK(open.file.read(begin, to));
    return check_sum(file, block, to);
  }
  const auto buffer = block_buffer();
  const std::span bytes(buffer.get(), static_cast<size_t>(whole));
  PIPER_CHECK(open.file.read(block * block_bytes, bytes));
  PIPER_CHECK(check_sum(file, block, bytes));
  std::memcpy(to.data(), bytes.data() + begin % block_bytes, to.size());
  return Ok{};
}

Checked FolderReader::read(std::string_view tensor, int64_t first, std::span<std::byte> to) const {
  const TensorPlace* place = layout_.find(tensor);
  invariant(place != nullptr, "only tensors of the folder are read");
  invariant(first >= 0 && first + std::ssize(to) <= place->entry.bytes, "what is read is within the tensor");
  for (int64_t at = place->entry.begin + first; !to.empty();) {
    const int64_t room = block_bytes - at % block_bytes;
    const auto piece = to.first(std::min(to.size(), static_cast<size_t>(room)));
    PIPER_CHECK(read_in_block(static_cast<size_t>(place->file), at, piece));
    at += std::ssize(piece);
    to = to.subspan(piece.size());
  }
  return Ok{};
}

}  // namespace piper
