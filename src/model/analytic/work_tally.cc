#include "model/analytic/work_tally.h"

#include <algorithm>

#include "base/saturate.h"
#include "model/analytic/dims.h"

namespace piper {
namespace {

int64_t times(int64_t a, int64_t b) {
  return saturating_multiply(a, b);
}
void add(int64_t& to, int64_t amount) {
  to = saturating_add(to, amount);
}
/// Factors of a dimension as one, divided if one of them is.
Dim joined(const Shape& factors) {
  const Dim* divided = labelled(factors, tp_label);
  const int64_t size = elements(factors, 0);
  return divided ? tp(size) : fixed(size);
}

}  // namespace

void WorkTally::parameter(const std::string& name, Shape shape, bool needed_by_backward) {
  const int64_t count = times(elements(shape, 0), std::max<int64_t>(1, unit_.experts));
  if (unit_.experts > 0) shape.insert(shape.begin(), per_expert(unit_.experts));
  parameters_.push_back({name, std::move(shape), needed_by_backward});
  add(forward_.moved_fixed, times(count, unit_.value_bytes));
  if (needed_by_backward) add(input_.moved_fixed, times(count, unit_.value_bytes));
  add(weight_.moved_fixed, times(count, 2 * unit_.gradient_bytes));  // read, add, write
}

void WorkTally::inside(int64_t elements) {
  largest_ = std::max(largest_, times(times(unit_.rows, elements), unit_.value_bytes));
}

void WorkTally::product(const Dim& in, const Dim& out, ProductKind kind) {
  const int64_t flops = times(2 * unit_.rows, times(in.size, out.size));
  const int64_t bytes = times(times(unit_.rows, in.size + out.size), unit_.value_bytes);
  for (PassTally* pass : {&forward_, &input_, &weight_}) {
    add(pass->flops, flops);
    add(pass->moved, bytes);
    ++pass->kernels;
  }
  const Dim count = unit_.experts > 0 && unit_.slots ? per_expert(unit_.experts) : fixed(1);
  forward_.products.push_back({{count, unit_.all_rows, out, in}, kind});
  input_.products.push_back({{count, unit_.all_rows, in, out}, kind});
  weight_.products.push_back({{count, out, in, unit_.all_rows}, kind});
}

void WorkTally::stream(PassTally& pass, int64_t bytes) {
  add(pass.moved, bytes);
  add(pass.streamed, bytes);
  ++pass.kernels;
}

void WorkTally::linear(const std::string& name, int64_t in, int64_t out, Bias bias) {
  linear(name, {fixed(out)}, {fixed(in)}, bias);
}

void WorkTally::linear(const std::string& name, const Shape& out, const Shape& in, Bias bias) {
  linear(name, out, in, bias, unit_.experts > 0 ? ProductKind::Other : ProductKind::Linear);
}

void WorkTally::router(const std::string& name, int64_t in, int64_t out, Bias bias) {
  linear(name, {fixed(out)}, {fixed(in)}, bias, ProductKind::Other);
}

void WorkTally::linear(const std::string& name, const Shape& out, const Shape& in, Bias bias, ProductKind kind) {
  Shape shape = unit_.in_first ? in : out;
  const Shape& last = unit_.in_first ? out : in;
  shape.insert(shape.end(), last.begin(), last.end());
  parameter(prefix_ + "." + name + ".weight", shape, true);
  if (bias == Bias::Yes) this->bias(name, out);
  product(joined(in), joined(out), kind);
}

void WorkTally::bias(const std::string& name, const Shape& shape) {
  parameter(prefix_ + "." + name + ".bias", shape, false);
  ++weight_.kernels;  // its gradient is a sum over rows; products add it themselves
}

void WorkTally::tied_linear(const std::string& name, int64_t in, const Dim& out) {
  parameter(name, {out, fixed(in)}, true);
  product(fixed(in), out, ProductKind::Other);
}

void WorkTally::norm(const std::string& name, int64_t width, Bias bias, int64_t repeat) {
  parameter(prefix_ + "." + name + ".weight", {fixed(width)}, true);
  if (bias == Bias::Yes) parameter(prefix_ + "." + name + ".bias", {fixed(width)}, false);
  const int64_t bytes = times(times(unit_.rows, width * repeat), unit_.value_bytes);
  stream(forward_, times(2, bytes));
  stream(input_, times(3, bytes));
  stream(weight_, times(2, bytes));
}

void WorkTally::lookup(const std::string& name, const Dim& entries, int64_t width) {
  const int64_t bytes = times(times(unit_.rows, width), unit_.value_bytes);
  parameters_.push_back({prefix_ + "." + name, {entries, fixed(width)}, false});
  stream(forward_, times(2, bytes));
  stream(weight_, saturating_add(bytes, times(times(unit_.rows, width), 2 * unit_.gradient_bytes)));
}

void WorkTally::pointwise(int64_t in, int64_t out) {
  stream(forward_, times(times(unit_.rows, in + out), unit_.value_bytes));
  stream(input_, times(times(unit_.rows, 2 * in + out), unit_.value_bytes));
}

void WorkTally::scores(int64_t heads, int64_t query_width, int64_t value_width, int64_t moved_elements, int64_t passes,
                       int64_t steps) {
  const int64_t keys = std::max<int64_t>(unit_.rows / steps, 1), pairs = times(heads, times(unit_.rows, keys));
  const int64_t flops = times(2 * (query_width + value_width), pairs);
  const int64_t bytes = times(times(unit_.rows, moved_elements), unit_.value_bytes);
  const int64_t stored = times(times(pairs, passes), unit_.value_bytes);
  add(forward_.flops, flops);
  add(forward_.moved, saturating_add(bytes, stored));
  add(input_.flops, times(2, flops));
  add(input_.moved, times(2, saturating_add(bytes, stored)));
  if (passes > 0) inside(times(heads, unit_.rows));
  score_operators(heads, query_width, value_width, passes, keys);
}

/// Products of their own, which write and read the stored scores, and what happens to the scores between them; or one
/// kernel forward and two backward.
void WorkTally::score_operators(int64_t heads, int64_t query_width, int64_t value_width, int64_t passes, int64_t keys) {
  const Dim count{heads, true, 1, unit_.divided == Divided::Width ? std::string(tp_label) : ""};
  const Dim rows{unit_.rows, false, 1, unit_.all_rows.label};
  const Shape queries_and_keys = {count, rows, fixed(keys), fixed(query_width)};
  const Shape scores_and_values = {count, rows, fixed(value_width), fixed(keys)};
  for (const Shape& product : {queries_and_keys, scores_and_values}) {
    forward_.products.push_back({product});
    input_.products.insert(input_.products.end(), 2, {product});
  }
  if (passes == 0) {
    forward_.kernels += 1;
    input_.kernels += 2;
    return;
  }
  const int64_t between = times(times(times(heads, unit_.rows), unit_.rows), times(passes - 2, unit_.value_bytes));
  add(forward_.streamed, between);
  add(input_.streamed, times(2, between));
  forward_.kernels += 2 + (passes - 2) / 2;
  input_.kernels += 4 + (passes - 2) / 2;
}

void WorkTally::keep_bytes(int64_t bytes_per_row, NeededBy by) {
  add(by == NeededBy::Input ? for_input_ : for_weight_, times(unit_.rows, bytes_per_row));
  if (by == NeededBy::Both) both_ = true;
}

void WorkTally::hand(int64_t elements) {
  add(handed_, times(times(unit_.rows, elements), unit_.value_bytes));
}

PassTally WorkTally::total(Pass pass) const {
  if (pass == Pass::F || pass == Pass::R) return forward_;
  if (pass == Pass::BI) return input_;
  if (pass == Pass::BW) return weight_;
  PassTally both = input_;
  add(both.flops, weight_.flops);
  add(both.moved, weight_.moved);
  add(both.moved_fixed, weight_.moved_fixed);
  add(both.streamed, weight_.streamed);
  both.kernels += weight_.kernels;
  both.products.insert(both.products.end(), weight_.products.begin(), weight_.products.end());
  return both;
}

Amount WorkTally::flops(Pass pass) const {
  return {0, times(total(pass).flops, unit_.per_sample)};
}

Amount WorkTally::moved(Pass pass) const {
  const PassTally tally = total(pass);
  return {tally.moved_fixed, times(tally.moved, unit_.per_sample)};
}

OperatorWork WorkTally::operators(Pass pass) const {
  PassTally tally = total(pass);
  return {std::move(tally.products), {0, times(tally.streamed, unit_.per_sample)}, tally.kernels};
}

Amount WorkTally::temporaries(Pass pass) const {
  if (pass == Pass::BW) return {};  // weight gradients are added to their accumulator by the product itself
  const int64_t alive = pass == Pass::F || pass == Pass::R ? 1 : 2;  // in backward a value and its gradient
  return {0, times(times(largest_, alive), unit_.per_sample)};
}

}  // namespace piper
