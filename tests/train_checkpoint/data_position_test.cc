// The position in the data is a count of samples in one order: over a run that goes on with other numbers of replicas,
// the samples that devices compute on are those of a run that was never stopped.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>

#include "must.h"
#include "schedule/schedule_text.h"
#include "train/in_empty_folder.h"
#include "train/loop/checkpoint/checkpoints.h"
#include "train/loop/training.h"

namespace piper {
namespace {

/// Samples of the file. All tokens of a sample are its number, so that whoever sees a token knows the sample.
constexpr int64_t samples_in_file = 200, sequence = 4;

std::mutex seeing;
std::vector<int64_t> seen;

/// Takes the place of the embedding's kernel. While the model is captured there are only shapes, of another device.
at::Tensor noting_embedding(const at::Tensor& weight, const at::Tensor& tokens, int64_t, bool, bool) {
  const at::Tensor first = tokens.select(1, 0).contiguous();
  {
    const std::lock_guard lock(seeing);
    seen.insert(seen.end(), first.const_data_ptr<int64_t>(), first.const_data_ptr<int64_t>() + first.numel());
  }
  return weight.index_select(0, tokens.reshape({-1})).view({tokens.size(0), tokens.size(1), weight.size(1)});
}

class DataPosition : public InEmptyFolder {
 protected:
  void SetUp() override {
    InEmptyFolder::SetUp();
    std::vector<uint16_t> tokens(samples_in_file * sequence + 1);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<uint16_t>(std::min<size_t>(i / sequence, samples_in_file - 1));
    write_numbers("samples.bin", tokens);
    kernel_.emplace(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    kernel_->impl("embedding", noting_embedding);
  }
  void TearDown() override {
    kernel_.reset();
    InEmptyFolder::TearDown();
  }

  /// Steps with so many replicas, from the newest checkpoint on. Which samples they saw.
  std::multiset<int64_t> part(int64_t replicas, int64_t batch, int64_t steps) {
    const SourceFilePtr file = make_source("config.toml", fmt::format(R"([model]
arch = "gpt"
layers = 1
hidden = 16
heads = 2
vocab = {}
ffn = 16
seq = {}
dropout = false
[step]
batch = {}
[data]
kind = "tokens"
paths = ["samples.bin"]
[run]
steps = 100
)",
                                                                      samples_in_file, sequence, batch));
    const std::string schedule =
        replicas == 1
            ? "devices(1)\nplace({}, devices=[0])\n"
            : fmt::format("mesh(dp={})\nplace({{}}, mesh={{}})\nreplicate({{}}, along=dp, zero=1)\n", replicas);
    const auto training = must(Training::make(file, must(parse_train_config(file)),
                                              must(parse_schedule(make_source("schedule", schedule))), {}));
    const SavedModel saved = must(saved_model(training->run(), training->save_form()));
    if (taken_ > 0) must(training->resume(*must(FolderReader::open(fmt::format("run/step-{:08}", taken_))), saved));
    seen.clear();  // zeros of a first try
    for (int64_t step = 0; step < steps; ++step) training->step();
    taken_ += steps;
    const std::unique_ptr<Checkpoints> checkpoints = must(Checkpoints::make(training->run(), saved, {.folder = "run"}));
    checkpoints->save(training->state());
    checkpoints->wait();
    for (const SaveReport& report : checkpoints->take_reports()) must(report.result);
    return {seen.begin(), seen.end()};
  }

  void begin_anew() {
    taken_ = 0;
    std::filesystem::remove_all("run");
  }

 private:
  std::optional<torch::Library> kernel_;
  int64_t taken_ = 0;
};

TEST_F(DataPosition, NothingIsSeenTwiceOrLeftOut) {
  std::multiset<int64_t> parts;
  for (const auto& [replicas, batch, steps] : {std::tuple{2, 12, 3}, {4, 12, 2}, {1, 12, 2}, {3, 24, 2}})
    parts.merge(part(replicas, batch, steps));
  begin_anew();
  const std::multiset<int64_t> whole = part(1, 12, 11);
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(whole.size(), 11u * 12u);
  EXPECT_EQ(std::set(whole.begin(), whole.end()).size(), whole.size()) << "within an epoch each is seen once";
}

/// Behind the end of an epoch the samples come again, in another order: the count goes on.
TEST_F(DataPosition, GoesOnInTheMiddleOfTheSecondEpoch) {
  std::multiset<int64_t> parts;
  for (const auto& [replicas, batch, steps] : {std::tuple{4, 48, 3}, {2, 48, 2}, {3, 48, 3}, {1, 16, 1}})
    parts.merge(part(replicas, batch, steps));
  for (int64_t sample = 0; sample < samples_in_file; ++sample) EXPECT_EQ(parts.count(sample), 2u) << sample;
}

}  // namespace
}  // namespace piper
