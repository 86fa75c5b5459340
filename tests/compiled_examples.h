// A small model with everything the compiler knows (tied weights, experts, BI and BW), and schedules for it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/read_file.h"
#include "compile/compile.h"
#include "model/model_text.h"
#include "schedule/schedule_text.h"

namespace piper::examples {

/// One layer: attention, experts, and what puts their results back.
inline std::string layer_text(int i) {
  return fmt::format(R"(
value y.{0} float32 [expert=4, capacity=b*8, 32]
value d.y.{0} float32 [expert=4, capacity=b*8, 32]
value z.{0} float32 [expert=4, capacity=b*8, 32]
value d.z.{0} float32 [expert=4, capacity=b*8, 32]
value saved.{0} float32 [b, 16, 32]
value x.{1} float32 [b, 16, 32]
value d.x.{1} float32 [b, 16, 32]
parameter attention.{0} float32 [32, 32]
parameter experts.{0} float32 [expert=4, 32, 32]
chunk attention.{0} {{layer={0}, attention=0}}
  F (x.{0}) -> (y.{0}, saved.{0}) parameters(attention.{0}) flops=32768*b moves=4096*b temporaries=512*b
  B (x.{0}, saved.{0}, d.y.{0}) -> (d.x.{0}) parameters(attention.{0}) gradients(attention.{0}) flops=65536*b temporaries=1024*b
  BI (saved.{0}, d.y.{0}) -> (d.x.{0}) parameters(attention.{0}) flops=32768*b temporaries=1024*b
  BW (x.{0}, d.y.{0}) -> () gradients(attention.{0}) flops=32768*b
chunk experts.{0} {{layer={0}, experts=0}}
  F (y.{0}) -> (z.{0}) parameters(experts.{0}) flops=65536*b temporaries=256*b
  B (y.{0}, d.z.{0}) -> (d.y.{0}) parameters(experts.{0}) gradients(experts.{0}) flops=131072*b
  BI (d.z.{0}) -> (d.y.{0}) parameters(experts.{0}) flops=65536*b
  BW (y.{0}, d.z.{0}) -> () gradients(experts.{0}) flops=65536*b
chunk combine.{0} {{layer={0}}}
  F (z.{0}) -> (x.{1}) moves=4096*b
  B (d.x.{1}) -> (d.z.{0}) moves=4096*b
)",
                     i, i + 1);
}

inline std::string model_text(int layers) {
  std::string text = R"(model small
step batch=16 sequence=16 weights=float32 gradients=float32 optimizer=adamw
input tokens int64 [b, 16]
input labels int64 [b, 16]
value x.0 float32 [b, 16, 32]
value d.x.0 float32 [b, 16, 32]
value probabilities float32 [b, 16, 100]
value d.logits float32 [b, 16, 100]
loss loss float32 []
parameter table float32 [100, 32]
chunk embed {embed=0}
  F (tokens) -> (x.0) parameters(table) moves=4096*b
  B (tokens, d.x.0) -> () gradients(table) moves=6144*b
)";
  for (int i = 0; i < layers; ++i) text += layer_text(i);
  return text + fmt::format(R"(chunk head {{head=0}}
  F (x.{0}, labels) -> (loss, probabilities) parameters(table) flops=102400*b temporaries=6400*b
  B (x.{0}, labels, probabilities) -> (d.x.{0}) parameters(table) gradients(table) flops=204800*b temporaries=6400*b
  BI (labels, probabilities) -> (d.x.{0}, d.logits) parameters(table) flops=102400*b
  BW (x.{0}, d.logits) -> () gradients(table) flops=102400*b
)",
                            layers);
}

inline std::shared_ptr<const ModelGraph> model(int layers = 4) {
  auto parsed = parse_model(make_source("small", model_text(layers)));
  if (!parsed) throw std::runtime_error(render(parsed.error()));
  return std::make_shared<const ModelGraph>(*std::move(parsed));
}

struct Example {
  std::string name, schedule;
};

/// Two stages of a pipeline; the table is used on both.
inline const std::string two_stages = "mesh(pp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=2)\n";

