#include "tools/data_options.h"

#include <CLI/CLI.hpp>

#include "tools/data_command.h"
#include "tools/number_option.h"
#include "tools/on_choice.h"

namespace piper {

void add_data(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* data = program.add_subcommand("data", "Tokenize text into data folders, and verify them");
  data->require_subcommand(1);
  data->footer("Example:\n  piper data verify data");

  CLI::App* prepare = data->add_subcommand("prepare", "Tokenize text, JSONL, Parquet and datasets into a data folder");
  DataPrepareCommand usual;
  usual.color = color;
  const auto command = on_choice(*prepare, chosen, usual);
  prepare
      ->add_option("TEXT", command->inputs,
                   "Files, folders and patterns: text, .jsonl, .parquet, .arrow; folders of Hugging Face's datasets")
      ->required();
  prepare
      ->add_option("--tokenizer", command->tokenizer,
                   "Model folder of transformers, a tokenizer.json, or a SentencePiece model")
      ->required();
  prepare->add_option("-o,--output", command->out, "Folder for the tokens; an incomplete one is completed")->required();
  prepare
      ->add_option("--as", command->as,
                   "What JSONL, Parquet and Arrow files contain: documents; chat, where only the assistant's answers "
                   "count in the loss; completions, where only the completion does")
      ->check(CLI::IsMember({"documents", "chat", "completions"}))
      ->capture_default_str();
  prepare->add_option("--field", command->field, "Field of the text (default: text), or of the messages (messages)");
  prepare->add_option("--end", command->end,
                      "Token after every document, or none (default: the tokenizer's end of sequence)");
  add_size(*prepare, "--shard-size", "Bytes of text in a shard; shards are made in parallel (default: 64MB)",
           "64MB or 1GiB", [command](int64_t bytes) { command->shard_size = bytes; });
  prepare->add_option("--processes", command->processes, "Shards made at once (default: one per CPU)")
      ->check(whole_number(1, 1024));
  prepare->footer(
      "Examples:\n  piper data prepare 'docs/**/*.md' --tokenizer qwen3 -o data\n"
      "  piper data prepare chats.jsonl --as chat --tokenizer qwen3 -o chats");
  prepare->parse_complete_callback([command] {
    if (command->as == "completions" && !command->field.empty())
      throw CLI::ValidationError("--field", "completions are in the fields prompt and completion");
  });

  CLI::App* verify = data->add_subcommand("verify", "Compare every byte of a data folder with the checksums");
  const auto verified = on_choice(*verify, chosen, DataVerifyCommand{"", color});
  verify->add_option("FOLDER", verified->folder, "A data folder")->required();
  verify->footer("Example:\n  piper data verify data");
}

}  // namespace piper
