#include "comm/parts.h"

#include <algorithm>

namespace piper {

void copy_part(const std::byte* from, size_t i, size_t run_from, std::byte* to, size_t j, size_t run_to, size_t n,
               size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const size_t in_from = done % run_from, in_to = done % run_to;
    const size_t together = std::min({run_from - in_from, run_to - in_to, bytes - done});
    std::copy_n(from + (done / run_from * n + i) * run_from + in_from, together,
                to + (done / run_to * n + j) * run_to + in_to);
    done += together;
  }
}

}  // namespace piper
