// SPDX-License-Identifier: Apache-2.0
// Campaigns that get more samples: no earlier row, directory or block changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "specs/samples/samples.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SampleDesign box(DesignKind kind, std::uint64_t count, std::uint64_t seed = 0,
                 std::vector<std::uint64_t> grown = {}) {
  SampleDesign design;
  design.kind = kind;
  design.count = count;
  design.seed = seed;
  design.grown = std::move(grown);
  design.columns = {
      {"a", 0, 1, false, false, {}}, {"b", 1, 100, true, false, {}}, {"c", -3, 7, false, true, {}}};
  return design;
}

void expect_same_rows(const SampleDesign& few, const SampleDesign& many) {
  const auto first = open_samples(few);
  const auto all = open_samples(many);
  for (std::uint64_t row = 0; row < few.count; ++row) {
    for (std::size_t column = 0; column < few.columns.size(); ++column)
      ASSERT_EQ(first->text(row, column), all->text(row, column)) << "row " << row << ", column " << column;
  }
}

TEST(Growth, rows_do_not_depend_on_the_count) {
  for (const DesignKind kind : {DesignKind::uniform, DesignKind::sobol, DesignKind::halton}) {
    for (const std::uint64_t seed : {0, 5}) {
      for (const std::uint64_t count : {201, 256, 400, 100'000}) {
        expect_same_rows(box(kind, 200, seed), box(kind, count, seed));
        EXPECT_EQ(growth_problem(box(kind, 200, seed), box(kind, count, seed, {200})), std::nullopt);
      }
    }
  }
}

// Each of the `count` strata of each axis holds one of the first `count` rows.
void expect_latin(const SampleTable& table, std::uint64_t count, std::size_t column) {
  std::set<std::uint64_t> strata;
  for (std::uint64_t row = 0; row < count; ++row) {
    const double place = table.number(row, column);
    strata.insert(static_cast<std::uint64_t>(place * static_cast<double>(count)));
  }
  EXPECT_EQ(strata.size(), count);
}

TEST(Growth, a_latin_hypercube_is_one_again) {
  for (const std::uint64_t seed : {0, 1, 99}) {
    const SampleDesign at_first = box(DesignKind::latin_hypercube, 20, seed);
    const std::vector<std::vector<std::uint64_t>> histories = {
        {20, 40}, {20, 100}, {20, 60, 120}, {20, 40, 80, 400}};
    for (const auto& history : histories) {
      const SampleDesign grown =
          box(DesignKind::latin_hypercube, history.back(), seed, {history.begin(), history.end() - 1});
      expect_same_rows(at_first, grown);
      const auto table = open_samples(grown);
      for (const std::uint64_t count : history) expect_latin(*table, count, 0);
      EXPECT_EQ(growth_problem(at_first, grown), std::nullopt);
    }
  }
}

TEST(Growth, a_latin_hypercube_of_one_row_grows) {
  const SampleDesign grown = box(DesignKind::latin_hypercube, 7, 3, {1});
  expect_same_rows(box(DesignKind::latin_hypercube, 1, 3), grown);
  expect_latin(*open_samples(grown), 7, 0);
}

// The axes' orders are independent: a new row's strata on two axes are not correlated.
TEST(Growth, new_rows_of_a_latin_hypercube_are_not_correlated) {
  SampleDesign design = box(DesignKind::latin_hypercube, 2000, 4, {1000});
  design.columns = {{"a", 0, 1, false, false, {}}, {"b", 0, 1, false, false, {}}};
  const auto table = open_samples(design);
  double product = 0;
  for (std::uint64_t row = 1000; row < 2000; ++row)
    product += (table->number(row, 0) - 0.5) * (table->number(row, 1) - 0.5);
  EXPECT_LT(std::abs(product / 1000 * 12), 0.15);  // five standard deviations
}

TEST(Growth, a_latin_hypercube_of_another_count_is_another) {
  const auto problem =
      growth_problem(box(DesignKind::latin_hypercube, 20), box(DesignKind::latin_hypercube, 40));
  ASSERT_TRUE(problem);
  EXPECT_THAT(*problem, HasSubstr("sample 0 has a = "));
}

TEST(Growth, designs_follow_one_another) {
  SampleDesign parts;
  parts.kind = DesignKind::parts;
  parts.columns = box(DesignKind::sobol, 5).columns;
  parts.parts = {box(DesignKind::sobol, 5), box(DesignKind::uniform, 3, 9)};
  parts.count = 8;
  const SampleDesign read = design_from_json(to_json(parts));
  const auto table = open_samples(read);
  ASSERT_EQ(table->count(), 8U);
  EXPECT_EQ(table->text(4, 0), open_samples(parts.parts[0])->text(4, 0));
  EXPECT_EQ(table->text(5, 1), open_samples(parts.parts[1])->text(0, 1));
  EXPECT_EQ(table->number(7, 2), open_samples(parts.parts[1])->number(2, 2));
  EXPECT_THROW(table->text(8, 0), Error);
  EXPECT_THAT(block_starts(read), ElementsAre(5));
  EXPECT_EQ(growth_problem(parts.parts[0], parts), std::nullopt);
  // Only the last may grow.
  SampleDesign more = parts;
  more.parts[0].count = 6;
  more.count = 9;
  EXPECT_THAT(growth_problem(parts, more).value_or(""), HasSubstr("sample 5 has a = "));
  more = parts;
  more.parts[1].count = 30;
  more.count = 35;
  EXPECT_EQ(growth_problem(parts, more), std::nullopt);
}

TEST(Growth, what_does_not_go_on_is_said) {
  const SampleDesign old = box(DesignKind::sobol, 200);
  EXPECT_EQ(growth_problem(old, box(DesignKind::sobol, 100)).value_or(""),
            "there are 100 samples, the campaign has 200");
  SampleDesign other = box(DesignKind::sobol, 400);
  other.columns[1].name = "beta";
  EXPECT_EQ(growth_problem(old, other).value_or(""),
            "the samples have the columns a, beta, c, those of the campaign a, b, c");
  other = box(DesignKind::sobol, 400);
  other.columns[0].high = 0.5;
  EXPECT_THAT(growth_problem(old, other).value_or(""),
              HasSubstr("sample 0 has a = 0.25, in the campaign it has 0.5"));
  EXPECT_THAT(growth_problem(old, box(DesignKind::sobol, 400, 1)).value_or(""), HasSubstr("sample 0 has"));
}

TEST(Growth, files_append) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name, const char* text) {
    SampleDesign design;
    design.kind = DesignKind::file;
    design.file = folder.write(name, text);
    design.header = true;
    design.columns = {{"x", 0, 1, false, false, {}}, {"y", 0, 1, false, false, {}}};
    design.count = open_samples(design)->count();
    return design;
  };
  const SampleDesign old = file("a.csv", "x,y\n1,2\n3,4\n");
  EXPECT_EQ(growth_problem(old, file("b.csv", "x,y\n1,2\n3,4\n5,6\n")), std::nullopt);
  EXPECT_EQ(growth_problem(old, file("c.csv", "x,y\n1,2\n3,4.5\n5,6\n")).value_or(""),
            "sample 1 has y = 4.5, in the campaign it has 4");
  EXPECT_EQ(growth_problem(old, file("d.csv", "x,y\n1,2\n")).value_or(""),
            "there are 1 samples, the campaign has 2");
}

