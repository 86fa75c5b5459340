#include "tools/data_options.h"

#include <CLI/CLI.hpp>

#include "tools/data_command.h"
#include "tools/number_option.h"
#include "tools/on_choice.h"

namespace piper {

void add_data(CLI::App& program, std::function<int()>& chosen, bool color) {
  CLI::App* data = program.add_subcommand("data", "Make tokens of text, and check them");
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
                   "Folder of a model of transformers, a tokenizer.json, or a model of SentencePiece")
      ->required();
  prepare->add_option("-o,--output", command->out, "Folder for the tokens; one that is not complete is completed")
      ->required();
  prepare
      ->add_option("--as", command->as,
                   "What is in JSONL, Parquet and Arrow: documents; chat, of which the loss counts what the "
                   "assistant says; completions, of which it counts the completion")
      ->check(CLI::IsMember({"documents", "chat", "completions"}))
      ->capture_default_str();
  prepare->add_option("--field", command->field, "Field of the text (default: text), or of the messages (messages)");
  prepare->add_option("--end", command->end,
                      "Token after every document (default: the tokenizer's end of sequence), or none");
  add_size(*prepare, "--shard-size", "Text of a shard; shards are made in parallel (default: 64MB)", "64MB or 1GiB",
           [command](int64_t bytes) { command->shard_size = bytes; });
  prepare->add_option("--processes", command->processes, "Shards at once (default: as many as there are processors)")
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
