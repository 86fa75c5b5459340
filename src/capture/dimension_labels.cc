#include "capture/dimension_labels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace piper {
namespace {

bool is_open(const Factor& factor) {
  return factor.mark == Mark::Unknown || factor.mark == Mark::Plain;
}

/// A contiguous block of a * b is a block of a.
bool can_split(const Factor& factor) {
  return is_open(factor) || factor.mark == Mark::Cut;
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
  void split(int64_t first) {
    Factors& factors = *dims[dim];
    const Factor whole = factors[factor];
    factors[factor].size = first;
    factors.insert(factors.begin() + static_cast<std::ptrdiff_t>(factor) + 1,
                   {whole.size / first, whole.mark == Mark::Cut ? Mark::Plain : whole.mark});
  }
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
  return has(dim, Mark::Divided) || has(dim, Mark::Gathered) || has(dim, Mark::Cut);
}

bool is_labelled(const TensorLabels& labels) {
  return std::any_of(labels.dims.begin(), labels.dims.end(), [](const Factors& dim) { return is_labelled(dim); });
}

int separate_dim(const TensorLabels& labels, Mark mark) {
  int found = -1;
  for (size_t d = 0; d < labels.dims.size(); ++d) {
    if (!has(labels.dims[d], mark)) continue;
    if (labels.dims[d].size() != 1 || found >= 0) return -1;
    found = static_cast<int>(d);
  }
  return found;
}

int64_t local_size(const Factors& dim, Division parts) {
  int64_t size = 1;
  for (const Factor& factor : dim)
    size *= factor.mark == Mark::Divided    ? factor.size / parts.layout
            : factor.mark == Mark::Gathered ? factor.size * parts.layout
            : factor.mark == Mark::Cut      ? factor.size / parts.cut
                                            : factor.size;
  return size;
}
std::vector<int64_t> local_sizes(const TensorLabels& labels, Division parts) {
  std::vector<int64_t> sizes;
  for (const Factors& dim : labels.dims) sizes.push_back(local_size(dim, parts));
  return sizes;
}

Match unify(const std::vector<Factors*>& a, const std::vector<Factors*>& b, Factor* left, Factor* right) {
  Walk x{a}, y{b};
  Match result = Match::Same;
  while (!x.at_end() && !y.at_end()) {
    Factor &p = *x, &q = *y;
    if (p.size == q.size) {
      if (p.mark != q.mark) {
        if (p.mark != Mark::Unknown && q.mark != Mark::Unknown) {
          *left = p;
          *right = q;
          return Match::Conflict;
        }
        (p.mark == Mark::Unknown ? p.mark : q.mark) = p.mark == Mark::Unknown ? q.mark : p.mark;
        result = Match::Learned;
      }
      x.next();
      y.next();
    } else if (p.size < q.size && q.size % p.size == 0 && can_split(q)) {
      y.split(p.size);
      result = Match::Learned;
    } else if (q.size < p.size && p.size % q.size == 0 && can_split(p)) {
      x.split(q.size);
      result = Match::Learned;
    } else if (!pass_over(x, y)) {
      return Match::Cut;
    }
  }
  return result;
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
  for (Factors& dim : labels.dims)
    for (Factor& factor : dim)
      if (factor.mark == Mark::Unknown) factor.mark = Mark::Plain;
}

std::string print(const TensorLabels& labels) {
  std::vector<std::string> dims;
  for (const Factors& dim : labels.dims) {
    std::vector<std::string> factors;
    for (const Factor& factor : dim)
      factors.push_back(factor.mark == Mark::Divided    ? "E"
                        : factor.mark == Mark::Gathered ? "C"
                        : factor.mark == Mark::Cut      ? fmt::format("T{}", factor.size)
                                                        : fmt::format("{}", factor.size));
    dims.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, "*")));
  }
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string describe(const Factor& factor) {
  switch (factor.mark) {
    case Mark::Divided:
      return "the expert dimension";
    case Mark::Gathered:
      return "the capacity dimension";
    case Mark::Cut:
      return fmt::format("a cut dimension of size {}", factor.size);
    default:
      return fmt::format("a plain dimension of size {}", factor.size);
  }
}

}  // namespace piper
