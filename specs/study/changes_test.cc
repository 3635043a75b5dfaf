// SPDX-License-Identifier: Apache-2.0
#include "specs/study/changes.h"

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

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A study with this block of samples.
std::string study_with(const std::string& samples) {
  return "description: {name: n}\nenv: {variables: {N: 20}}\n" + samples +
         "# of the steps\nstudy:\n  - {name: s, run: {cmd: 'echo $(a) $(b)'}}\n";
}

constexpr const char* kSobol = "samples: {design: sobol, count: 20, parameters: {a: [0, 1], b: [1, 2]}}\n";

Study grow(const StudyText& text, const Growth& growth) {
  return grown_study(text.study(), text.options, growth);
}

std::string refusal(const std::string& samples, const Growth& growth) {
  const StudyText text(study_with(samples));
  try {
    grow(text, growth);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_goes_on(const Study& old, const Study& now) {
  const auto before = open_samples(old.samples->design);
  const auto after = open_samples(now.samples->design);
  for (std::uint64_t row = 0; row < before->count(); ++row) {
    for (std::size_t column = 0; column < 2; ++column)
      EXPECT_EQ(before->text(row, column), after->text(row, column));
  }
}

TEST(GrownStudy, has_another_count_in_its_text) {
  for (const char* samples : {kSobol,
                              "samples:\n  design: halton\n  count:   20   # at first\n  parameters:\n    a: "
                              "[0, 1]\n    b: [1, 2]\n\n",
                              "samples: {design: uniform, count: '20', parameters: {a: [0, 1], b: [1, 2]}}\n",
                              "samples:\n- design: list\n  columns: [a, b]\n  values: [[1, 2]]\n- {design: "
                              "sobol, count: 19, parameters: {a: [0, "
                              "1], b: [1, 2]}}\n"}) {
    const StudyText text(study_with(samples));
    const Study now = grow(text, {.count = 45, .samples = {}, .append = {}, .ranges = {}});
    EXPECT_EQ(now.samples->design.count, 45U) << samples;
    EXPECT_THAT(now.options.grown, ElementsAre(20));
    expect_goes_on(text.study(), now);
  }
}

TEST(GrownStudy, changes_the_variable_where_the_count_is_one) {
  const StudyText text(
      study_with("samples: {design: sobol, count: $(N), parameters: {a: [0, 1], b: [1, 2]}}\n"));
  const Study now = grow(text, {.count = 30, .samples = {}, .append = {}, .ranges = {}});
  EXPECT_EQ(now.samples->design.count, 30U);
  EXPECT_THAT(now.options.variables, ElementsAre("N=30"));
  EXPECT_EQ(now.text, text.study().text);
}

TEST(GrownStudy, grows_again_and_remembers) {
  const StudyText text(
      study_with("samples: {design: latin_hypercube, count: 20, parameters: {a: [0, 1], b: [1, 2]}}\n"));
  const Study first = text.study();
  const Study second =
      grown_study(first, text.options, {.count = 40, .samples = {}, .append = {}, .ranges = {}});
  const Study third =
      grown_study(second, second.options, {.count = 120, .samples = {}, .append = {}, .ranges = {}});
  EXPECT_THAT(third.options.grown, ElementsAre(20, 40));
  expect_goes_on(first, second);
  expect_goes_on(second, third);
}

TEST(GrownStudy, takes_a_table_that_goes_on) {
  const StudyText text(study_with("samples: {file: a.csv}\n"));
  text.folder().write("a.csv", "a,b\n1,2\n3,4\n");
  const auto more = text.folder().write("b.csv", "a,b\n1,2\n3,4\n5,6\n");
  const Study now = grow(text, {.count = 0, .samples = more, .append = {}, .ranges = {}});
  EXPECT_EQ(now.samples->design.count, 3U);
  expect_goes_on(text.study(), now);
}

TEST(GrownStudy, appends_a_table) {
  const StudyText text(study_with(kSobol));
  for (const auto& [name, rows] :
       {std::pair("with.csv", "a,b\n1,2\n3,4\n"), std::pair("without.csv", "1,2\n3,4\n")}) {
    const auto file = text.folder().write(name, rows);
    const Study now = grow(text, {.count = 0, .samples = {}, .append = file, .ranges = {}});
    EXPECT_EQ(now.samples->design.count, 22U);
    EXPECT_EQ(open_samples(now.samples->design)->text(21, 1), "4");
    expect_goes_on(text.study(), now);
    EXPECT_THAT(now.text, HasSubstr("# of the steps\nstudy:"));
  }
}

TEST(GrownStudy, narrows_a_range) {
  for (const char* samples : {kSobol,
                              "samples:\n  # a box\n  design: sobol\n  count: 20\n  parameters:\n    a: "
                              "{low: 0, high: 1}\n    b: [1, "
                              "2]\n  level_max_dirs: 10\n"}) {
    const StudyText text(study_with(samples));
    const Study now = grow(text, {.count = 60, .samples = {}, .append = {}, .ranges = {{"a", "0.2:0.3"}}});
    EXPECT_EQ(now.samples->design.count, 60U);
    expect_goes_on(text.study(), now);
    const auto table = open_samples(now.samples->design);
    for (std::uint64_t row = 20; row < 60; ++row) {
      EXPECT_GE(table->number(row, 0), 0.2);
      EXPECT_LE(table->number(row, 0), 0.3);
      EXPECT_GE(table->number(row, 1), 1);
    }
    EXPECT_EQ(now.samples->level_max_dirs, text.study().samples->level_max_dirs);
  }
}

TEST(GrownStudy, says_what_can_not_be) {
  const Growth to_30{.count = 30, .samples = {}, .append = {}, .ranges = {}};
  EXPECT_THAT(refusal(kSobol, {.count = 20, .samples = {}, .append = {}, .ranges = {}}),
              HasSubstr("the campaign has 20 samples; --count says how many there are to be in all"));
  EXPECT_THAT(refusal(kSobol, {.count = 10, .samples = {}, .append = {}, .ranges = {}}),
              HasSubstr("has 20 samples"));
  EXPECT_THAT(
      refusal("samples: {design: latin_hypercube, count: 20, parameters: {a: [0, 1], b: [1, 2]}}\n", to_30),
      HasSubstr("a Latin hypercube of 20 samples grows to a multiple of 20, such as 40, found 30"));
  EXPECT_THAT(
      refusal("samples: {design: grid, parameters: {a: [0, 1], b: [1, 2]}}\n", to_30),
      HasSubstr("samples of the design 'grid' do not go on by themselves; give a table of further ones with "
                "--append FILE"));
  EXPECT_THAT(refusal(kSobol, {.count = 30, .samples = {}, .append = {}, .ranges = {{"c", "0:1"}}}),
              HasSubstr("'c' is no column of the samples"));
  EXPECT_THAT(refusal(kSobol, {.count = 30, .samples = {}, .append = {}, .ranges = {{"a", "1:0"}}}),
              HasSubstr("--range a=1:0: a range is LOW:HIGH"));
  const TemporaryFolder folder;
  EXPECT_THAT(
      refusal(kSobol,
              {.count = 0, .samples = {}, .append = folder.write("x.csv", "a,c\n1,2\n"), .ranges = {}}),
      HasSubstr(""));
  EXPECT_THAT(
      refusal(kSobol,
              {.count = 0, .samples = folder.write("y.csv", "a,b\n1,2\n"), .append = {}, .ranges = {}}),
      HasSubstr("there are 1 samples, the campaign has 20; a table for --samples begins with"));
}

// Edited by hand: only the count changes.
TEST(GrownStudy, is_seen_in_a_text_of_another_count) {
  const StudyText text(
      study_with("samples: {design: latin_hypercube, count: 20, parameters: {a: [0, 1], b: [1, 2]}}\n"));
  const StudyText more(
      study_with("samples: {design: latin_hypercube, count: 60, parameters: {a: [0, 1], b: [1, 2]}}\n"));
  const auto grown = as_grown(text.study(), more.study());
  ASSERT_TRUE(grown);
  EXPECT_THAT(grown->options.grown, ElementsAre(20));
  expect_goes_on(text.study(), *grown);
  const StudyText odd(
      study_with("samples: {design: latin_hypercube, count: 50, parameters: {a: [0, 1], b: [1, 2]}}\n"));
  EXPECT_FALSE(as_grown(text.study(), odd.study()));
  const StudyText other(
      study_with("samples: {design: sobol, count: 50, parameters: {a: [0, 1], b: [1, 2]}}\n"));
  EXPECT_FALSE(as_grown(text.study(), other.study()));
  EXPECT_FALSE(as_grown(more.study(), text.study()));
}

}  // namespace

}  // namespace wflow::specs
