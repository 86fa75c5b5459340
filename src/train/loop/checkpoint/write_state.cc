#include "train/loop/checkpoint/write_state.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/in_parallel.h"

namespace piper {
namespace {

/// Bytes of a tensor that one process has, one after another in the file.
struct ByteRun {
  int rank = 0, device = 0;
  int64_t begin = 0;  // in the tensor
  int64_t part = 0;   // in the device's part of the bucket, in bytes
  int64_t bytes = 0;
  int64_t end() const { return begin + bytes; }
};

class StateWriter {
 public:
  StateWriter(const Plan& plan, const Snapshot& snapshot, Writers& writers, FolderWriter& files)
      : plan_(plan), snapshot_(snapshot), writers_(writers), files_(files) {}

  void write(const StateTensor& tensor, const std::vector<StatePiece>& pieces, int64_t number) {
    const int64_t element = bytes_of(tensor.stored.dtype);
    std::vector<ByteRun> runs;
    bool mine = false;
    for (const StatePiece& piece : pieces) {
      const int rank = writers_.rank_of(piece.device, device_count(plan_));
      runs.push_back({rank, piece.device, piece.whole * element, piece.part * element, piece.count * element});
      mine = mine || rank == writers_.rank();
    }
    if (!mine) return;
    place_ = *files_.layout().find(tensor.stored.name);
    bucket_ = tensor.place.bucket;
    kept_ = tensor.kept;
    element_ = element;
    const int64_t end = runs.empty() ? 0 : runs.back().end();
    size_t next = 0;
    for (int64_t begin = 0; begin < end;) {  // block by block of the file
      const int64_t border =
          (place_.entry.begin + begin) / block_bytes * block_bytes + block_bytes - place_.entry.begin;
      const int64_t until = std::min(border, end);
      std::vector<ByteRun> block;
      for (; next < runs.size() && runs[next].begin < until; ++next) {
        ByteRun run = runs[next];
        if (run.begin < begin) cut_front(run, begin);
        if (run.end() > until) {
          run.bytes = until - run.begin;
          block.push_back(run);
          break;  // its rest is in the next block
        }
        block.push_back(run);
      }
      write_block(block, (number << 32) | (begin / block_bytes));
      begin = until;
    }
  }

  Checked result() const { return result_; }

 private:
  static void cut_front(ByteRun& run, int64_t begin) {
    const int64_t gone = begin - run.begin;
    run.begin += gone;
    run.part += gone;
    run.bytes -= gone;
  }

  /// By process: into how many pieces of the file its bytes of the block fall.
  static std::map<int, int> pieces_by_rank(const std::vector<ByteRun>& block) {
    std::map<int, int> out;
    for (size_t i = 0; i < block.size(); ++i)
      if (i == 0 || block[i - 1].rank != block[i].rank) ++out[block[i].rank];
    return out;
  }

  void write_block(const std::vector<ByteRun>& block, int64_t sequence) {
    const std::map<int, int> pieces = pieces_by_rank(block);
    if (!pieces.contains(writers_.rank())) return;
    const bool interleaved =
        pieces.size() > 1 && std::ranges::any_of(pieces, [](const auto& p) { return p.second > 1; });
    if (!interleaved) {
      for (size_t first = 0; first < block.size();) {
        size_t past = first + 1;
        while (past < block.size() && block[past].rank == block[first].rank) ++past;
        if (block[first].rank == writers_.rank()) write_runs({block.data() + first, past - first});
        first = past;
      }
      return;
    }
    const auto owner = std::next(pieces.begin(), static_cast<int64_t>(static_cast<size_t>(sequence) % pieces.size()));
    if (owner->first == writers_.rank())
      collect_and_write(block, pieces, sequence);
    else
      writers_.send(owner->first, sequence, gathered(block));
  }

  /// What this process has of them, one after another.
  std::span<const std::byte> gathered(std::span<const ByteRun> runs) {
    buffer_.clear();
    for (const ByteRun& run : runs)
      if (run.rank == writers_.rank()) {
        const std::span<const std::byte> bytes = here(run);
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
      }
    return buffer_;
  }

  void write_runs(std::span<const ByteRun> runs) {
    put(runs[0].begin, runs.size() == 1 ? here(runs[0]) : gathered(runs));
  }

  void collect_and_write(const std::vector<ByteRun>& block, const std::map<int, int>& pieces, int64_t sequence) {
    buffer_.resize(static_cast<size_t>(block.back().end() - block.front().begin));
    for (const auto& [rank, count] : pieces) {
      int64_t bytes = 0;
      for (const ByteRun& run : block) bytes += run.rank == rank ? run.bytes : 0;
      received_.resize(static_cast<size_t>(bytes));
      if (rank != writers_.rank()) writers_.receive(rank, sequence, received_);
      size_t taken = 0;
      for (const ByteRun& run : block) {
        if (run.rank != rank) continue;
        const std::byte* from = rank == writers_.rank() ? here(run).data() : received_.data() + taken;
        std::memcpy(buffer_.data() + (run.begin - block.front().begin), from, static_cast<size_t>(run.bytes));
        taken += static_cast<size_t>(run.bytes);
      }
    }
    put(block.front().begin, buffer_);
  }

  std::span<const std::byte> here(const ByteRun& run) const {
    // a block may begin inside of an element
    const int64_t first = run.part / element_, last = (run.part + run.bytes - 1) / element_;
    return snapshot_.at(run.device, bucket_, kept_, first, last - first + 1)
        .subspan(static_cast<size_t>(run.part - first * element_), static_cast<size_t>(run.bytes));
  }

  void put(int64_t begin, std::span<const std::byte> bytes) {
    if (!result_) return;
    result_ = files_.write(place_.file, place_.entry.begin + begin, bytes);
  }

  const Plan& plan_;
  const Snapshot& snapshot_;
  Writers& writers_;
  FolderWriter& files_;
  TensorPlace place_;
  BucketId bucket_;
  Kept kept_ = Kept::Weight;
  int64_t element_ = 1;
  std::vector<std::byte> buffer_, received_;
  Checked result_ = Ok{};
};

}  // namespace

Checked write_state(const Plan& plan, const Computations& computations, const ModelState& state,
                    const Snapshot& snapshot, Writers& writers, FolderWriter& files) {
  struct Item {
    const StateTensor* tensor;
    std::vector<StatePiece> pieces;
    int64_t number;
  };
  std::vector<Item> alone, shared;  // with other processes: in the same order at all of them
  int64_t number = 0;
  for (const std::vector<StateTensor>* tensors : {&state.weights, &state.optimizer})
    for (const StateTensor& tensor : *tensors) {
      Item item{&tensor, pieces_of(plan, computations, tensor), number++};
      const auto is_mine = [&](const StatePiece& piece) {
        return writers.rank_of(piece.device, device_count(plan)) == writers.rank();
      };
      const auto mine = std::ranges::count_if(item.pieces, is_mine);
      if (mine > 0) (mine == std::ssize(item.pieces) ? alone : shared).push_back(std::move(item));
    }
  const auto write = [&](StateWriter& writer, const Item& item) -> Checked {
    writer.write(*item.tensor, item.pieces, item.number);
    return writer.result();
  };
  Checked out = in_parallel(alone.size(), disk_threads, [&](size_t i) {
    StateWriter writer(plan, snapshot, writers, files);
    return write(writer, alone[i]);
  });
  StateWriter writer(plan, snapshot, writers, files);
  for (const Item& item : shared)
    if (Checked written = write(writer, item); out) out = std::move(written);
  return out;
}

}  // namespace piper