constexpr const char* kStudy = R"yaml(
description: {name: n}
samples: {design: sobol, count: 200, parameters: {a: [0, 1]}, level_max_dirs: 10}
study:
  - {name: simulate, run: {cmd: "sim $(a)"}}
  - {name: packs, run: {cmd: "sim $(WFLOW_SAMPLES_FILE)", bundle: 64}}
  - name: data
    convert: {from: simulate, file: u.h5, targets: [a], shard_samples: 64, split: {train: 160, validation: 20, test: 20}}
)yaml";

TEST(Growth, earlier_blocks_of_a_plan_stay) {
  StudyText text(kStudy);
  const Plan before = text.plan();
  std::string more(kStudy);
  more.replace(more.find("count: 200"), 10, "count: 300");
  StudyText grown(more);
  grown.options.grown = {200};
  const Plan plan = grown.plan();
  const PlannedStep& data = plan.steps()[planned(plan, "data")];
  EXPECT_EQ(before.steps()[planned(before, "data")].elements, 4U);
  EXPECT_EQ(data.elements, 6U);
  const Edge edge = plan.edges(data.first_array).front();
  EXPECT_EQ(edge.blocks().items(3, 300).end, 200U);
  EXPECT_EQ(edge.blocks().items(4, 300).first, 200U);
  const TaskTemplate task = plan.task_template(data.first_array);
  EXPECT_THAT(task.sample_starts, ElementsAre(200));
  const auto& config = std::get<converters::ConvertConfig>(task.settings);
  EXPECT_THAT(config.grown, ElementsAre(200));
  EXPECT_THAT(config.block_starts, ElementsAre(200));
}

