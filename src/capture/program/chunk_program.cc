#include "capture/program/chunk_program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/invariant.h"
#include "capture/gpu/side_stream.h"
#include "capture/program/as_strided_views.h"
#include "capture/program/one_at_a_time.h"
#include "runtime/draw/draw_operator.h"

namespace piper {
ChunkProgram::ChunkProgram(ChunkIr body, std::shared_ptr<const OperatorTable> table, c10::Device device)
    : calls_(static_cast<int64_t>(body.calls.size())),
      body_(as_strided_views(std::move(body))),
      table_(std::move(table)),
      device_(device) {
  for (const ExternalUse& use : body_.constants)
    constants_.push_back(placed_constant(*table_, body_[use.inside].constant, device));
  const std::vector<std::vector<TensorId>> ends = last_uses(body_);
  const std::vector<int> awaited = awaited_by_side_stream(body_), lanes = side_lanes(body_, Branch::lanes);
  instructions_.reserve(body_.calls.size());
  for (size_t i = 0; i < body_.calls.size(); ++i) {
    instructions_.push_back(instruction(body_.calls[i], device));
    if (body_.calls[i].random >= 0) {
      instructions_.back().draw = static_cast<int>(random_.size());
      random_.push_back(i);
    }
    for (const TensorId id : ends[i]) instructions_.back().frees.push_back(id.value);
    if (lanes[i] < 0) continue;
    has_side_stream_ = true;
    instructions_.back().lane = lanes[i];
    instructions_.back().after = static_cast<size_t>(awaited[i] + 1);
    if (awaited[i] >= 0) instructions_[static_cast<size_t>(awaited[i])].awaited = true;
  }
}

ChunkProgram::Instruction ChunkProgram::instruction(const Call& call, c10::Device device) const {
  Instruction out;
  if (!call.op.valid()) {
    out.view = view(call);
    return out;
  }
  out.op = table_->operators[call.op.index()];
  out.alone = runs_one_at_a_time(*out.op, body_, call, device);
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    if (const auto* id = std::get_if<TensorId>(&argument)) {
      out.arguments.emplace_back(at::Tensor());
      if (id->valid()) out.fills.push_back({i, id->value});
    } else if (const auto* list = std::get_if<TensorList>(&argument)) {
      out.arguments.emplace_back();
      ListFill fill{i, {}, list->optional};
      for (const TensorId item : list->tensors) fill.slots.push_back(item.value);
      out.list_fills.push_back(std::move(fill));
    } else if (const auto* start = std::get_if<PartStart>(&argument)) {
      out.arguments.emplace_back();
      out.part_fills.push_back({i, start->size});
    } else {
      out.arguments.push_back(to_ivalue(*table_, argument, device));
    }
  }
  for (const Argument& result : call.results) {
    Result slots;
    if (const auto* id = std::get_if<TensorId>(&result)) {
      slots.slots = {id->value};
    } else if (const auto* list = std::get_if<TensorList>(&result)) {
      slots.list = true;
      for (const TensorId item : list->tensors) slots.slots.push_back(item.value);
    }
    out.results.push_back(std::move(slots));
  }
  if (call.random >= 0) out.drawn_by = *drawn_by(*out.op, call.arguments);
  return out;
}

std::vector<std::string> ChunkProgram::one_at_a_time() const {
  std::vector<std::string> out;
  for (const Instruction& instruction : instructions_)
    if (instruction.alone) out.push_back(full_name(*instruction.op));
  return out;
}

ChunkProgram::View ChunkProgram::view(const Call& call) const {
  const TensorId of = std::get<TensorId>(call.arguments[0]), result = std::get<TensorId>(call.results[0]);
  const TensorLayout& layout = body_[result].layout;
  return {of.value, result.value, layout.sizes, layout.strides, layout.offset - body_[of].layout.offset};
}

ChunkRunner::ChunkRunner(std::shared_ptr<const ChunkProgram> program, const LocalShards& shards)
    : program_(std::move(program)), shards_(shards) {
  const LocalShard experts = shards[ShardKind::Expert];
  slots_.resize(program_->body_.tensors.size());
  stack_.reserve(32);
  for (size_t i = 0; i < program_->constants_.size(); ++i) {
    const ExternalUse& use = program_->body_.constants[i];
    const GraphTensor& tensor = program_->body_[use.inside];
    at::Tensor constant = program_->constants_[i];
    if (!tensor.layout.sizes.empty() && constant.size(0) != tensor.layout.sizes[0])  // a part of it
      constant = constant.narrow(0, experts.index * tensor.layout.sizes[0], tensor.layout.sizes[0]);
    slots_[use.inside.index()] = std::move(constant);
  }
  seed_at_.push_back(0);
  for (const size_t i : program_->random_) {
    const Call& call = program_->body_.calls[i];
    draws_.emplace_back(call.random, call.drawn, shards);
    seed_at_.push_back(seed_at_.back() + 1 + (draws_.back().gathers ? experts.count : 1));
  }
}

