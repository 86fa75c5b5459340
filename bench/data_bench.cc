// Samples of files: tokens per second of one core, for every way to make them.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "must.h"
#include "train/data/token_source.h"

namespace {

using namespace piper;

constexpr int64_t sequence = 2048, tokens_of_shard = 1 << 23, tokens_of_document = 700;

void write(const std::filesystem::path& path, const void* data, size_t bytes) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

/// A data folder in which the loss counts every second token.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "piper_bench.XXXXXX").string();
    if (!::mkdtemp(name.data())) std::abort();
    path_ = name;
    std::vector<uint16_t> tokens(tokens_of_shard);
    std::vector<uint8_t> counted(tokens_of_shard);
    std::vector<uint64_t> ends;
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint16_t>(i * 7919);
      counted[i] = i % 2;
      if ((i + 1) % tokens_of_document == 0) ends.push_back(i + 1);
    }
    write(path_ / "0.tokens", tokens.data(), tokens.size() * 2);
    write(path_ / "0.loss", counted.data(), counted.size());
    write(path_ / "0.documents", ends.data(), ends.size() * 8);
    std::ofstream(path_ / "data.json")
        << R"({"format": "piper-data", "version": 1, "dtype": "uint16", "loss": "completions",
      "shards": [{"name": "0", "tokens": )"
        << tokens.size() << R"(, "documents": )" << ends.size() << "}]}";
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void samples(benchmark::State& state, DocumentPacking packing, LossOn loss, size_t sources) {
  static const Folder folder;
  DataConfig config{.kind = DataKind::Tokens, .packing = packing, .loss = loss};
  config.sources.assign(sources, SourceConfig{.paths = {{folder.path(), {}}}});
  const auto source = must(open_tokens(config, {sequence, 1 << 16}));
  std::vector<int64_t> tokens(sequence), targets(sequence);
  int64_t number = 0;
  for (auto _ : state) {
    must(source->sample(number++, tokens, targets));
    benchmark::DoNotOptimize(targets.data());
  }
  state.SetItemsProcessed(state.iterations() * sequence);
}

BENCHMARK_CAPTURE(samples, carry, DocumentPacking::Carry, LossOn::All, 1);
BENCHMARK_CAPTURE(samples, truncate, DocumentPacking::Truncate, LossOn::All, 1);
BENCHMARK_CAPTURE(samples, documents_completions, DocumentPacking::None, LossOn::Completions, 1);
BENCHMARK_CAPTURE(samples, mixture_of_8, DocumentPacking::Carry, LossOn::All, 8);

}  // namespace

BENCHMARK_MAIN();
