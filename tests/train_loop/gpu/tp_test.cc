// Tensor, vocabulary and sequence parallelism on a GPU that all devices share: equal to one device there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/gpu/gpu_processor.h"
#include "train_loop/subjects.h"
#include "train_loop/trained.h"

namespace piper {
namespace {

TEST(GpuTp, EqualsOneDevice) {
  auto gpu = make_gpu_processor({.deterministic = true});
  if (!gpu) GTEST_SKIP() << "there is no GPU here";
  const std::string split = "split(batch, parts=4, as=mb)\n", place = "place({}, mesh={})\n";
  for (const std::string kind : {"dense", "tied", "dropout", "mixture"}) {
    const Subject subject{.kind = kind, .on = gpu->get()};
    const TrainableModel model = model_of(subject);
    TrainSettings settings = usual_settings(subject);
    settings.job.run.processor = gpu->get();
    for (const std::string what :
         {"{layer=*}, along=tp", "{layer=*}, along=tp, sequence=on", "{layer=*}, along=tp, sequence=on, regather=on",
          "{}, along=tp, vocabulary=on", "{}, along=tp, vocabulary=on, sequence=on"}) {
      SCOPED_TRACE(kind + " " + what);
      const std::string tensor_parallel = "shard(" + what + ")\n";
      const Trained expected = train(model, "mesh(tp=1)\n" + split + place + tensor_parallel, settings);
      const Trained run = train(model, "mesh(tp=2)\n" + split + place + tensor_parallel, settings);
      EXPECT_EQ(run.devices, 2);
      EXPECT_THAT(complaints(run, expected, 1e-12), testing::IsEmpty());
      if (kind != "mixture") continue;
      const Trained slices =
          train(model, "mesh(tp=1)\nsplit(batch, parts=8, as=mb)\n" + place + tensor_parallel, settings);
      const Trained sharded =
          train(model,
                "mesh(ep=2, tp=2)\n" + split + place +
                    "replicate({}, along=ep, zero=1)\nshard({experts=*}, along=ep)\n" + tensor_parallel,
                settings);
      EXPECT_EQ(sharded.devices, 4);
      EXPECT_THAT(complaints(sharded, slices, 1e-12), testing::IsEmpty());
    }
  }
}

}  // namespace
}  // namespace piper
