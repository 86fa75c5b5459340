#include "checkpoint/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/invariant.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/problems.h"
#include "checkpoint/remove_folder.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

/// All of its bytes belong to the file from now on, so that a full disk is noticed here. Not every file system can do
/// that; there the file only gets its size.
int reserve(int descriptor, int64_t bytes) {
  if (bytes == 0 || fallocate(descriptor, 0, 0, bytes) == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return -1;
  return ftruncate(descriptor, bytes);
}

}  // namespace

FolderWriter::FolderWriter(const std::string& parent, int64_t step, std::shared_ptr<const FolderLayout> layout,
                           const FileCalls& calls)
    : parent_(parent),
      name_(checkpoint_name(step)),
      partial_(fmt::format("{}/{}{}", parent, name_, partial_suffix)),
      layout_(std::move(layout)),
      calls_(calls),
      descriptors_(layout_->files.size(), -1) {}

FolderWriter::~FolderWriter() {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

Result<std::unique_ptr<FolderWriter>> FolderWriter::prepare(const std::string& parent, int64_t step,
                                                            std::shared_ptr<const FolderLayout> layout,
                                                            const FileCalls& calls) {
  std::unique_ptr<FolderWriter> writer(new FolderWriter(parent, step, std::move(layout), calls));
  writer->prepared_ = true;
  if (auto made = writer->make_folder(); !made) {
    (void)writer->abandon();  // a disk that was full has room again; the reason stays the first
    return std::move(made.error());
  }
  return writer;
}

Result<std::unique_ptr<FolderWriter>> FolderWriter::open(const std::string& parent, int64_t step,
                                                         std::shared_ptr<const FolderLayout> layout,
                                                         const FileCalls& calls) {
  std::unique_ptr<FolderWriter> writer(new FolderWriter(parent, step, std::move(layout), calls));
  if (access(writer->partial_.c_str(), W_OK) != 0) return cannot_write(writer->partial_, errno);
  return writer;
}

/// With all folders above it. What was made is on the disk, or a checkpoint in it would not be.
Checked FolderWriter::make_parent(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode) ? Ok{} : Checked(cannot_write(path, ENOTDIR));
  const std::string above = fs::path(path).parent_path();
  if (above != path) PIPER_CHECK(make_parent(above));
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return cannot_write(path, errno);
  return sync_folder(above);
}

Checked FolderWriter::make_folder() {
  PIPER_CHECK(make_parent(fs::absolute(parent_)));
  PIPER_CHECK(remove_folder(partial_));
  if (mkdir(partial_.c_str(), 0777) != 0) return cannot_write(partial_, errno);
  for (int file = 0; file < std::ssize(layout_->files); ++file) PIPER_CHECK(make_file(file));
  sizes_.clear();  // what users of the class write is counted
  return Ok{};
}

Checked FolderWriter::make_file(int file) {
  const StoredFile& stored = layout_->files[static_cast<size_t>(file)];
  const std::string path = partial_ + "/" + stored.name;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot_write(path, errno);
  descriptors_[static_cast<size_t>(file)] = descriptor;
  if (reserve(descriptor, stored.bytes) != 0) return cannot_write(path, errno);
  return write(file, 0, std::as_bytes(std::span(stored.head)));
}

Result<int> FolderWriter::descriptor(int file) {
  const std::lock_guard lock(mutex_);
  int& descriptor = descriptors_[static_cast<size_t>(file)];
  if (descriptor >= 0) return descriptor;
  const std::string path = partial_ + "/" + layout_->files[static_cast<size_t>(file)].name;
  descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, errno);
  return descriptor;
}

