// The smallest run with messages: a pipeline of two devices, the second of which receives what the first computes.
#pragma once

#include <string>

namespace piper {

inline const std::string two_stages_config = R"([model]
arch = "reference"
layers = 2
hidden = 16
heads = 2
vocab = 64
seq = 8
[step]
batch = 4
)";
inline const std::string two_stages_schedule =
    "mesh(pp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, along=pp, stages=2)\n"
    "use 1f1b(stages=stage, microbatches=mb)\n";

}  // namespace piper
