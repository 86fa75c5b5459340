#include "capture/loss/logits_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "capture/sharding/in_part.h"

namespace piper {
namespace {

using at::Tensor;

/// What is kept of logits.
at::ScalarType wide_type(const Tensor& logits) {
  return c10::promoteTypes(logits.scalar_type(), at::kFloat);
}
Tensor per_token(const Tensor& hidden) {
  return at::empty({hidden.size(0)}, hidden.options().dtype(wide_type(hidden)));
}

Tensor logsumexp_of_rows(const Tensor& logits) {
  return at::logsumexp(logits.to(wide_type(logits)), 1);
}

Tensor& softmax_gradient(Tensor& logits, const Tensor& logsumexp, const Tensor& targets, const Tensor& gradient,
                         int64_t first) {
  InPart part(targets, first, logits.size(1));
  const Tensor minus = at::zeros(targets.sizes(), logsumexp.options()).sub_(1).masked_fill_(part.elsewhere, 0);
  Tensor wide = logits.scalar_type() == logsumexp.scalar_type() ? logits : logits.to(logsumexp.scalar_type());
  wide.sub_(logsumexp.unsqueeze(1)).exp_();
  wide.scatter_add_(1, part.or_else(0).unsqueeze(1), minus.unsqueeze(1));
  wide.mul_(gradient.unsqueeze(1));
  if (!wide.is_same(logits)) logits.copy_(wide);
  return logits;
}

Tensor call_logsumexp(const Tensor& logits) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("piper::logsumexp_of_rows", "").typed<Tensor(const Tensor&)>();
  return op.call(logits);
}
Tensor& call_softmax_gradient(Tensor& logits, const Tensor& logsumexp, const Tensor& targets, const Tensor& gradient,
                              int64_t first) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("piper::softmax_gradient_", "")
                             .typed<Tensor&(Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t)>();
  return op.call(logits, logsumexp, targets, gradient, first);
}

/// Calls f(first, count) for every block of tokens.
template <class F>
void each_block(const Tensor& hidden, int64_t block, F f) {
  for (int64_t first = 0; first < hidden.size(0); first += block) f(first, std::min(block, hidden.size(0) - first));
}

Tensor target_logits(const Tensor& logits, const Tensor& targets, int64_t ignored, int64_t first) {
  InPart part(targets, first, logits.size(1));
  part.elsewhere.logical_or_(targets.eq(ignored));
  const Tensor taken = logits.gather(1, part.or_else(0).unsqueeze(1)).squeeze(1);
  return taken.to(wide_type(logits)).masked_fill_(part.elsewhere, 0);
}

std::tuple<Tensor, Tensor> logits_in_blocks(const Tensor& table, const Tensor& hidden, const Tensor& targets,
                                            int64_t ignored, int64_t block) {
  Tensor sums = per_token(hidden), picked = per_token(hidden);
  each_block(hidden, block, [&](int64_t first, int64_t count) {
    const Tensor logits = at::mm(hidden.narrow(0, first, count), table.t());
    sums.narrow(0, first, count).copy_(call_logsumexp(logits));
    picked.narrow(0, first, count).copy_(target_logits(logits, targets.narrow(0, first, count), ignored, 0));
  });
  return {sums, picked};
}

Tensor logits_in_blocks_max(const Tensor& table, const Tensor& hidden, int64_t block) {
  Tensor most = per_token(hidden);
  each_block(hidden, block, [&](int64_t first, int64_t count) {
    most.narrow(0, first, count).copy_(at::mm(hidden.narrow(0, first, count), table.t()).amax(1));
  });
  return most;
}

std::tuple<Tensor, Tensor> logits_in_blocks_sum(const Tensor& table, const Tensor& hidden, const Tensor& targets,
                                                const Tensor& most, int64_t ignored, int64_t first_word,
                                                int64_t block) {
  Tensor sums = per_token(hidden), picked = per_token(hidden);
  each_block(hidden, block, [&](int64_t first, int64_t count) {
    const Tensor logits = at::mm(hidden.narrow(0, first, count), table.t());
    picked.narrow(0, first, count).copy_(target_logits(logits, targets.narrow(0, first, count), ignored, first_word));
    sums.narrow(0, first, count)
        .copy_(logits.to(most.scalar_type()).sub_(most.narrow(0, first, count).unsqueeze(1)).exp_().sum(1));
  });
  return {sums, picked};
}

/// sum += a b, without rounding in between where the device can.
void add_product(Tensor& sum, const Tensor& a, const Tensor& b) {
  if (sum.scalar_type() == a.scalar_type())
    sum.addmm_(a, b);
  else if (sum.is_cuda())
    at::addmm_out(sum, sum, a, b, sum.scalar_type());
  else
    sum.addmm_(a.to(sum.scalar_type()), b.to(sum.scalar_type()));
}

struct LogitsBackward {
  const Tensor &table, &hidden, &targets, &logsumexp, &gradient;
  int64_t first_word, block;

