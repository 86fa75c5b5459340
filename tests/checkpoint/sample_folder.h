// Checkpoints to test with: tensors with known bytes, written by as many writers as a test likes.
#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/folders.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"

namespace piper::checkpoint_tests {

/// A fresh folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using LayoutPtr = std::shared_ptr<const FolderLayout>;
using Random = std::mt19937_64;

/// From 0 to `most`.
int64_t up_to(Random& random, int64_t most);

/// Two small model tensors and the moments of one.
LayoutPtr small_layout();
/// Some tensors of all element types, among them empty ones and one of several blocks; in one to many files.
LayoutPtr random_layout(Random& random);

/// The bytes of a tensor at a step; those of any two tensors or steps differ.
std::vector<std::byte> bytes_of_tensor(const std::string& tensor, int64_t bytes, int64_t step);
RunState state_at(int64_t step);

/// The system's calls without fsync, which takes most of the time and changes nothing that a running machine sees.
extern const FileCalls unsynced_calls;

/// All tensors, one write each, by one writer. Throws where something fails.
void save(const std::string& parent, int64_t step, const LayoutPtr& layout, const FileCalls& calls = unsynced_calls);
struct NewestSound {
  std::unique_ptr<FolderReader> reader;  // nothing: there is no sound checkpoint
  std::vector<Diagnostic> left_out;      // why newer ones were not taken, newest first: one reason each
};
/// From the newest to the oldest, until one has every byte in order.
NewestSound newest_sound(const std::string& parent);
/// Every tensor has the bytes of the step.
void expect_saved(const FolderReader& reader, const LayoutPtr& layout, int64_t step);

/// Of what a folder holds.
std::set<std::string> names_in(const std::string& folder);
std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);
/// One bit of one byte.
void flip(const std::string& path, int64_t byte, int bit);

}  // namespace piper::checkpoint_tests
