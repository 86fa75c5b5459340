#include "train/data/text_tokens.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/usual_python.h"
#include "train/data/prepare/prepare_script.h"

namespace piper {
namespace {

class ByteTokens : public TextTokens {
 public:
  Result<std::vector<std::vector<int64_t>>> encode(const std::vector<std::string>& texts) override {
    std::vector<std::vector<int64_t>> out;
    for (const std::string& text : texts) {
      out.emplace_back();
      for (const char c : text) out.back().push_back(static_cast<unsigned char>(c));
    }
    return out;
  }
  Result<std::vector<std::string>> decode(const std::vector<std::vector<int64_t>>& tokens) override {
    std::vector<std::string> out;
    for (const auto& text : tokens) {
      out.emplace_back();
      for (const int64_t token : text) out.back() += token < 256 ? std::string(1, static_cast<char>(token)) : "\ufffd";
    }
    return out;
  }
};

class Tokenizer : public TextTokens {
 public:
  explicit Tokenizer(NamedFile of)
      : of_(std::move(of)),
        python_({usual_python(), "-c", prepare_script,
                 nlohmann::json{{"command", "tokens"}, {"tokenizer", of_.path}}.dump()}) {}

  Checked begin() {
    PIPER_TRY(const nlohmann::json greeting, answer());
    if (!greeting["end"].is_null()) end_ = greeting["end"].get<int64_t>();
    return Ok{};
  }
  Result<std::vector<std::vector<int64_t>>> encode(const std::vector<std::string>& texts) override {
    return ask<std::vector<std::vector<int64_t>>>("encode", texts);
  }
  Result<std::vector<std::string>> decode(const std::vector<std::vector<int64_t>>& tokens) override {
    return ask<std::vector<std::string>>("decode", tokens);
  }
  std::optional<int64_t> end() const override { return end_; }

 private:
  template <class Answer, class Question>
  Result<Answer> ask(const char* what, const Question& question) {
    python_.write(nlohmann::json{{what, question}}.dump());
    PIPER_TRY(const nlohmann::json found, answer());
    return found["found"].get<Answer>();
  }
  Result<nlohmann::json> answer() {
    const auto line = python_.read();
    if (!line)
      return refused(fmt::format("the process of the tokenizer has ended: {}", python_.end()),
                     "PIPER_PYTHON names an interpreter that has the package tokenizers");
    auto json = nlohmann::json::parse(*line, nullptr, false);
    if (!json.is_object()) return refused(fmt::format("the process of the tokenizer answers \"{}\"", *line), "");
    if (json.contains("problem")) return refused(json["problem"], json["help"]);
    return json;
  }
  Diagnostic refused(std::string why, std::string help) const {
    return error(ErrorCode::E705, of_.where, std::move(why)).help(std::move(help));
  }

  NamedFile of_;
  ChildProcess python_;
  std::optional<int64_t> end_;
};

}  // namespace

std::unique_ptr<TextTokens> byte_tokens() {
  return std::make_unique<ByteTokens>();
}

Result<std::unique_ptr<TextTokens>> open_tokenizer(const NamedFile& tokenizer) {
  auto out = std::make_unique<Tokenizer>(tokenizer);
  PIPER_CHECK(out->begin());
  return std::unique_ptr<TextTokens>(std::move(out));
}

}  // namespace piper
