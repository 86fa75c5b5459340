// What an answer says besides the schedule: the front of time against memory, and why others are not the best.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/load_cluster.h"
#include "must.h"
#include "search/answer.h"
#include "search/spaces.h"

namespace piper::search_cases {
namespace {

using ::testing::HasSubstr;

Evaluated made_up(const std::string& name, double seconds, int64_t gigabytes, bool fits = true) {
  Evaluated out;
  out.name = name;
  out.report.seconds = seconds;
  out.memory.total = gigabytes * 1'000'000'000;
  out.capacity = int64_t{40'000'000'000};
  out.fits = fits;
  return out;
}

size_t count(const std::string& text, const std::string& word) {
  size_t out = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++out;
  return out;
}

SearchResult four() {
  SearchResult out;
  out.evaluated = {made_up("fast", 1.0, 30), made_up("beaten", 1.5, 35), made_up("small", 2.0, 10),
                   made_up("<large & slow>", 0.5, 50, false)};
  return out;
}

TEST(Front, HasWhatNoOtherBeatsInBoth) {
  const SearchResult result = four();
  std::vector<std::string> names;
  for (const Evaluated* made : pareto_front(result)) names.push_back(made->name);
  EXPECT_EQ(names, (std::vector<std::string>{"<large & slow>", "fast", "small"}));
  EXPECT_TRUE(pareto_front({}).empty());
  SearchResult equal;
  equal.evaluated = {made_up("a", 1, 10), made_up("b", 1, 10)};
  EXPECT_EQ(pareto_front(equal).size(), 1u);
}

TEST(Front, ThePictureHasAPointForEverySchedule) {
  Problem problem;
  problem.cluster.kinds[0].memory = int64_t{40'000'000'000};
  const std::string svg = front_svg(problem, four());
  EXPECT_EQ(count(svg, "<circle "), 4u);
  EXPECT_EQ(count(svg, "fill=\"#bbb\""), 1u) << "what does not fit";
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1u) << "the limit";
  EXPECT_THAT(svg, HasSubstr("<title>500 ms, 46.6 GiB: &lt;large &amp; slow></title>"));
  const size_t path = svg.find("#d55e00"), begin = svg.rfind("d=\"", path);
  EXPECT_EQ(count(svg.substr(begin, path - begin), "L"), 2u) << "the front has three points";
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(front_svg(problem, {}), ::testing::EndsWith("</svg>\n"));
}

TEST(WhyNot, NamesWhatCrossesNodes) {
  const Cluster cluster = must(load_cluster("h100"));
  Evaluated best = made_up("best", 1.0, 30), other = made_up("other", 1.2, 30);
  best.report.path = {{"F", 0.8, 1}, {"all_to_all, nvlink", 0.2, 1}};
  other.report.path = {{"F", 0.8, 1}, {"all_to_all, infiniband", 0.4, 1}};
  EXPECT_EQ(why_not(cluster, other, best), "all_to_all crosses nodes: 400 ms over infiniband");
  best.report.path = {{"F", 0.9, 1}, {"all_to_all, infiniband", 0.1, 1}};
  EXPECT_EQ(why_not(cluster, other, best), "more all_to_all over infiniband: 300 ms");
  other.report.path = {{"F", 0.8, 1}, {"all_reduce, nvlink", 0.4, 1}};
  EXPECT_EQ(why_not(cluster, other, best), "more all_reduce over nvlink: 400 ms");
}

}  // namespace
}  // namespace piper::search_cases