inline std::vector<Example> all() {
  std::vector<Example> out = {
      {"one_device", "devices(1)\nplace({}, devices=[0])\n"},
      {"split", "devices(1)\nsplit(batch, parts=4, as=\"micro batch\")\nplace({}, devices=[0])\n"},
      {"two_dims",
       "devices(1)\nsplit(batch, parts=2, as=outer)\nsplit(batch, parts=4, as=F)\nplace({}, devices=[0])\n"},
      {"pipeline", two_stages},
      {"recompute", two_stages + "recompute({layer=*})\nuse 1f1b(stages=stage, microbatches=mb)\n"},
      {"bracket", two_stages + "order({stage=1, mb=0, pass=F}, [{stage=1, mb=1, pass=F}, {stage=1, mb=0, pass=B}], "
                               "{stage=1, mb=1, pass=B})\n"},
      {"zero_bubble", two_stages + "use zb-h1(stages=stage, microbatches=mb)\n"},
      {"different_groups",
       "devices(3)\nsplit(batch, parts=2, as=mb)\nplace({embed=0}, devices=[0, 1])\nplace({layer=*}, devices=[0, 1])\n"
       "place({head=0}, devices=[2])\nreplicate({layer=*}, devices=[0, 1], zero=1)\nreplicate({embed=0}, devices=[0, "
       "1], zero=1)\n"},
      {"experts",
       "mesh(dp=2)\nsplit(batch, parts=2, as=mb)\nplace({}, mesh={})\nreplicate({}, along=dp, "
       "zero=1)\nshard({experts=*}, along=dp)\n"
       "recompute({layer=1..2})\n"},
      {"experts_on_one_axis",
       "mesh(edp=2, ep=2)\nplace({}, mesh={})\nreplicate({}, along=[edp, ep], zero=2, bucket=8KB)\nshard({experts=*}, "
       "along=ep)\n"},
      {"dualpipev",
       "mesh(pp=2, dp=2)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=4, shape=v)\n"
       "replicate({}, along=dp, zero=1, bucket=8KB)\nshard({experts=*}, along=dp)\nuse dualpipev(stages=stage, "
       "microbatches=mb)\n"},
      {"dualpipe",
       "mesh(pp=2)\nsplit(batch, parts=8, as=mb)\nplace({}, along=pp, stages=2, shape=two_way)\nuse "
       "dualpipe(stages=stage, microbatches=mb)\n"},
      {"zero_3_pipeline",
       "mesh(pp=2, dp=2)\nsplit(batch, parts=4, as=mb)\nplace({}, along=pp, stages=4)\n"
       "replicate({}, along=dp, zero=3, bucket=8KB, release=pass)\nprefetch({comm=gather}, distance=1)\n"
       "use interleaved-1f1b(stages=stage, microbatches=mb)\n"},
  };
  for (int zero = 0; zero <= 3; ++zero)
    out.push_back({fmt::format("zero_{}", zero),
                   fmt::format("devices(2)\nsplit(batch, parts=2, as=mb)\nplace({{}}, devices=[0, 1])\n"
                               "replicate({{}}, devices=[0, 1], zero={}, bucket=8KB)\n",
                               zero)});
  return out;
}

inline Result<Compiled> compile(const Example& example, const CompileOptions& options = {}) {
  PIPER_TRY(const Schedule schedule, parse_schedule(make_source(example.name, example.schedule)));
  return piper::compile(model(), schedule, options);
}

/// The block of code in a page of docs/ that starts with these words.
inline std::string block_in_docs(const std::string& page, const std::string& start) {
  auto file = read_file(std::string(PIPER_SOURCE_DIR) + "/docs/" + page, "page");
  if (!file) throw std::runtime_error(render(file.error()));
  const std::string& text = (*file)->text;
  const size_t begin = text.find("```\n" + start);
  if (begin == std::string::npos) throw std::runtime_error("no example in " + page);
  return text.substr(begin + 4, text.find("```", begin + 4) - begin - 4);
}

/// For parameterised tests.
inline std::string name_of(const testing::TestParamInfo<Example>& info) {
  return info.param.name;
}
inline void PrintTo(const Example& example, std::ostream* out) {
  *out << example.name;
}

}  // namespace piper::examples
