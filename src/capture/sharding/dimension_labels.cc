#include "capture/sharding/dimension_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace piper {
namespace {

bool is_open(const Factor& factor) {
  return factor.mark == Mark::Unknown || factor.mark == Mark::Plain;
}

/// A contiguous block of a * b is a block of a, if no border lies inside of b.
bool can_split(const Factor& factor, int64_t first) {
  const int64_t inner = factor.size / first;
  return (is_open(factor) || factor.mark == Mark::Sharded) && first > 1 && factor.size % first == 0 &&
         std::all_of(factor.borders.begin(), factor.borders.end(), [&](int64_t at) { return at % inner == 0; });
}

/// The factor becomes two; the first has this size. What is sharded is the first, but where each of its blocks would be
/// a single one.
void split(Factors& factors, size_t at, int64_t first) {
  Factor& outer = factors[at];
  Factor inner{outer.size / first, outer.mark};
  outer.size = first;
  for (int64_t& border : outer.borders) border /= inner.size;
  const bool single = static_cast<int64_t>(outer.borders.size()) == first - 1;
  if (outer.mark == Mark::Sharded) (single ? outer : inner).mark = Mark::Plain;
  factors.insert(factors.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(inner));
}

/// Borders of `from` inside of (begin, end) are borders of the other, counted from `origin`; whether some are new.
bool add_borders(Factor& to, const std::vector<int64_t>& from, int64_t begin, int64_t end, int64_t origin) {
  const size_t before = to.borders.size();
  std::vector<int64_t> all = to.borders;
  for (const int64_t at : from)
    if (begin < at && at < end) all.push_back(at - origin);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  to.borders = std::move(all);
  return to.borders.size() > before;
}

/// Two factors that are marked alike.
Match unify_marks(Factor& p, Factor& q, Factor* left, Factor* right) {
  if (p.mark == q.mark) return Match::Same;
  if (p.mark != Mark::Unknown && q.mark != Mark::Unknown) {
    *left = p;
    *right = q;
    return Match::Conflict;
  }
  (p.mark == Mark::Unknown ? p : q).mark = p.mark == Mark::Unknown ? q.mark : p.mark;
  return Match::Learned;
}
/// Two factors of the same size that are the same.
Match unify_factors(Factor& p, Factor& q, Factor* left, Factor* right) {
  const Match marks = unify_marks(p, q, left, right);
  if (marks == Match::Conflict) return marks;
  const bool here = add_borders(p, q.borders, 0, p.size, 0), there = add_borders(q, p.borders, 0, q.size, 0);
  return here || there ? Match::Learned : marks;
}

/// Factors as one. What is sharded inside of others is sharded in each of their blocks.
Factor joined(const Factors& factors) {
  Factor out = factors[0];
  for (size_t f = 1; f < factors.size(); ++f) {
    const Factor& inner = factors[f];
    if (inner.mark == Mark::Sharded) {
      out.borders.clear();
      for (int64_t block = 0; block < out.size; ++block) {
        if (block > 0) out.borders.push_back(block * inner.size);
        for (const int64_t border : inner.borders) out.borders.push_back(block * inner.size + border);
      }
      out.mark = Mark::Sharded;
    } else {
      for (int64_t& border : out.borders) border *= inner.size;
      if (out.mark == Mark::Plain) out.mark = inner.mark;
    }
    out.size *= inner.size;
  }
  return out;
}

/// Walks the factors of several dimensions as one list.
struct Walk {
  const std::vector<Factors*>& dims;
  size_t dim = 0, factor = 0;

  bool at_end() {
    while (dim < dims.size() && factor >= dims[dim]->size()) {
      ++dim;
      factor = 0;
    }
    return dim >= dims.size();
  }
  Factor& operator*() { return (*dims[dim])[factor]; }
  void next() { ++factor; }
  /// The factor becomes two; the first has this size.
  void split(int64_t first) { piper::split(*dims[dim], factor, first); }
};

/// Factors that are not divisors of each other: passes over the shortest equal products. Whether all of them were
/// plain.
bool pass_over(Walk& x, Walk& y) {
  int64_t left = (*x).size, right = (*y).size;
  bool plain = is_open(*x) && is_open(*y);
  x.next();
  y.next();
  while (left != right) {
    Walk& shorter = left < right ? x : y;
    if (shorter.at_end()) break;
    (left < right ? left : right) *= (*shorter).size;
    plain &= is_open(*shorter);
    shorter.next();
  }
  return plain;
}

}  // namespace

std::vector<int64_t> blocks_of(const Factor& factor) {
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (const int64_t border : factor.borders) {
    sizes.push_back(border - begin);
    begin = border;
  }
  sizes.push_back(factor.size - begin);
  return sizes;
}

TensorLabels unknown_labels(const std::vector<int64_t>& sizes) {
  TensorLabels labels;
  for (const int64_t size : sizes) labels.dims.push_back(size == 1 ? Factors{} : Factors{{size, Mark::Unknown}});
  return labels;
}

