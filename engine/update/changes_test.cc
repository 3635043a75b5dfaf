// SPDX-License-Identifier: Apache-2.0
#include "engine/update/changes.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "engine/update/aside.h"
#include "specs/study/reading.h"

namespace wflow::engine {
namespace {

specs::Plan plan_of(const std::string& steps, const std::string& samples = "count: 12") {
  const std::string text = "description: {name: c, description: d}\nsamples: {design: uniform, " + samples +
                           ", seed: 1, parameters: {x: [0, 1], y: [0, 1]}}\nstudy:\n" + steps;
  specs::ReadOptions options;
  options.layout_samples = 12;  // as of a campaign: directories stay where they are
  return {specs::read_study_text(text, "/study.yaml", "study.yaml", options).study, "/campaign"};
}

std::string step(const std::string& name, const std::string& cmd, const std::string& more = "") {
  return "  - {name: " + name + ", run: {cmd: '" + cmd + "'" + more + "}}\n";
}

const std::string kConvert =
    "  - {name: data, convert: {from: simulate, file: u.npy, targets: [x], shard_samples: 4}}\n";

std::string said(const Changes& changes, bool keep_old = false) {
  return text::join(lines_of(changes, keep_old), "\n");
}

std::vector<Range> open_of(const Changes& changes, ArrayId array) {
  std::vector<Range> parts;
  changes.arrays.at(array).open.for_each([&](Range range) { parts.push_back(range); });
  return parts;
}

TEST(Changes, NothingOfAnEqualStudy) {
  const specs::Plan plan = plan_of(step("simulate", "echo $(x)") + kConvert);
  const Changes changes = compare(plan, plan_of(step("simulate", "echo $(x)") + kConvert));
  EXPECT_TRUE(changes.same_tasks());
  EXPECT_EQ(said(changes), "");
}

TEST(Changes, ACommandAndAllThatReadsIt) {
  const Changes changes = compare(plan_of(step("simulate", "echo $(x)") + kConvert),
                                  plan_of(step("simulate", "print $(x)") + kConvert));
  EXPECT_EQ(said(changes), "simulate: cmd changed, 12 of 12 stale\ndata, data.manifest follow");
  EXPECT_EQ(open_of(changes, 1), (std::vector<Range>{{0, 2}}));
}

TEST(Changes, WhatDoesNotDecideOutputsApplies) {
  const Changes changes = compare(plan_of(step("simulate", "echo $(x)")),
                                  plan_of(step("simulate", "echo $(x)", ", max_retries: 7, timeout: 3h")));
  EXPECT_TRUE(changes.same_tasks());
}

TEST(Changes, AColumnThatNobodyUses) {
  const std::string only_x = step("simulate", "echo $(x)");
  const auto samples = [](const char* high) {
    return std::string("count: 12, parameters: {x: [0, 1], y: [0, ") + high + "]}";
  };
  const auto plan = [&](const char* high) {
    const std::string text = "description: {name: c, description: d}\nsamples: {design: uniform, " +
                             samples(high) + "}\nstudy:\n" + only_x;
    return specs::Plan(specs::read_study_text(text, "/study.yaml", "study.yaml", {}).study, "/campaign");
  };
  EXPECT_TRUE(compare(plan("1"), plan("2")).same_tasks());
}

TEST(Changes, MoreSamplesAreMoreToRunAndThePartialBlock) {
  const std::string steps = step("simulate", "echo $(x)") + kConvert;
  const Changes changes = compare(plan_of(steps, "count: 10"), plan_of(steps, "count: 14"));
  EXPECT_EQ(open_of(changes, 0), (std::vector<Range>{{10, 13}}));
  EXPECT_EQ(open_of(changes, 1), (std::vector<Range>{{2, 3}})) << "blocks of 4: the third was not full";
  EXPECT_EQ(changes.arrays[1].stale, 1U);
}

TEST(Changes, AStepInTheMiddleAndOneLess) {
  const std::string first = step("simulate", "echo $(x)");
  const std::string smooth = step("smooth", "cat $(simulate.workspace)/u; : $(x)", ", depends: [simulate]");
  const specs::Plan without = plan_of(first);
  const specs::Plan with = plan_of(first + smooth);
  EXPECT_EQ(said(compare(without, with)), "smooth: new, 12 to run");
  const Changes removed = compare(with, without);
  EXPECT_EQ(said(removed), "smooth: removed; its 12 outputs stay; delete them with: rm -r /campaign/smooth");
  EXPECT_EQ(said(removed, true), "smooth: removed; its 12 outputs are kept with the replaced ones");
  EXPECT_EQ(removed.removed, std::vector<ArrayId>{1});
  // These outputs are not in the way; they move aside with the rest if that is kept.
  EXPECT_TRUE(aside_parts(with, without, removed, false, {}).empty());
  const auto aside = aside_parts(with, without, removed, true, {});
  ASSERT_EQ(aside.size(), 1U);
  EXPECT_EQ(aside[0].path, "smooth");
}

TEST(Changes, SourcesOfSomeTasks) {
  const specs::Plan plan = plan_of(step("simulate", "echo $(x)") + kConvert);
  const Changes changes = compare(plan, plan, {{0, {5, 6}}});
  EXPECT_EQ(said(changes),
            "simulate: sources changed, 2 of 12 stale\ndata: 1 of 3 stale\ndata.manifest follows");
  EXPECT_EQ(open_of(changes, 1), (std::vector<Range>{{1, 1}}));
}

TEST(Changes, AgainIsThePartsAndWhatReadsThem) {
  const specs::Plan plan = plan_of(step("simulate", "echo $(x)") + kConvert);
  const Changes changes = again(plan, {{1, {2, 2}}});
  EXPECT_TRUE(open_of(changes, 0).empty());
  EXPECT_EQ(open_of(changes, 1), (std::vector<Range>{{2, 2}}));
  EXPECT_EQ(open_of(changes, 2), (std::vector<Range>{{0, 0}}));
}

// A data set of which one block changes stays whole beside its successor, a single task's output, too;
// samples' do not.
TEST(Changes, GoodVersionsWaitForTheirSuccessors) {
  const specs::Plan plan =
      plan_of(step("simulate", "echo $(x)") + kConvert + step("fit", "fit", ", depends: [data]"));
  const Changes changes = again(plan, {{0, {5, 5}}});
  const auto parts = aside_parts(plan, plan, changes, false, [](ArrayId) { return true; });
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].path, "simulate");
  EXPECT_FALSE(parts[0].waits());
  EXPECT_EQ(parts[1].path, "data");
  EXPECT_TRUE(parts[1].linked);
  EXPECT_EQ(parts[1].until_step, "data.manifest");
  EXPECT_EQ(parts[2].path, "data/manifest.json");
  EXPECT_EQ(parts[3].path, "fit");
  EXPECT_EQ(parts[3].until_array, "fit");
  EXPECT_FALSE(parts[3].linked);
  // Outputs of an array that was never done are no good version.
  for (const AsidePart& part : aside_parts(plan, plan, changes, false, [](ArrayId) { return false; }))
    EXPECT_FALSE(part.waits() || part.linked) << part.path;
}

TEST(Changes, ABundleIsWhole) {
  const std::string steps = step("simulate", "run $(WFLOW_SAMPLES_FILE)", ", bundle: 4");
  const specs::Plan plan = plan_of(steps);
  EXPECT_EQ(open_of(again(plan, {{0, {5, 5}}}), 0), (std::vector<Range>{{4, 7}}));
}

}  // namespace
}  // namespace wflow::engine
