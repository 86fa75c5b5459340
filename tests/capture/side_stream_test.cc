// Which calls may run beside those that come after them, on bodies written by hand.
#include "capture/gpu/side_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piper {
namespace {

using testing::ElementsAre;

/// Every tensor is a storage of its own; operators do not matter.
struct Body {
  ChunkIr body;
  TensorId add(TensorKind kind) {
    body.storages.push_back({4, TensorId(body.tensors.size())});
    body.tensors.push_back({kind, StorageId(body.storages.size() - 1), {6, 4, {1}, {1}, 0}, {}, {}, -1});
    return TensorId(body.tensors.size() - 1);
  }
  TensorId call(std::vector<TensorId> from) {
    const TensorId result = add(TensorKind::Result);
    Call& call = body.calls.emplace_back();
    call.op = OperatorId(0);
    for (const TensorId id : from) call.arguments.emplace_back(id);
    call.results = {result};
    return result;
  }
  void change(TensorId what, TensorId by) {
    Call& call = body.calls.emplace_back();
    call.op = OperatorId(0);
    call.arguments = {what, by};
    call.results = {what};
    call.writes = {body[what].storage};
  }
  void give(TensorId value) { body.writes.push_back({{}, value}); }
  std::vector<bool> side_stream() const {
    std::vector<bool> out;
    for (const Call& call : mark_side_stream(body).calls) out.push_back(call.side_stream);
    return out;
  }
};

TEST(CallsBeside, GradientsOfParametersInAPassThatGivesSomething) {
  Body b;
  const TensorId in = b.add(TensorKind::Input), sum = b.add(TensorKind::Buffer);
  const TensorId middle = b.call({in}), gradient = b.call({middle});
  b.change(sum, gradient);
  const TensorId out = b.call({middle});
  EXPECT_THAT(b.side_stream(), ElementsAre(false, false, false, false));  // nothing is given
  b.give(out);
  EXPECT_THAT(b.side_stream(), ElementsAre(false, true, true, false));
  EXPECT_THAT(awaited_by_side_stream(mark_side_stream(b.body)), ElementsAre(-1, 0, -1, -1));
}

TEST(CallsBeside, NotWhatIsOverwrittenLater) {
  Body b;
  const TensorId in = b.add(TensorKind::Input), sum = b.add(TensorKind::Buffer);
  const TensorId middle = b.call({in});
  b.change(sum, middle);
  b.change(middle, in);
  b.give(middle);
  EXPECT_THAT(b.side_stream(), ElementsAre(false, false, false));
}

/// What is beside, and writes, waits for those who read before it.
TEST(CallsBeside, AwaitReadersOfWhatTheyWrite) {
  Body b;
  const TensorId in = b.add(TensorKind::Input), state = b.add(TensorKind::Buffer);
  const TensorId out = b.call({in, state});
  b.change(state, in);
  b.give(out);
  EXPECT_THAT(b.side_stream(), ElementsAre(false, true));
  EXPECT_THAT(awaited_by_side_stream(mark_side_stream(b.body)), ElementsAre(-1, 0));
}

/// Whoever touches what another makes or writes shares its lane.
TEST(CallsBeside, LanesDoNotWaitForEachOther) {
  Body b;
  const TensorId in = b.add(TensorKind::Input), one = b.add(TensorKind::Buffer), two = b.add(TensorKind::Buffer);
  const TensorId middle = b.call({in});
  const TensorId a = b.call({middle}), c = b.call({middle}), d = b.call({middle});
  b.change(one, a);
  b.change(two, c);
  b.change(one, d);
  b.give(b.call({middle}));
  EXPECT_THAT(side_lanes(mark_side_stream(b.body), 2), ElementsAre(-1, 0, 1, 0, 0, 1, 0, -1));
}

/// What both use lives until the end; what only they use, until its last use.
TEST(CallsBeside, UsedTensorsLiveUntilTheEnd) {
  Body b;
  const TensorId in = b.add(TensorKind::Input), sum = b.add(TensorKind::Buffer);
  const TensorId middle = b.call({in}), gradient = b.call({middle});
  b.change(sum, gradient);
  const TensorId more = b.call({middle}), out = b.call({more});
  b.give(out);
  EXPECT_THAT(last_uses(b.body),
              ElementsAre(ElementsAre(), ElementsAre(), ElementsAre(gradient), ElementsAre(middle), ElementsAre(more)));
  EXPECT_THAT(last_uses(mark_side_stream(b.body)),
              ElementsAre(ElementsAre(), ElementsAre(), ElementsAre(gradient), ElementsAre(),
                          testing::UnorderedElementsAre(middle, more)));
}

}  // namespace
}  // namespace piper
