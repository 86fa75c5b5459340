// write_checkpoint PARENT STEP SHARD_SIZE TENSOR…: saves a checkpoint, for tests in other languages. A TENSOR is
// `name:F32:4,8`, behind a word `optimizer` what the optimizer keeps; the bytes of all come from the standard input,
// one tensor behind the other.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>

#include "checkpoint/writer.h"
#include "must.h"

namespace piper {
namespace {

StoredTensor read_tensor(const std::string& text) {
  std::istringstream in(text);
  StoredTensor tensor;
  std::string dtype, sizes;
  std::getline(in, tensor.name, ':');
  std::getline(in, dtype, ':');
  tensor.dtype = stored_dtype_named(dtype).value();
  while (std::getline(in, sizes, ',')) tensor.sizes.push_back(std::stoll(sizes));
  return tensor;
}

void save(const std::vector<std::string>& words) {
  std::vector<StoredTensor> kinds[2];
  int kind = 0;
  for (size_t i = 3; i < words.size(); ++i)
    if (words[i] == "optimizer")
      kind = 1;
    else
      kinds[kind].push_back(read_tensor(words[i]));
  RunState state;
  state.step = std::stoll(words.at(1));
  const auto layout =
      std::make_shared<const FolderLayout>(must(make_layout(kinds[0], kinds[1], std::stoll(words.at(2)))));
  const auto writer = must(FolderWriter::prepare(words.at(0), state.step, layout));
  for (const std::vector<StoredTensor>& tensors : kinds)
    for (const StoredTensor& tensor : tensors) {
      const TensorPlace& place = *layout->find(tensor.name);
      std::string bytes(static_cast<size_t>(place.entry.bytes), '\0');
      if (!std::cin.read(bytes.data(), place.entry.bytes)) throw std::runtime_error("too few bytes");
      must(writer->write(place.file, place.entry.begin, std::as_bytes(std::span(bytes))));
    }
  must(writer->commit(state, must(writer->ranges())));
}

}  // namespace
}  // namespace piper

int main(int argc, char** argv) {
  try {
    piper::save({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << "\n";
    return 1;
  }
}
