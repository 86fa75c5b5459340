// Text made into tokens, and folders of tokens checked: Python does it, with the tokenizers that are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piper {

struct DataPrepareCommand {
  std::vector<std::string> inputs;  // files, folders, patterns
  std::string tokenizer;            // folder of transformers, tokenizer.json, or a model of SentencePiece
  std::string out;                  // folder
  std::string as = "documents";     // or chat, completions: what a document is
  std::string field;                // of JSONL, Parquet, Arrow; empty: the usual one
  std::string end;                  // token after a document; empty: the tokenizer's; none
  int64_t shard_size = 64'000'000;  // bytes of text
  int processes = 0;                // at once; 0: as many as there are processors
  bool color = false;
};
int run(const DataPrepareCommand& command);

struct DataVerifyCommand {
  std::string folder;
  bool color = false;
};
int run(const DataVerifyCommand& command);

}  // namespace piper