  /// The gradient of hidden, if it is wanted; `add(gradient of the logits of a block, its hidden)` is told of each.
  template <class F>
  Tensor run(bool wanted, F add) const {
    Tensor of_hidden = wanted ? at::empty_like(hidden, at::MemoryFormat::Contiguous) : Tensor();
    each_block(hidden, block, [&](int64_t first, int64_t count) {
      const auto part = [&](const Tensor& of) { return of.narrow(0, first, count); };
      Tensor logits = at::mm(part(hidden), table.t());
      call_softmax_gradient(logits, part(logsumexp), part(targets), part(gradient), first_word);
      if (wanted) {
        Tensor into = part(of_hidden);
        at::mm_out(into, logits, table);
      }
      add(logits, part(hidden));
    });
    return of_hidden;
  }
};

std::tuple<Tensor, Tensor> logits_in_blocks_backward(const Tensor& table, const Tensor& hidden, const Tensor& targets,
                                                     const Tensor& logsumexp, const Tensor& gradient, int64_t first,
                                                     int64_t block, std::array<bool, 2> mask) {
  const LogitsBackward backward{table, hidden, targets, logsumexp, gradient, first, block};
  Tensor of_table;
  if (mask[1]) of_table = at::zeros(table.sizes(), table.options().dtype(wide_type(table)));
  const Tensor of_hidden = backward.run(mask[0], [&](const Tensor& logits, const Tensor& rows) {
    if (mask[1]) add_product(of_table, logits.t(), rows);
  });
  return {of_hidden, mask[1] ? of_table.to(table.scalar_type()) : of_table};
}

std::tuple<Tensor, Tensor> logits_in_blocks_backward_add(Tensor to, const Tensor& table, const Tensor& hidden,
                                                         const Tensor& targets, const Tensor& logsumexp,
                                                         const Tensor& gradient, int64_t first, int64_t block,
                                                         std::array<bool, 2> mask) {
  const LogitsBackward backward{table, hidden, targets, logsumexp, gradient, first, block};
  const Tensor of_hidden =
      backward.run(mask[0], [&](const Tensor& logits, const Tensor& rows) { add_product(to, logits.t(), rows); });
  return {of_hidden, to};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(piper, m) {
  m.def("logsumexp_of_rows(Tensor logits) -> Tensor");
  m.def(
      "softmax_gradient_(Tensor(a!) logits, Tensor logsumexp, Tensor targets, Tensor gradient, int first) -> "
      "Tensor(a!)");
  m.def("logits_in_blocks(Tensor table, Tensor hidden, Tensor targets, int ignored, int block) -> (Tensor, Tensor)");
  m.def("logits_in_blocks_max(Tensor table, Tensor hidden, int block) -> Tensor");
  m.def(
      "logits_in_blocks_sum(Tensor table, Tensor hidden, Tensor targets, Tensor most, int ignored, int first, int "
      "block) -> (Tensor, Tensor)");
  m.def(
      "logits_in_blocks_backward(Tensor table, Tensor hidden, Tensor targets, Tensor logsumexp, Tensor gradient, int "
      "first, int block, bool[2] output_mask) -> (Tensor, Tensor)");
  m.def(
      "logits_in_blocks_backward_add(Tensor(a!) to, Tensor table, Tensor hidden, Tensor targets, Tensor logsumexp, "
      "Tensor gradient, int first, int block, bool[2] output_mask) -> (Tensor, Tensor(a!))");
}
TORCH_LIBRARY_IMPL(piper, CompositeExplicitAutograd, m) {
  m.impl("logsumexp_of_rows", logsumexp_of_rows);
  m.impl("softmax_gradient_", softmax_gradient);
  m.impl("logits_in_blocks", logits_in_blocks);
  m.impl("logits_in_blocks_max", logits_in_blocks_max);
  m.impl("logits_in_blocks_sum", logits_in_blocks_sum);
  m.impl("logits_in_blocks_backward", logits_in_blocks_backward);
  m.impl("logits_in_blocks_backward_add", logits_in_blocks_backward_add);
}
TORCH_LIBRARY_IMPL(piper, Meta, m) {
  m.impl("logits_in_blocks", [](const Tensor&, const Tensor& hidden, const Tensor&, int64_t, int64_t) {
    return std::tuple(per_token(hidden), per_token(hidden));
  });
  m.impl("logits_in_blocks_max", [](const Tensor&, const Tensor& hidden, int64_t) { return per_token(hidden); });
  m.impl("logits_in_blocks_sum", [](const Tensor&, const Tensor& hidden, const Tensor&, const Tensor&, int64_t, int64_t,
                                    int64_t) { return std::tuple(per_token(hidden), per_token(hidden)); });
  m.impl("logits_in_blocks_backward", [](const Tensor& table, const Tensor& hidden, const Tensor&, const Tensor&,
                                         const Tensor&, int64_t, int64_t, std::array<bool, 2> mask) {
    return std::tuple(mask[0] ? at::empty(hidden.sizes(), hidden.options()) : Tensor(),
                      mask[1] ? at::empty(table.sizes(), table.options()) : Tensor());
  });
}

void provide_logits_operators() {}

}  // namespace piper