void ChunkRunner::run(const ChunkArguments& arguments, Check check) {
  const ChunkIr& body = program_->body_;
  const auto bind = [&](const auto& uses, const std::vector<at::Tensor>& tensors) {
    invariant(uses.size() == tensors.size(), "a chunk runs with as many tensors as its body says");
    for (size_t i = 0; i < uses.size(); ++i) slots_[uses[i].inside.index()] = tensors[i];
  };
  const auto unbind = [&](const auto& uses) {
    for (const auto& use : uses) slots_[use.inside.index()].reset();
  };
  bind(body.reads, arguments.reads);
  bind(body.parameters, arguments.parameters);
  bind(body.states, arguments.states);
  bind(body.gradients, arguments.gradients);
  if (!draws_.empty()) {
    words_ = seeds(arguments.random);
    seeds_ = arguments.seeds ? *arguments.seeds
                             : at::from_blob(words_.data(), {static_cast<int64_t>(words_.size())}, at::kLong);
  }
  try {
    execute_all(arguments, check);
  } catch (...) {
    for (size_t t = 0; t < slots_.size(); ++t)
      if (body.tensors[t].kind != TensorKind::Constant) slots_[t].reset();
    throw;
  }
  arguments.writes.resize(body.writes.size());
  for (size_t i = 0; i < body.writes.size(); ++i)
    arguments.writes[i] = std::move(slots_[body.writes[i].inside.index()]);
  unbind(body.reads);
  unbind(body.parameters);
  unbind(body.states);
  unbind(body.gradients);
}

void ChunkRunner::execute_all(const ChunkArguments& arguments, Check check) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& instructions = program_->instructions_;
  Branch* const branch = program_->has_side_stream_ ? arguments.branch : nullptr;
  size_t i = 0;
  try {
    if (branch) branch->mark(0);
    for (; i < instructions.size(); ++i) {
      const ChunkProgram::Instruction& instruction = instructions[i];
      if (branch && instruction.lane >= 0)
        branch->launch(static_cast<size_t>(instruction.lane), instruction.after, [&] { execute(instruction); });
      else
        execute(instruction);
      if (branch && instruction.awaited) branch->mark(i + 1);
      if (branch && i + 1 == instructions.size()) branch->join();  // before what it used is freed
      if (check == Check::Layouts) check_layouts(program_->body_.calls[i]);
      if (arguments.watch) show_results(program_->body_.calls[i], *arguments.watch);
      for (const int slot : instruction.frees) slots_[static_cast<size_t>(slot)].reset();
    }
  } catch (const c10::Error& failure) {
    stack_.clear();
    const auto& op = instructions[i].op;
    throw std::runtime_error(fmt::format("{}: {}", op ? full_name(*op) : "a view", failure.what_without_backtrace()));
  }
}

void ChunkRunner::execute(const ChunkProgram::Instruction& instruction) {
  if (!instruction.op) return show(instruction.view);
  const auto tensor = [&](int slot) { return slot < 0 ? at::Tensor() : slots_[static_cast<size_t>(slot)]; };
  stack_.assign(instruction.arguments.begin(), instruction.arguments.end());
  for (const ChunkProgram::Fill& fill : instruction.fills)
    stack_[fill.position] = slots_[static_cast<size_t>(fill.slot)];
  for (const ChunkProgram::ListFill& fill : instruction.list_fills) {
    if (fill.optional) {
      c10::List<std::optional<at::Tensor>> list;
      list.reserve(fill.slots.size());
      for (const int slot : fill.slots) list.push_back(slot < 0 ? std::optional<at::Tensor>() : tensor(slot));
      stack_[fill.position] = std::move(list);
    } else {
      c10::List<at::Tensor> list;
      list.reserve(fill.slots.size());
      for (const int slot : fill.slots) list.push_back(tensor(slot));
      stack_[fill.position] = std::move(list);
    }
  }
  const int64_t index = shards_[kind_of(Mark::Sharded, shards_.counts())].index;
  for (const ChunkProgram::PartFill& fill : instruction.part_fills) stack_[fill.position] = index * fill.size;
  if (instruction.draw >= 0) return draw(instruction);
  {
    std::unique_lock<std::mutex> turn;
    if (instruction.alone) turn = std::unique_lock(one_at_a_time());
    instruction.op->callBoxed(&stack_);
  }
  for (size_t i = 0; i < instruction.results.size(); ++i) {
    const ChunkProgram::Result& result = instruction.results[i];
    if (result.list) {
      const c10::List<at::Tensor> list = stack_[i].toTensorList();
      for (size_t j = 0; j < result.slots.size(); ++j)
        if (result.slots[j] >= 0) slots_[static_cast<size_t>(result.slots[j])] = list[j];
    } else if (!result.slots.empty() && result.slots[0] >= 0) {
      slots_[static_cast<size_t>(result.slots[0])] = std::move(stack_[i]).toTensor();
    }
  }
  stack_.clear();
}

