#include "models/initial_values.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/hash.h"
#include "models/reference_hash.h"

namespace piper {
namespace {

/// Element i becomes f(i), computed as T.
template <class T, class F>
void fill(at::Tensor& whole, F f) {
  const at::NoGradGuard no_gradient;
  at::Tensor values = at::empty(whole.sizes(), at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
  T* const to = values.data_ptr<T>();
  at::parallel_for(0, values.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = f(i);
  });
  whole.copy_(values);
}

/// The finaliser of SplitMix64.
uint64_t mix64(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
  return h ^ (h >> 31);
}

}  // namespace

void fill_normal(at::Tensor& whole, uint64_t seed, std::string_view name, double deviation) {
  StableHash hash;
  hash.add(seed);
  hash.add(name);
  const uint64_t key = hash.value();
  const auto scale = static_cast<float>(deviation * std::sqrt(3.0) / 131072);  // variance of four uniform numbers: 1/3
  fill<float>(whole, [=](int64_t i) {
    const uint64_t bits = mix64(key + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull);
    const auto sum =
        static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return static_cast<float>(2 * sum - 4 * 65535) * scale;
  });
}

void fill_rotation(at::Tensor& whole, double theta, RotationPart part) {
  const int64_t half = whole.size(1);
  const double base = theta > 0 ? theta : 10'000;
  fill<double>(whole, [=](int64_t i) {
    const double angle =
        static_cast<double>(i / half) * std::pow(base, -static_cast<double>(i % half) / static_cast<double>(half));
    return part == RotationPart::Cos ? std::cos(angle) : std::sin(angle);
  });
}

void fill_reference(at::Tensor& whole, std::string_view name) {
  const uint32_t key = fnv1a32(name);
  fill<float>(whole, [=](int64_t i) {
    const uint32_t u = fmix32(static_cast<uint32_t>(i) * 2654435761u + key) >> 8;
    return (static_cast<float>(u) * 0x1p-23f - 1) * 0.04f;
  });
}

}  // namespace piper
