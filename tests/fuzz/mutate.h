// Seeded damage to texts: bytes changed blindly, and tokens changed with an eye to what still reads.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace piper::fuzz {

/// A text to start from, and the name of its file.
struct Seed {
  std::string name, text;
};
/// All files of tests/fuzz/corpus/<folder>, by name.
std::vector<Seed> corpus(const std::string& folder);

enum class TokenKind { Space, Number, Word, Mark };
struct Token {
  TokenKind kind = TokenKind::Space;
  std::string text;
};

/// The same seed gives the same texts on every machine.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : engine_(seed) {}

  /// One to three changes; most to whole tokens, some to single bytes.
  std::string mutate(const std::string& text);
  int below(size_t n) { return static_cast<int>(engine_() % n); }

 private:
  std::string change_bytes(std::string text);
  std::string change_tokens(const std::string& text);
  std::string change_lines(const std::string& text);
  std::string other_number(const std::string& number);
  std::string other_word(const std::vector<Token>& tokens, size_t at);

  std::mt19937_64 engine_;
};

}  // namespace piper::fuzz