/// What `as_strided` does below its dispatch.
void ChunkRunner::show(const ChunkProgram::View& view) {
  const at::Tensor& of = slots_[static_cast<size_t>(view.of)];
  at::Tensor out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(of.storage()),
                                                            of.key_set(), of.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes, view.strides, of.storage_offset() + view.offset);
  slots_[static_cast<size_t>(view.slot)] = std::move(out);
}

std::vector<uint64_t> ChunkRunner::seeds(const RandomKey& random) const {
  std::vector<uint64_t> out;
  for (const DrawSite& site : draws_) site.add_words(random, out);
  invariant(static_cast<int64_t>(out.size()) == seed_at_.back(),
            "a region sees as many slices as devices divide its experts");
  return out;
}

/// The operator itself is not called: what it would draw depends on what was drawn before.
void ChunkRunner::draw(const ChunkProgram::Instruction& instruction) {
  const auto index = static_cast<size_t>(instruction.draw);
  const DrawSite& site = draws_[index];
  const at::Tensor words = seeds_.narrow(0, seed_at_[index], seed_at_[index + 1] - seed_at_[index]);
  const Call& call = program_->body_.calls[program_->random_[index]];
  const auto result = static_cast<size_t>(instruction.results[0].slots[0]);
  at::Tensor out = call.writes.empty() ? empty_tensor(program_->body_.tensors[result].layout, program_->device_)
                                       : stack_[0].toTensor();
  const DrawnBy& by = instruction.drawn_by;
  if (by.probabilities < 0) {
    draw_into(out.view(site.sizes), by.drawing, site.start, site.steps, words);
  } else {
    const at::Tensor numbers = at::empty(out.sizes(), out.options().dtype(at::kDouble));
    draw_into(numbers.view(site.sizes), {Distribution::Uniform, 0, 1}, site.start, site.steps, words);
    out.copy_(numbers.lt(stack_[static_cast<size_t>(by.probabilities)].toTensor()));
  }
  stack_.clear();
  slots_[result] = std::move(out);
}

/// Of a view that no operator made: it ends where its storage does, or before.
void ChunkRunner::check_inside(const at::Tensor& view) {
  int64_t end = view.storage_offset() + 1;
  for (int64_t d = 0; d < view.dim(); ++d) end += (view.size(d) - 1) * view.stride(d);
  invariant(view.numel() == 0 ||
                end * static_cast<int64_t>(view.element_size()) <= static_cast<int64_t>(view.storage().nbytes()),
            "a view lies inside its storage");
}

void ChunkRunner::show_results(const Call& call, const CallWatch& watch) const {
  if (!call.op.valid()) return;  // a view shows nothing new
  each_tensor(call.results,
              [&](TensorId id) { watch(full_name(program_->table_->operators[call.op.index()]), slots_[id.index()]); });
}

void ChunkRunner::check_layouts(const Call& call) const {
  each_tensor(call.results, [&](TensorId id) {
    const at::Tensor& seen = slots_[id.index()];
    if (!call.op.valid()) return check_inside(seen);
    const TensorLayout& expected = program_->body_[id].layout;
    bool same =
        seen.sizes() == c10::IntArrayRef(expected.sizes) && static_cast<int8_t>(seen.scalar_type()) == expected.element;
    for (size_t d = 0; same && d < expected.sizes.size(); ++d)
      same = expected.sizes[d] <= 1 || seen.numel() <= 1 || seen.stride(static_cast<int64_t>(d)) == expected.strides[d];
    if (!same)
      internal_error(fmt::format("{} gave [{}] with strides [{}] and type {}, but [{}], [{}] and type {} was captured",
                                 full_name(program_->table_->operators[call.op.index()]), fmt::join(seen.sizes(), ", "),
                                 fmt::join(seen.strides(), ", "), c10::toString(seen.scalar_type()),
                                 fmt::join(expected.sizes, ", "), fmt::join(expected.strides, ", "),
                                 c10::toString(static_cast<c10::ScalarType>(expected.element))));
  });
}

}  // namespace piper