TEST(Growth, a_study_may_list_designs) {
  StudyText text(R"yaml(
description: {name: n}
samples:
  - {design: sobol, count: 100, parameters: {a: [0, 1], b: [0, 1]}, level_max_dirs: 10}
  - {design: latin_hypercube, count: 50, parameters: {a: [0.2, 0.4], b: [0, 1]}}
study:
  - {name: simulate, run: {cmd: "sim $(a) $(b)"}}
  - {name: data, convert: {from: simulate, file: u.h5, targets: [a, b], shard_samples: 64}}
)yaml");
  const Plan plan = text.plan();
  EXPECT_EQ(plan.study().samples->design.count, 150U);
  EXPECT_EQ(plan.steps()[planned(plan, "data")].elements, 3U);
  const auto table = open_samples(plan.study().samples->design);
  for (std::uint64_t row = 100; row < 150; ++row) {
    EXPECT_GE(table->number(row, 0), 0.2);
    EXPECT_LE(table->number(row, 0), 0.4);
  }
}

TEST(Growth, errors_of_a_list_of_designs) {
  EXPECT_THAT(
      StudyText(R"yaml(
description: {name: n}
samples:
  - {design: sobol, count: 100, parameters: {a: [0, 1], b: [0, 1]}}
  - {design: sobol, count: 100, parameters: {b: [0, 1]}}
study:
  - {name: simulate, run: {cmd: "sim $(a) $(b)"}}
)yaml")
          .error(),
      HasSubstr(
          "study.yaml:5:5: error: the designs of samples: must have the same columns in the same order: "
          "this one has b, the first a, b"));
  EXPECT_THAT(
      StudyText("description: {name: n}\nsamples: []\nstudy:\n  - {name: s, run: {cmd: x}}\n").error(),
      HasSubstr("samples: is an empty list"));
  EXPECT_THAT(
      StudyText("description: {name: n}\nsamples:\n  - {design: sobol, count: 1, parameters: {a: [0, 1]}}\n"
                "  - {file: x.csv, generate: {cmd: x}, column_labels: [a]}\n"
                "study:\n  - {name: s, run: {cmd: x}}\n")
          .error(),
      HasSubstr("'generate' is for a samples: block of one design"));
}

TEST(Growth, a_latin_hypercube_grows_by_whole_multiples) {
  StudyText text(R"yaml(
description: {name: n}
samples: {design: latin_hypercube, count: 300, parameters: {a: [0, 1]}}
study:
  - {name: simulate, run: {cmd: "sim $(a)"}}
)yaml");
  text.options.grown = {200};
  EXPECT_THAT(text.error(),
              HasSubstr("a Latin hypercube of 200 samples grows to a multiple of 200, such as 400, found "
                        "300: only then are old and new samples together a Latin hypercube"));
}

TEST(Growth, samples_beyond_the_first_count_have_directories_of_their_own) {
  EXPECT_EQ(sample_path(24, 25, 25), "24");
  EXPECT_EQ(sample_path(25, 25, 25), "25");
  EXPECT_EQ(sample_path(130, 25, 25), "130");
  EXPECT_EQ(sample_path(626, 600, 25), "25/01");
  EXPECT_EQ(sample_path(0, 1, 25), "");
  EXPECT_EQ(sample_path(1, 1, 25), "01");
  std::set<std::string> paths;
  for (std::uint64_t sample = 0; sample < 5000; ++sample) paths.insert(sample_path(sample, 60, 5));
  EXPECT_EQ(paths.size(), 5000U);
}

}  // namespace
}  // namespace wflow::specs
