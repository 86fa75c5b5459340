#include "models/reference_tokens.h"

#include "models/reference_hash.h"

namespace piper {

void reference_tokens(int64_t step, int64_t batch, int64_t row, int64_t vocabulary,
                      std::span<int64_t> row_of_sequence_plus_1) {
  int64_t token = fmix32(static_cast<uint32_t>(step * batch + row + 1)) % vocabulary;
  for (int64_t& place : row_of_sequence_plus_1) {
    place = token;
    token = (5 * token + 7) % vocabulary;
  }
}

}  // namespace piper
