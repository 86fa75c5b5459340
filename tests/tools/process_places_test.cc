// Where the processes of a job are started.
#include "tools/process_places.h"

#include <gmock/gmock.h>

#include "must.h"

namespace piper::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Host> hosts = {{"a", "2", {}}, {"b", "", {}}, {"c", "3", {}}};

TEST(ProcessPlaces, HostsAreFilledInTheirOrder) {
  EXPECT_THAT(must(places_on(hosts, 4, 0)), ElementsAre("a", "a", "b", "c"));
}

TEST(ProcessPlaces, SparesTakeWhatIsLeftThenAPlaceOnEachHost) {
  EXPECT_THAT(must(places_on(hosts, 3, 2)), ElementsAre("a", "a", "b", "c", "c"));
  EXPECT_THAT(must(places_on(hosts, 6, 4)), ElementsAre("a", "a", "b", "c", "c", "c", "c", "b", "a", "c"));
}

TEST(ProcessPlaces, TooFewAreRefused) {
  EXPECT_THAT(render(places_on(hosts, 7, 0).error()), HasSubstr("the hosts take 6 processes, and the job has 7"));
}

TEST(ProcessPlaces, ThisHostIsKnownByItsAddressToOthers) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_FALSE(is_this_host("127.0.0.2"));
  EXPECT_EQ(must(address_for("127.0.0.2")), "127.0.0.1");
  EXPECT_THAT(render(address_for("no.such.host.invalid").error()),
              HasSubstr("error[E805]: host \"no.such.host.invalid\""));
}

TEST(ProcessPlaces, ACommandForAnotherHostIsQuoted) {
  EXPECT_THAT(remote_command({"/a b/piper", "it's"}, {{"X", "1 2"}}, "SECRET"),
              HasSubstr(" && IFS= read -r SECRET && export SECRET && exec env X='1 2' '/a b/piper' 'it'\\''s'"));
}

}  // namespace
}  // namespace piper::testing
