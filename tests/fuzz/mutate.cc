#include "fuzz/mutate.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace piper::fuzz {

namespace {

TokenKind kind_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (std::isspace(byte)) return TokenKind::Space;
  if (std::isdigit(byte)) return TokenKind::Number;
  if (std::isalpha(byte) || c == '_') return TokenKind::Word;
  return TokenKind::Mark;
}

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> out;
  for (const char c : text) {
    const TokenKind kind = kind_of(c);
    const bool joins = !out.empty() && kind != TokenKind::Mark &&
                       (out.back().kind == kind || (out.back().kind == TokenKind::Word && kind == TokenKind::Number));
    if (joins)
      out.back().text += c;
    else
      out.push_back({kind, {c}});
  }
  return out;
}

std::string joined(const std::vector<Token>& tokens) {
  std::string out;
  for (const Token& token : tokens) out += token.text;
  return out;
}

}  // namespace

std::vector<Seed> corpus(const std::string& folder) {
  std::vector<Seed> seeds;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(PIPER_SOURCE_DIR) + "/tests/fuzz/corpus/" + folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    seeds.push_back({entry.path().filename().string(), text.str()});
  }
  std::sort(seeds.begin(), seeds.end(), [](const Seed& a, const Seed& b) { return a.name < b.name; });
  return seeds;
}

std::string Mutator::mutate(const std::string& text) {
  std::string out = text;
  const int changes = 1 + (below(6) == 0) + (below(12) == 0);
  for (int i = 0; i < changes; ++i) {
    const int choice = below(16);
    out = choice == 0 ? change_bytes(std::move(out)) : choice <= 2 ? change_lines(out) : change_tokens(out);
  }
  return out;
}

std::string Mutator::change_bytes(std::string text) {
  if (text.empty()) return {static_cast<char>(below(256))};
  const size_t at = static_cast<size_t>(below(text.size()));
  switch (below(4)) {
    case 0:
      text[at] = static_cast<char>(below(256));
      break;
    case 1:
      text.erase(at, 1 + static_cast<size_t>(below(4)));
      break;
    case 2:
      text.insert(at, 1, static_cast<char>(below(256)));
      break;
    default:
      text.resize(at);
      break;
  }
  return text;
}

std::string Mutator::other_number(const std::string& number) {
  static const std::vector<std::string> usual = {"0", "1", "2", "3", "4", "5", "6", "8", "16"};
  static const std::vector<std::string> strange = {
      "-1", "255", "1000", "1000000", "2147483647", "4294967296", "1000000000000000000", "99999999999999999999999"};
  if (below(12) == 0) return strange[static_cast<size_t>(below(strange.size()))];
  if (number.size() > 6 || below(3) == 0) return usual[static_cast<size_t>(below(usual.size()))];
  const int value = std::stoi(number);
  return std::to_string(below(2) == 0 ? value + 1 : below(2) == 0 ? std::max(0, value - 1) : value * 2);
}

/// Numbers become other numbers, words other words of the text; now and then a token goes, comes twice or moves.
std::string Mutator::change_tokens(const std::string& text) {
  std::vector<Token> tokens = tokens_of(text);
  if (tokens.empty()) return text;
  const TokenKind wanted = below(3) == 0 ? TokenKind::Word : TokenKind::Number;
  size_t at = static_cast<size_t>(below(tokens.size()));
  for (int tries = 0; tries < 32 && tokens[at].kind != wanted; ++tries) at = static_cast<size_t>(below(tokens.size()));
  Token& token = tokens[at];
  const int choice = below(24);
  if (choice == 0)
    token.text.clear();
  else if (choice == 1)
    token.text += token.text;
  else if (choice == 2)
    std::swap(token, tokens[static_cast<size_t>(below(tokens.size()))]);
  else if (token.kind == TokenKind::Number)
    token.text = other_number(token.text);
  else
    token.text = other_word(tokens, at);
  return joined(tokens);
}

/// Mostly one between the same two marks: the name of an argument for another, a value for a value.
std::string Mutator::other_word(const std::vector<Token>& tokens, size_t at) {
  const auto beside = [&](size_t i) {
    return (i > 0 ? tokens[i - 1].text : "") + "|" + (i + 1 < tokens.size() ? tokens[i + 1].text : "");
  };
  const bool anywhere = below(4) == 0;
  std::vector<const std::string*> alike;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].kind == tokens[at].kind && tokens[i].text != tokens[at].text && (anywhere || beside(i) == beside(at)))
      alike.push_back(&tokens[i].text);
  return alike.empty() ? tokens[at].text : *alike[static_cast<size_t>(below(alike.size()))];
}

std::string Mutator::change_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (lines.empty()) return text;
  const size_t one = static_cast<size_t>(below(lines.size())), two = static_cast<size_t>(below(lines.size()));
  switch (below(3)) {
    case 0:
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(one));
      break;
    case 1:
      std::swap(lines[one], lines[two]);
      break;
    default:
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(two), std::string(lines[one]));
      break;
  }
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

}  // namespace piper::fuzz
