#include "runtime/draw/draw.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>

#include "runtime/random/element_type.h"

namespace piper {
namespace {

constexpr int blocks_together = 32, words_together = 4 * blocks_together;

/// Words of blocks one after the other, as vectors of blocks.
void draw_words(uint64_t key, int64_t sample, int64_t first_block, std::array<uint32_t, words_together>& words) {
  std::array<uint32_t, blocks_together> a, b, c, d;
  const auto number = static_cast<uint64_t>(sample);
  for (size_t j = 0; j < blocks_together; ++j) {
    const uint64_t block = static_cast<uint64_t>(first_block) + j;
    a[j] = static_cast<uint32_t>(block);
    b[j] = static_cast<uint32_t>(block >> 32);
    c[j] = static_cast<uint32_t>(number);
    d[j] = static_cast<uint32_t>(number >> 32);
  }
  PhiloxKey at(key);
  for (int round = 0; round < philox_rounds; ++round) {
    for (size_t j = 0; j < blocks_together; ++j) philox_round(a[j], b[j], c[j], d[j], at.low, at.high);
    at.next();
  }
  for (size_t j = 0; j < blocks_together; ++j) {
    words[4 * j] = a[j];
    words[4 * j + 1] = b[j];
    words[4 * j + 2] = c[j];
    words[4 * j + 3] = d[j];
  }
}

/// Fills runs of one sample.
template <class T>
class Filler {
 public:
  Filler(const Drawing& drawing, int digits, uint64_t key)
      : drawing_(drawing),
        digits_(digits),
        words_(words_of(drawing.kind, digits)),
        key_(key),
        chance_(bernoulli_chance(drawing.a)) {}

  void fill(T* into, int64_t stride, int64_t count, int64_t sample, int64_t first) {
    for (int64_t done = 0; done < count;) {
      const int64_t word = (first + done) * words_, tile = word / words_together;
      if (tile != tile_ || sample != sample_) draw_words(key_, sample, tile * blocks_together, drawn_);
      tile_ = tile;
      sample_ = sample;
      const int64_t inside = word - tile * words_together;
      const int64_t now = std::min((words_together - inside) / words_, count - done);
      convert(into + done * stride, stride, now, drawn_.data() + inside);
      done += now;
    }
  }

 private:
  void convert(T* into, int64_t stride, int64_t count, const uint32_t* words) const {
    if (drawing_.kind == Distribution::Bernoulli) {
      for (int64_t i = 0; i < count; ++i) into[i * stride] = static_cast<T>(words[i] < chance_ ? 1 : 0);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t* const own = words + i * words_;
      into[i * stride] = static_cast<T>(drawn_number(drawing_, digits_, own[0], words_ == 2 ? own[1] : 0));
    }
  }

  const Drawing drawing_;
  const int digits_, words_;
  const uint64_t key_, chance_;
  std::array<uint32_t, words_together> drawn_ = {};
  int64_t tile_ = -1, sample_ = 0;  // what is drawn
};

template <class T>
void draw_as(const Drawing& drawing, int digits, T* into, const DrawPlace& place, uint64_t key) {
  const std::vector<DrawDim> dims = joined(place.dims);
  const DrawDim run = dims.back();
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < dims.size(); ++d) rows *= dims[d].size;
  if (rows == 0 || run.size == 0) return;
  at::parallel_for(0, rows, std::max<int64_t>(1, 65536 / run.size), [&](int64_t begin, int64_t end) {
    Filler<T> filler(drawing, digits, key);
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, memory = 0, element = place.start, sample = 0, slice = 0;
      for (size_t d = dims.size() - 1; d-- > 0;) {
        const int64_t i = rest % dims[d].size;
        rest /= dims[d].size;
        memory += i * dims[d].memory;
        element += i * dims[d].element;
        sample += i * dims[d].sample;
        slice += i * dims[d].slice;
      }
      filler.fill(into + memory, run.memory, run.size, place.samples[static_cast<size_t>(slice)] + sample, element);
    }
  });
}

}  // namespace

void draw(const Drawing& drawing, DType dtype, void* into, const DrawPlace& place, uint64_t key) {
  with_element_type<c10::BFloat16, c10::Half>(dtype, [&]<class T>(std::type_identity<T>) {
    draw_as(drawing, digits_of(dtype), static_cast<T*>(into), place, key);
  });
}

}  // namespace piper
