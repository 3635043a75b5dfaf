// SPDX-License-Identifier: Apache-2.0
#include "specs/study/difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> shown(const std::string& from, const std::string& to) {
  std::vector<std::string> lines;
  for (const KeyChange& change : differences(StudyText(from).study(), StudyText(to).study())) {
    for (std::string& line : lines_of(change)) lines.push_back(std::move(line));
  }
  return lines;
}

std::string study(const std::string& box, const std::string& cmd, const std::string& more = "") {
  return "description: {name: n}\nsamples: {design: sobol, count: 4, parameters: {a: " + box +
         "}}\nstudy:\n  - name: s\n    run:\n" + cmd + more;
}

constexpr const char* kEcho = "      cmd: echo $(a)\n";

TEST(Difference, ShortValuesInALine) {
  EXPECT_THAT(shown(study("[0, 1]", kEcho), study("[0, 1]", kEcho)), IsEmpty());
  EXPECT_THAT(shown(study("[0, 1]", kEcho), study("[0, 2]", kEcho)),
              ElementsAre("samples.parameters.a: [0, 1] -> [0, 2]"));
  EXPECT_THAT(shown(study("[0, 1]", kEcho), study("[0, 1]", "      cmd: echo $(a) b\n")),
              ElementsAre("study.s.run.cmd: echo $(a) -> echo $(a) b"));
}

TEST(Difference, LongValuesLineByLine) {
  const std::string before = "      cmd: |\n        echo $(a)\n        sync\n";
  const std::string after = "      cmd: |\n        echo $(a) 2\n        sync\n";
  EXPECT_THAT(shown(study("[0, 1]", before), study("[0, 1]", after)),
              ElementsAre("study.s.run.cmd:", "  - echo $(a)", "  + echo $(a) 2"));
}

TEST(Difference, NewAndRemovedKeysAndSteps) {
  EXPECT_THAT(shown(study("[0, 1]", kEcho), study("[0, 1]", kEcho, "      max_retries: 3\n")),
              ElementsAre("study.s.run.max_retries: 3 (new)"));
  EXPECT_THAT(shown(study("[0, 1]", kEcho, "      max_retries: 3\n"), study("[0, 1]", kEcho)),
              ElementsAre("study.s.run.max_retries: 3 (removed)"));
  const auto lines =
      shown(study("[0, 1]", kEcho), study("[0, 1]", kEcho, "  - {name: t, run: {cmd: sync}}\n"));
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front(), "study.t: (new)");
}

}  // namespace
}  // namespace wflow::specs
