// A pass of a chunk, ready to run: recorded operators are replayed below autograd, with their arguments filled in
// beforehand and every tensor freed after its last use. Views are made without operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/chunk/chunk_ir.h"
#include "capture/program/draws.h"
#include "capture/record/operator_table.h"
#include "runtime/stream/branch.h"

namespace piper {

/// Immutable; one for all devices that compute in the same place.
class ChunkProgram {
 public:
  ChunkProgram(ChunkIr body, std::shared_ptr<const OperatorTable> table, c10::Device device = c10::kCPU);

  const ChunkIr& body() const { return body_; }
  /// Operators that were recorded, views among them.
  int64_t calls() const { return calls_; }
  /// Names of operators that wait until no other thread runs such ones.
  std::vector<std::string> one_at_a_time() const;

 private:
  friend class ChunkRunner;
  struct Fill {
    size_t position;  // in the argument stack
    int slot;
  };
  struct ListFill {
    size_t position;
    std::vector<int> slots;  // -1: none
    bool optional = false;
  };
  struct PartFill {
    size_t position;
    int64_t size;  // of a part
  };
  struct Result {
    std::vector<int> slots;  // -1: not wanted
    bool list = false;
  };
  /// All of a storage, seen through another layout.
  struct View {
    int of = -1, slot = -1;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;  // from where `of` begins
  };
  struct Instruction {
    std::optional<c10::OperatorHandle> op;  // none: a view
    View view;
    std::vector<c10::IValue> arguments;
    std::vector<Fill> fills;
    std::vector<ListFill> list_fills;
    std::vector<PartFill> part_fills;
    std::vector<Result> results;
    std::vector<int> frees;
    int draw = -1;  // which of the program's it is, if random
    DrawnBy drawn_by;
    int lane = -1;         // of a branch, if it may run on a side stream
    size_t after = 0;      // of what is on a side stream: the instruction it awaits, from 1; 0: the beginning
    bool awaited = false;  // by something on a side stream
    bool alone = false;    // no other thread may run such ones meanwhile
  };
  Instruction instruction(const Call& call, c10::Device device) const;
  View view(const Call& call) const;

  int64_t calls_;
  ChunkIr body_;  // as it runs
  std::shared_ptr<const OperatorTable> table_;
  c10::Device device_;
  std::vector<at::Tensor> constants_;  // of the body, on the device
  std::vector<Instruction> instructions_;
  std::vector<size_t> random_;  // calls that draw
  bool has_side_stream_ = false;
};

/// Hears of every result of an operator, as it is made.
using CallWatch = std::function<void(const std::string& op, const at::Tensor& result)>;

/// Tensors in the order of the body's lists. All of `reads` are whole storages with the layout the body says.
struct ChunkArguments {
  const std::vector<at::Tensor>& reads;
  const std::vector<at::Tensor>& parameters;
  const std::vector<at::Tensor>& states;
  const std::vector<at::Tensor>& gradients;  // added to
  std::vector<at::Tensor>& writes;           // set
  RandomKey random;
  /// Where they are given: seeds are read there when it runs.
  const at::Tensor* seeds = nullptr;
  /// Where there is one: for calls that may run on a side stream.
  Branch* branch = nullptr;
  const CallWatch* watch = nullptr;
};

enum class Check { None, Layouts };

/// Runs a program; one per device and thread. Throws what an operator throws, with the operator's name.
class ChunkRunner {
 public:
  /// `part`: which of the devices among which its region is divided this is.
  explicit ChunkRunner(std::shared_ptr<const ChunkProgram> program, const LocalShards& shards = {});
  /// `Check::Layouts` compares every result with what was recorded: for a first step. Keeps no tensor, whatever
  /// happens.
  void run(const ChunkArguments& arguments, Check check = Check::None);
  /// All that its random numbers depend on, draw by draw; always as many.
  std::vector<uint64_t> seeds(const RandomKey& random) const;

 private:
  void execute_all(const ChunkArguments& arguments, Check check);
  void execute(const ChunkProgram::Instruction& instruction);
  void show(const ChunkProgram::View& view);
  void draw(const ChunkProgram::Instruction& instruction);
  void check_layouts(const Call& call) const;
  void show_results(const Call& call, const CallWatch& watch) const;
  static void check_inside(const at::Tensor& view);

  std::shared_ptr<const ChunkProgram> program_;
  LocalShards shards_;
  std::vector<at::Tensor> slots_;
  torch::jit::Stack stack_;
  std::vector<DrawSite> draws_;   // by draw of the program
  std::vector<uint64_t> words_;   // while it runs: its seeds
  at::Tensor seeds_;              // those, or where they are given
  std::vector<int64_t> seed_at_;  // by draw: where its own begin; then the end
};

}  // namespace piper