Checked FolderWriter::write_all(int descriptor, const std::string& path, std::span<const std::byte> bytes, int64_t at) {
  while (!bytes.empty()) {
    const ssize_t written = calls_.pwrite(descriptor, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return cannot_write(path, written < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += written;
  }
  return Ok{};
}

Checked FolderWriter::write(int file, int64_t begin, std::span<const std::byte> bytes) {
  const StoredFile& stored = layout_->files[static_cast<size_t>(file)];
  invariant(begin >= 0 && begin + std::ssize(bytes) <= stored.bytes, "what is written is within the file");
  if (bytes.empty()) return Ok{};
  PIPER_TRY(const int to, descriptor(file));
  std::vector<SummedRange> summed;
  while (!bytes.empty()) {  // a block at a time: what was just summed is in the cache
    const int64_t room = block_bytes - begin % block_bytes;
    const auto piece = bytes.first(std::min(bytes.size(), static_cast<size_t>(room)));
    summed.push_back({file, crc_of(piece), begin, std::ssize(piece)});
    PIPER_CHECK(write_all(to, partial_ + "/" + stored.name, piece, begin));
    begin += std::ssize(piece);
    bytes = bytes.subspan(piece.size());
  }
  const std::lock_guard lock(mutex_);
  ranges_.insert(ranges_.end(), summed.begin(), summed.end());
  for (const SummedRange& piece : summed) ++sizes_[piece.bytes];
  return Ok{};
}

Checked FolderWriter::sync() {
  std::vector<int> opened;
  {
    const std::lock_guard lock(mutex_);
    opened = descriptors_;
  }
  for (size_t file = 0; file < opened.size(); ++file)
    if (opened[file] >= 0 && calls_.fsync(opened[file]) != 0)
      return cannot_write(partial_ + "/" + layout_->files[file].name, errno);
  return Ok{};
}

Result<std::vector<SummedRange>> FolderWriter::ranges() const {
  const std::lock_guard lock(mutex_);
  return merge(*layout_, ranges_);
}

Checked FolderWriter::sync_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return cannot_write(path, errno);
  const int failed = calls_.fsync(folder) != 0 ? errno : 0;
  close(folder);
  return failed ? Checked(cannot_write(path, failed)) : Ok{};
}

Checked FolderWriter::write_piper_json(const std::string& text) {
  const std::string path = fmt::format("{}/{}", partial_, piper_json_file);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return cannot_write(path, errno);
  auto written = write_all(descriptor, path, std::as_bytes(std::span(text)), 0);
  if (written && calls_.fsync(descriptor) != 0) written = cannot_write(path, errno);
  close(descriptor);
  return written;
}

Checked FolderWriter::commit(const RunState& state, std::vector<SummedRange> ranges) {
  invariant(prepared_, "the process that prepared a checkpoint commits it");
  invariant(checkpoint_name(state.step) == name_, "the state is that of the step");
  PIPER_TRY(const std::vector<BlockSums> sums, join(*layout_, std::move(ranges)));
  PiperJson json{state, {}};
  for (size_t file = 0; file < sums.size(); ++file)
    json.files.push_back({layout_->files[file].name, layout_->files[file].bytes, sums[file]});
  PIPER_CHECK(sync());
  PIPER_CHECK(write_piper_json(print(json)));
  PIPER_CHECK(sync_folder(partial_));
  return give_name();
}

/// One call: before it there is the folder that had the name, or none; after it the new one.
Checked FolderWriter::give_name() {
  const std::string path = parent_ + "/" + name_;
  if (access(path.c_str(), F_OK) != 0) {
    if (calls_.rename(partial_.c_str(), path.c_str()) != 0) return cannot_write(path, errno);
    return sync_folder(parent_);
  }
  if (calls_.exchange(partial_.c_str(), path.c_str()) == 0) {
    PIPER_CHECK(sync_folder(parent_));
    return remove_folder(partial_);
  }
  // a file system without exchanges: for a moment nothing has the name
  const std::string removed = fmt::format("{}{}", path, removed_suffix);
  PIPER_CHECK(remove_folder(removed));
  if (calls_.rename(path.c_str(), removed.c_str()) != 0) return cannot_write(path, errno);
  if (calls_.rename(partial_.c_str(), path.c_str()) != 0) return cannot_write(path, errno);
  PIPER_CHECK(sync_folder(parent_));
  return remove_folder(removed);
}

Checked FolderWriter::abandon() {
  return remove_folder(partial_);
}

WriteSizes FolderWriter::sizes() const {
  const std::lock_guard lock(mutex_);
  return sizes_;
}

WriteCounts count(const WriteSizes& sizes) {
  WriteCounts out;
  for (const auto& [size, count] : sizes) {
    out.bytes += size * count;
    out.writes += count;
  }
  if (out.writes == 0) return out;
  out.smallest = sizes.begin()->first;
  int64_t seen = 0;
  for (const auto& [size, count] : sizes) {
    seen += count;
    if (seen * 2 < out.writes) continue;
    out.median = size;
    break;
  }
  return out;
}

}  // namespace piper