bool has(const Factors& dim, Mark mark) {
  return std::any_of(dim.begin(), dim.end(), [&](const Factor& factor) { return factor.mark == mark; });
}
bool has(const TensorLabels& labels, Mark mark) {
  return std::any_of(labels.dims.begin(), labels.dims.end(), [&](const Factors& dim) { return has(dim, mark); });
}
bool is_labelled(const Factors& dim) {
  return has(dim, Mark::Expert) || has(dim, Mark::Capacity) || has(dim, Mark::Routed) || has(dim, Mark::Sharded) ||
         has(dim, Mark::Head);
}

bool is_labelled(const TensorLabels& labels) {
  return std::any_of(labels.dims.begin(), labels.dims.end(), [](const Factors& dim) { return is_labelled(dim); });
}

int separate_dim(const TensorLabels& labels, Mark mark) {
  int found = -1;
  for (size_t d = 0; d < labels.dims.size(); ++d) {
    if (!has(labels.dims[d], mark)) continue;
    if (labels.dims[d].size() != 1 || !labels.dims[d][0].borders.empty() || found >= 0) return -1;
    found = static_cast<int>(d);
  }
  return found;
}

ShardKind kind_of(Mark mark, const ShardCounts& shards) {
  if (mark == Mark::Head) return ShardKind::Heads;
  if (mark != Mark::Sharded) return ShardKind::Expert;
  for (const ShardKind kind : {ShardKind::Sequence, ShardKind::Context})
    if (shards[kind] > 1) return kind;
  return ShardKind::Tp;
}

int64_t local_size(const Factors& dim, const ShardCounts& shards) {
  int64_t size = 1;
  for (const Factor& factor : dim) {
    const int64_t count = shards[kind_of(factor.mark, shards)];
    const bool divided = factor.mark == Mark::Expert || factor.mark == Mark::Sharded || factor.mark == Mark::Head;
    size *= divided                         ? factor.size / count
            : factor.mark == Mark::Capacity ? factor.size * count
            : factor.mark == Mark::Routed   ? rows_in_buffer(factor.size, shards)
                                            : factor.size;
  }
  return size;
}
std::vector<int64_t> local_sizes(const TensorLabels& labels, const ShardCounts& shards) {
  std::vector<int64_t> sizes;
  for (const Factors& dim : labels.dims) sizes.push_back(local_size(dim, shards));
  return sizes;
}

Match unify(const std::vector<Factors*>& a, const std::vector<Factors*>& b, Factor* left, Factor* right) {
  Walk x{a}, y{b};
  Match result = Match::Same;
  while (!x.at_end() && !y.at_end()) {
    Factor &p = *x, &q = *y;
    if (p.size == 0 || q.size == 0) return result;  // nothing is there
    if (p.size == q.size) {
      const Match match = unify_factors(p, q, left, right);
      if (match == Match::Conflict) return match;
      if (match == Match::Learned) result = match;
      x.next();
      y.next();
    } else if (p.size < q.size && can_split(q, p.size)) {
      y.split(p.size);
      result = Match::Learned;
    } else if (q.size < p.size && can_split(p, q.size)) {
      x.split(q.size);
      result = Match::Learned;
    } else if (!pass_over(x, y)) {
      return Match::Straddles;
    }
  }
  return result;
}

Match unify_block(Factors& whole, Factors& part, int64_t start, Factor* left, Factor* right) {
  size_t w = whole.size(), p = part.size();  // factors behind these are the same
  int64_t inner = 1;                         // their product
  Match result = Match::Same;
  while (w > 1 && p > 0) {
    const int64_t a = whole[w - 1].size, b = part[p - 1].size, common = std::min(a, b);
    const bool fits = start % (inner * common) == 0 && (a <= b || can_split(whole[w - 1], a / b)) &&
                      (b <= a || can_split(part[p - 1], b / a));
    if (!fits || a % common != 0 || b % common != 0) {
      const bool plain = std::all_of(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(w), is_open) &&
                         std::all_of(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(p), is_open);
      return plain ? result : Match::Straddles;
    }
    if (a > b) split(whole, w++ - 1, a / b);
    if (b > a) split(part, p++ - 1, b / a);
    const Match match = unify_factors(whole[w - 1], part[p - 1], left, right);
    if (match == Match::Conflict) return match;
    if (match == Match::Learned || a != b) result = Match::Learned;
    inner *= common;
    --w;
    --p;
  }
  if (p == 0) {  // one of many: those lie outside of what both have
    Factor many{1, Mark::Plain};
    for (size_t f = 0; f < w; ++f) {
      const Match match = unify_marks(whole[f], many, left, right);
      if (match == Match::Conflict) return match;
      if (match == Match::Learned) result = match;
    }
    return result;
  }
  // a block of the outermost; its factors are its own, other blocks may have others
  Factor& all = whole[0];
  Factors rest(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(p));
  Factors block = {{local_size(rest, {}), all.mark}};
  const int64_t begin = start / inner, end = begin + block[0].size;
  add_borders(block[0], all.borders, begin, end, begin);
  const Match same = unify({&block}, {&rest}, left, right);
  if (same == Match::Conflict || same == Match::Straddles) return same;
  for (size_t f = 0; f < p; ++f) {
    if (rest[f].mark != part[f].mark || rest[f].borders != part[f].borders) result = Match::Learned;
    part[f] = std::move(rest[f]);
  }
  Factor seen = joined(block);
  const Match marks = unify_marks(all, seen, left, right);
  if (marks == Match::Conflict) return marks;
  const bool outside = add_borders(all, {begin, end}, 0, all.size, 0),
             inside = add_borders(all, seen.borders, 0, seen.size, -begin);
  return outside || inside || marks == Match::Learned ? Match::Learned : result;
}

