#include "train/loop/diff/find_operator.h"

#include <ATen/ATen.h>

namespace piper {

std::string first_not_finite(const CapturedModel& captured, std::string_view chunk, Pass pass, const Culprit& culprit) {
  const ModelGraph& graph = *captured.graph();
  size_t id = 0;
  while (id < graph.chunks.size() && graph.chunks[id].name != chunk) ++id;
  if (id == graph.chunks.size() || !captured.states(ChunkId(id), pass).empty()) return "";
  const PassWork* work = graph.chunks[id].find(pass);
  auto program = captured.program(ChunkId(id), pass, culprit.place.samples, culprit.place.shards.counts());
  if (!work || !program) return "";
  std::vector<at::Tensor> gradients, writes;
  const ChunkIr& body = (*program)->body();
  for (const auto& use : body.gradients)
    gradients.push_back(
        at::zeros(body[use.inside].layout.sizes, static_cast<c10::ScalarType>(body[use.inside].layout.element)));
  std::string found;
  const CallWatch watch = [&](const std::string& name, const at::Tensor& result) {
    const bool unwritten = name.find("empty") != std::string::npos;  // memory that something else will write
    if (found.empty() && !unwritten && result.defined() && !all_finite(result)) found = name;
  };
  const at::NoGradGuard no_grad;
  ChunkRunner runner(*std::move(program), culprit.place.shards);
  runner.run({culprit.reads,
              culprit.parameters,
              {},
              gradients,
              writes,
              {culprit.seed, culprit.place.first_sample, culprit.place.gathered},
              nullptr,
              nullptr,
              &watch});
  return found;
}

}  // namespace piper