int64_t knowledge(const TensorLabels& labels) {
  int64_t sum = 0;
  for (const Factors& dim : labels.dims)
    for (const Factor& factor : dim)
      sum += (factor.mark == Mark::Unknown ? 1 : 2) + static_cast<int64_t>(factor.borders.size());
  return sum;
}
int64_t most_knowledge(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (int64_t size : sizes) {
    sum += std::max<int64_t>(0, size - 1);
    for (int64_t prime = 2; prime <= size; ++prime)
      for (; size % prime == 0 && size > 1; size /= prime) sum += 2;
  }
  return sum;
}

bool unify_tensors(TensorLabels& a, TensorLabels& b) {
  std::vector<Factors*> left, right;
  for (Factors& dim : a.dims) left.push_back(&dim);
  for (Factors& dim : b.dims) right.push_back(&dim);
  Factor p, q;
  return unify(left, right, &p, &q) == Match::Learned;
}

bool merge(TensorLabels& into, TensorLabels from) {
  const auto forget_plain = [](Factors& dim) {  // of what is plain to one the other may know more
    Factors out;
    for (const Factor& factor : dim)
      if (!is_open(factor))
        out.push_back(factor);
      else if (!out.empty() && out.back().mark == Mark::Unknown)
        out.back().size *= factor.size;
      else
        out.push_back({factor.size, Mark::Unknown});
    dim = std::move(out);
  };
  bool agree = true;
  for (size_t d = 0; d < into.dims.size(); ++d) {
    forget_plain(into.dims[d]);
    forget_plain(from.dims[d]);
    Factor p, q;
    const Match match = unify({&into.dims[d]}, {&from.dims[d]}, &p, &q);
    agree = agree && (match == Match::Same || match == Match::Learned);
  }
  settle(into);
  return agree;
}

void settle(TensorLabels& labels) {
  for (Factors& dim : labels.dims) {
    for (size_t f = 0; f < dim.size(); ++f) {
      Factor& factor = dim[f];
      if (is_open(factor)) {
        factor.mark = Mark::Plain;
        factor.borders.clear();
        continue;
      }
      const std::vector<int64_t> blocks = blocks_of(factor);
      const bool even = std::adjacent_find(blocks.begin(), blocks.end(), std::not_equal_to()) == blocks.end();
      if (blocks.size() == 1 || blocks[0] == 1 || !even) continue;
      dim.insert(dim.begin() + static_cast<std::ptrdiff_t>(f) + 1, {blocks[0], factor.mark});
      dim[f] = {static_cast<int64_t>(blocks.size()), Mark::Plain};
    }
  }
}

void call_heads(TensorLabels& labels) {
  for (Factors& dim : labels.dims)
    for (Factor& factor : dim)
      if (factor.mark == Mark::Sharded) factor.mark = Mark::Head;
}

std::string print(const TensorLabels& labels) {
  std::vector<std::string> dims;
  for (const Factors& dim : labels.dims) {
    std::vector<std::string> factors;
    for (const Factor& factor : dim)
      factors.push_back(factor.mark == Mark::Expert     ? "E"
                        : factor.mark == Mark::Capacity ? "C"
                        : factor.mark == Mark::Routed   ? "R"
                        : factor.mark == Mark::Sharded  ? fmt::format("T{}", fmt::join(blocks_of(factor), "|"))
                        : factor.mark == Mark::Head     ? fmt::format("H{}", fmt::join(blocks_of(factor), "|"))
                                                        : fmt::format("{}", factor.size));
    dims.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, "*")));
  }
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string describe(const Factor& factor) {
  switch (factor.mark) {
    case Mark::Expert:
      return "the expert dimension";
    case Mark::Capacity:
      return "the capacity dimension";
    case Mark::Routed:
      return "the sorted rows";
    case Mark::Sharded:
      return fmt::format("a sharded dimension of size {}", fmt::join(blocks_of(factor), "|"));
    case Mark::Head:
      return fmt::format("a dimension of {} heads", factor.size);
    default:
      return fmt::format("a plain dimension of size {}", factor.size);
  }
}

}  // namespace piper
