// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>

#include "base/error.h"
#include "base/yaml.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

std::string literal(const Pieces& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += piece.kind == Piece::Kind::literal  ? piece.text
            : piece.kind == Piece::Kind::column ? "<" + std::to_string(piece.column) + ">"
                                                : "<>";
  }
  return text;
}

// The edges of an array as "parent kind block".
std::vector<std::string> edges(const Plan& plan, ArrayId array) {
  std::vector<std::string> found;
  for (const Edge& edge : plan.edges(array)) {
    const char* kind = edge.kind == EdgeKind::element ? "element"
                       : edge.kind == EdgeKind::block ? "block"
                                                      : "all";
    found.push_back(plan.array_name(edge.parent) + " " + kind +
                    (edge.block > 0 ? " " + std::to_string(edge.block) : ""));
  }
  return found;
}

ArrayId array(const Plan& plan, const std::string& name) {
  for (ArrayId i = 0; i < plan.array_count(); ++i) {
    if (plan.array_name(i) == name) return i;
  }
  throw Error(ExitCode::internal, "no array " + name);
}

TEST(Plan, UsesParametersByPrefixInAdoptedWorkspaces) {
  StudyText text(R"yaml(
description: {name: n}
global.parameters:
  SIZE: {values: [1, 2], label: SIZE.%%}
  SIZE2: {values: [7, 7], label: SIZE2.%%}
study:
  - {name: value, run: {cmd: echo $(SIZE2)}}
  - {name: label, run: {cmd: echo $(SIZE2.label)}}
)yaml");
  EXPECT_EQ(text.plan().array_count(), 2U);
  text.options.uses_by_prefix = true;
  const Plan plan = text.plan();
  EXPECT_EQ(plan.steps()[planned(plan, "value")].arrays, 2U);
  EXPECT_EQ(plan.array_name(array(plan, "value/SIZE.2.SIZE2.7")), "value/SIZE.2.SIZE2.7");
  EXPECT_EQ(plan.steps()[planned(plan, "label")].arrays, 1U) << "Maestro allows no dot behind other letters";
}

TEST(Plan, RestrictsCombinationsToUsedParameters) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
global.parameters:
  A: {values: [1, 1, 2], label: A.%%}
  B: {values: [x, y, y], label: B.%%}
study:
  - {name: none, run: {cmd: echo}}
  - {name: a, run: {cmd: echo $(A)}}
  - {name: b, run: {cmd: echo $(B.label), depends: [a]}}
  - {name: c, run: {cmd: echo $(b.workspace), depends: [b]}}
  - {name: funnel, run: {cmd: "ls $(a.workspace)", depends: [a_*, none]}}
  - {name: star, run: {cmd: "ls $(B)", depends: ["a*"]}}
)yaml")
                        .plan();
  EXPECT_EQ(plan.array_name(array(plan, "none")), "none");
  EXPECT_EQ(plan.steps()[planned(plan, "a")].arrays, 2U);
  EXPECT_EQ(plan.steps()[planned(plan, "b")].arrays, 3U);
  EXPECT_EQ(plan.steps()[planned(plan, "c")].arrays, 3U);
  EXPECT_EQ(plan.steps()[planned(plan, "funnel")].arrays, 1U);
  EXPECT_EQ(plan.steps()[planned(plan, "star")].arrays, 2U);
  EXPECT_THAT(edges(plan, array(plan, "b/A.1.B.y")), ElementsAre("a/A.1 all"));
  EXPECT_THAT(edges(plan, array(plan, "c/A.2.B.y")), ElementsAre("b/A.2.B.y all"));
  EXPECT_THAT(edges(plan, array(plan, "funnel")), ElementsAre("a/A.1 all", "a/A.2 all", "none all"));
  EXPECT_EQ(literal(plan.task_template(array(plan, "c/A.2.B.y")).command), "echo /campaign/b/A.2.B.y");
  EXPECT_EQ(literal(plan.task_template(array(plan, "funnel")).command), "ls /campaign/a");
  EXPECT_EQ(plan.steps()[planned(plan, "none")].depth, 0);
  EXPECT_EQ(plan.steps()[planned(plan, "c")].depth, 2);
}

TEST(Plan, ATrainingThatFollowsIsAStepForEachStage) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
samples: {design: uniform, count: 100, parameters: {a: [0, 1]}}
study:
  - {name: sim, run: {cmd: "sim $(a)"}}
  - {name: data, convert: {from: sim, file: u.h5, shard_samples: 10}}
  - {name: fit, train: {data: data, output: net, follow: {stages: 3, epochs: 2}}}
  - {name: use, run: {cmd: "ls $(fit.workspace)", depends: [fit]}}
)yaml")
                        .plan();
  EXPECT_THAT(edges(plan, array(plan, "fit.follow_1")), ElementsAre("data block 3"));
  EXPECT_THAT(edges(plan, array(plan, "fit.follow_3")), ElementsAre("data block 8", "fit.follow_2 all"));
  EXPECT_THAT(edges(plan, array(plan, "fit")), ElementsAre("data.manifest all", "fit.follow_3 all"));
  EXPECT_THAT(edges(plan, array(plan, "use")), ElementsAre("fit all"));
  const auto settings = [&](const char* step) {
    return std::get<trainer::TrainConfig>(plan.task_template(array(plan, step)).settings);
  };
  EXPECT_EQ(settings("fit.follow_2").follow.blocks, 5);
  EXPECT_EQ(settings("fit.follow_2").follow.source, "/campaign/data");
  EXPECT_EQ(settings("fit.follow_2").data, "/campaign/fit.follow_2/shards");
  EXPECT_THAT(
      settings("fit").follow.folders,
      ElementsAre("/campaign/fit.follow_1/net", "/campaign/fit.follow_2/net", "/campaign/fit.follow_3/net"));
  EXPECT_EQ(settings("fit").data, "/campaign/data");
  EXPECT_FALSE(settings("fit").follow.is_stage());
}

TEST(Plan, ASearchIsAStepForEachRung) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
parameters: {LR: [1, 2, 3]}
samples: {design: uniform, count: 26, parameters: {a: [0, 1]}}
workers: {w: {steps: [fit]}, v: {steps: [sim, data, use]}}
study:
  - {name: sim, run: {cmd: "sim $(a)"}}
  - {name: data, convert: {from: sim, file: u.h5, shard_samples: 13}}
  - name: fit
    train: {data: data, output: net, optimizer: {learning_rate: $(LR)}, search: {rungs: [2, 6, 18]}, threads: $(LR)}
  - {name: use, run: {cmd: "ls $(fit.workspace)", depends: [fit_*]}}
)yaml")
                        .plan();
  EXPECT_THAT(edges(plan, array(plan, "fit.rung_1/LR.2")), ElementsAre("data.manifest all"));
  EXPECT_THAT(
      edges(plan, array(plan, "fit/LR.2")),
      ElementsAre("data.manifest all", "fit.rung_2/LR.1 all", "fit.rung_2/LR.2 all", "fit.rung_2/LR.3 all"));
  EXPECT_THAT(edges(plan, array(plan, "use")), ElementsAre("fit/LR.1 all", "fit/LR.2 all", "fit/LR.3 all"));
  const TaskTemplate first = plan.task_template(array(plan, "fit.rung_1/LR.2"));
  const auto& first_config = std::get<trainer::TrainConfig>(first.settings);
  EXPECT_EQ(first_config.output, "/campaign/fit.rung_1/LR.2/net");
  EXPECT_EQ(first_config.search.rung, 1);
  EXPECT_THAT(first_config.search.trainings, ElementsAre())
      << "the first rung has no ranking: another training changes nothing";
  const TaskTemplate last = plan.task_template(array(plan, "fit/LR.2"));
  const auto& last_config = std::get<trainer::TrainConfig>(last.settings);
  EXPECT_EQ(last_config.output, "/campaign/fit/LR.2/net");
  EXPECT_THAT(last_config.search.folders,
              ElementsAre("/campaign/fit.rung_1", "/campaign/fit.rung_2", "/campaign/fit"));
  EXPECT_THAT(last_config.search.trainings, ElementsAre("LR.1/net", "LR.2/net", "LR.3/net"));
  EXPECT_EQ(last_config.search.training, 1);
  EXPECT_EQ(last.resources.cores, 2) << "threads may be a parameter";
  EXPECT_EQ(plan.steps()[planned(plan, "fit.rung_2")].continue_on, ContinueOn::soft_fail);
  EXPECT_FALSE(plan.steps()[planned(plan, "fit.rung_1")].continue_on);
  for (const WorkerGroup& group : plan.study().workers) EXPECT_EQ(group.steps.size(), 3U) << group.name;
}

TEST(Plan, ATournamentInTasksIsAStepForEachPart) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
parameters: {LR: [1, 2]}
samples: {design: uniform, count: 26, parameters: {a: [0, 1]}}
workers: {w: {steps: [fit]}, v: {steps: [sim, data, use]}}
study:
  - {name: sim, run: {cmd: "sim $(a)"}}
  - {name: data, convert: {from: sim, file: u.h5, shard_samples: 13}}
  - name: fit
    train: {data: data, ranks: 6, epochs: 5, seed: 9, output: net, optimizer: {learning_rate: $(LR)},
            tournament: {trainers: 3, every: 2 epochs, as: tasks}}
  - {name: use, run: {cmd: "ls $(fit.workspace)", depends: [fit]}}
)yaml")
                        .plan();
  const auto config_of = [&](const std::string& name) {
    return std::get<trainer::TrainConfig>(plan.task_template(array(plan, name)).settings);
  };
  EXPECT_EQ(plan.steps().size(), 3U + 1 + 3 * 3 + 1 + 1);
  EXPECT_THAT(edges(plan, array(plan, "fit.trainer_3.part_1/LR.2")),
              ElementsAre("data.manifest all", "fit.begin/LR.2 all"));
  EXPECT_EQ(config_of("fit.begin/LR.1").tournament.part, 0);
  EXPECT_EQ(config_of("fit.begin/LR.1").ranks, 2);
  const auto partners = trainer::partners_in(9, 2, 3);
  for (int trainer = 1; trainer <= 3; ++trainer) {
    const auto part = fmt::format("fit.trainer_{}.part_3/LR.1", trainer);
    const auto own = fmt::format("fit.trainer_{}.part_2", trainer);
    std::vector<std::string> edges_of_part = {"data.manifest all", own + "/LR.1 all"};
    std::vector<std::string> before = {"/campaign/" + own + "/LR.1/net"};
    if (const auto partner = partners[static_cast<std::size_t>(trainer - 1)]) {
      const auto theirs = fmt::format("fit.trainer_{}.part_2", *partner + 1);
      edges_of_part.push_back(theirs + "/LR.1 all");
      before.push_back("/campaign/" + theirs + "/LR.1/net");
    }
    EXPECT_THAT(edges(plan, array(plan, part)), UnorderedElementsAreArray(edges_of_part));
    EXPECT_EQ(config_of(part).tournament.before, before);
    EXPECT_EQ(config_of(part).tournament.trainer, trainer);
    EXPECT_EQ(plan.task_template(array(plan, part)).resources.procs, 2);
    EXPECT_EQ(plan.steps()[planned(plan, fmt::format("fit.trainer_{}.part_3", trainer))].continue_on,
              ContinueOn::any);
  }
  EXPECT_THAT(edges(plan, array(plan, "fit/LR.1")),
              ElementsAre("data.manifest all", "fit.trainer_1.part_3/LR.1 all",
                          "fit.trainer_2.part_3/LR.1 all", "fit.trainer_3.part_3/LR.1 all"));
  EXPECT_EQ(config_of("fit/LR.1").ranks, 1);
  EXPECT_EQ(plan.task_template(array(plan, "fit/LR.1")).resources.procs, 1);
  EXPECT_THAT(config_of("fit/LR.2").tournament.before, SizeIs(3));
  EXPECT_THAT(edges(plan, array(plan, "use/LR.1")), ElementsAre("fit/LR.1 all"));
  EXPECT_EQ(plan.study().workers.front().steps.size(), 11U);
}

TEST(Plan, CleansLabelsInPathsOnly) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
global.parameters:
  Q: {values: [c/d, "e f"], label: Q.%%}
study:
  - {name: my step, run: {cmd: "echo $(Q) $(WORKSPACE)"}}
)yaml")
                        .plan();
  const TaskTemplate task = plan.task_template(0);
  EXPECT_EQ(plan.array_name(0), "my step/Q.c/d");
  EXPECT_EQ(task.workspace, "/campaign/my_step/Q.cd");
  EXPECT_EQ(task.script, "my_step_Q.cd");
  EXPECT_EQ(literal(task.command), "echo c/d /campaign/my_step/Q.cd");
  EXPECT_EQ(plan.task_template(1).workspace, "/campaign/my_step/Q.e_f");
}

constexpr std::string_view kSamples = R"yaml(
description: {name: n}
samples: {design: sobol, count: 100, parameters: {a: [0, 1], B: [0, 1]}}
study:
  - {name: sim, run: {cmd: "sim $(a) $(b) $(merlin_sample_id)", restart: "again $(MERLIN_SAMPLE_PATH)"}}
  - {name: next, run: {cmd: "use $(sim.workspace)/$(MERLIN_SAMPLE_PATH)", depends: [sim]}}
  - {name: glob, run: {cmd: "cat $(a) $(sim.workspace)/$(MERLIN_GLOB_PATH)/x", depends: [sim]}}
  - {name: collect, run: {cmd: "ls $(MERLIN_GLOB_PATH) $(MERLIN_SAMPLE_NAMES)", depends: [next]}}
  - {name: vector, run: {cmd: "echo $(MERLIN_SAMPLE_VECTOR)"}}
  - {name: funnel, run: {cmd: "echo $(a)", depends: [sim_*]}}
)yaml";

TEST(Plan, ChainsSamplesAndCollectsThem) {
  const Plan plan = StudyText(kSamples).plan();
  EXPECT_EQ(plan.steps()[planned(plan, "sim")].elements, 100U);
  EXPECT_EQ(plan.steps()[planned(plan, "collect")].elements, 1U);
  EXPECT_EQ(plan.steps()[planned(plan, "vector")].elements, 100U);
  EXPECT_THAT(edges(plan, array(plan, "next")), ElementsAre("sim element"));
  EXPECT_THAT(edges(plan, array(plan, "glob")), ElementsAre("sim all"));
  EXPECT_THAT(edges(plan, array(plan, "collect")), ElementsAre("next all"));
  EXPECT_THAT(edges(plan, array(plan, "funnel")), ElementsAre("sim element"));
  const TaskTemplate task = plan.task_template(array(plan, "sim"));
  EXPECT_EQ(literal(task.command), "sim <0> <1> <>");
  EXPECT_EQ(literal(task.restart), "again <>");
  EXPECT_EQ(literal(plan.task_template(array(plan, "collect")).command), "ls */*/ a B");
  EXPECT_EQ(plan.element_count(), 501U);
}

TEST(Plan, HasOneSampleWithoutALevel) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
samples: {design: list, columns: [a], values: [[5]]}
study:
  - {name: s, run: {cmd: "echo $(a) [$(MERLIN_GLOB_PATH)]"}}
)yaml")
                        .plan();
  EXPECT_EQ(literal(plan.task_template(0).command), "echo <0> []");
  EXPECT_EQ(plan.steps()[0].elements, 1U);
}

TEST(Plan, RunsSamplesForEachCombination) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
parameters: {P: [1, 2, 3]}
samples: {design: uniform, count: 26, parameters: {a: [0, 1]}}
study:
  - {name: s, run: {cmd: "echo $(a) $(P)", procs: $(P), "cores per task": $(P)}}
  - {name: t, run: {cmd: "echo $(a)", depends: [s_*]}}
)yaml")
                        .plan();
  EXPECT_EQ(plan.array_count(), 4U);
  EXPECT_EQ(plan.element_count(), 26U * 4);
  EXPECT_THAT(edges(plan, 3), ElementsAre("s/P.1 all", "s/P.2 all", "s/P.3 all"));
  EXPECT_EQ(plan.task_template(2).resources.procs, 3);
  EXPECT_EQ(plan.task_template(2).resources.cores, 3);
  EXPECT_EQ(plan.step_of(2), 0U);
  EXPECT_EQ(plan.step_of(3), 1U);
}

TEST(Plan, ConvertsInBlocksAndTrainsOnTheManifest) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
parameters: {P: [1, 2]}
samples: {design: sobol, count: 105, parameters: {a: [0, 1]}}
study:
  - {name: sim, run: {cmd: "sim $(a) $(P)"}}
  - {name: other, run: {cmd: "x"}}
  - {name: data, depends: [other], convert: {from: sim, file: u.h5, shard_samples: 10}}
  - {name: train, train: {data: data, ranks: 4, threads: 2}}
  - {name: report, run: {cmd: "cat $(data.workspace)/manifest.json", depends: [data_*]}}
)yaml")
                        .plan();
  EXPECT_EQ(plan.steps()[planned(plan, "data")].elements, 11U);
  EXPECT_EQ(plan.steps()[planned(plan, "data")].block_samples, 10U);
  EXPECT_EQ(plan.steps()[planned(plan, "data.manifest")].elements, 1U);
  EXPECT_THAT(edges(plan, array(plan, "data/P.2")), ElementsAre("sim/P.2 block 10", "other all"));
  EXPECT_THAT(edges(plan, array(plan, "data.manifest/P.2")), ElementsAre("data/P.2 all"));
  EXPECT_THAT(edges(plan, array(plan, "train/P.1")), ElementsAre("data.manifest/P.1 all"));
  EXPECT_THAT(edges(plan, array(plan, "report")),
              ElementsAre("data.manifest/P.1 all", "data.manifest/P.2 all"));
  const TaskTemplate data = plan.task_template(array(plan, "data/P.2"));
  EXPECT_EQ(data.source_workspace, "/campaign/sim/P.2");
  EXPECT_EQ(data.block_samples, 10U);
  const auto& settings = std::get<converters::ConvertConfig>(data.settings);
  EXPECT_EQ(settings.output, "/campaign/data/P.2");
  EXPECT_EQ(settings.count, 105U);
  EXPECT_EQ(settings.from, "sim") << "rows come a block at a time";
  EXPECT_EQ(plan.task_template(array(plan, "data.manifest/P.2")).block_samples, 0U);
  const TaskTemplate train = plan.task_template(array(plan, "train/P.1"));
  EXPECT_EQ(std::get<trainer::TrainConfig>(train.settings).data, "/campaign/data/P.1");
  EXPECT_EQ(train.resources.procs, 4);
  EXPECT_EQ(train.resources.cores, 2);
}

// The template of a task does not depend on the files that exist when it is made: two workers get the same
// one.
TEST(Plan, LooksForFilesOnceWhenItIsMade) {
  StudyText text(R"yaml(
description: {name: n}
parameters: {P: [a, b]}
study:
  - {name: train, train: {data: ./ds, init_from: "old-$(P)"}}
)yaml");
  const TemporaryFolder caller;
  std::filesystem::create_directory(text.folder().path() / "ds");
  text.folder().write("ds/manifest.json", "{}");
  text.options.directory = caller.path();
  std::filesystem::create_directory(caller.path() / "old-a");
  std::filesystem::create_directory(text.folder().path() / "old-b");
  const Plan plan = text.plan();
  const auto template_of = [](const Plan& one, const char* name) {
    return std::get<trainer::TrainConfig>(one.task_template(array(one, name)).settings).init_from;
  };
  const std::string a = template_of(plan, "train/P.a");
  EXPECT_EQ(a, (caller.path() / "old-a").string());
  EXPECT_EQ(template_of(plan, "train/P.b"), (text.folder().path() / "old-b").string());
  std::filesystem::create_directory(text.folder().path() / "old-a");
  EXPECT_EQ(template_of(plan, "train/P.a"), a);
  EXPECT_EQ(template_of(Plan(plan), "train/P.a"), a) << "nor when the coordinator copies the plan";
  EXPECT_NE(template_of(text.plan(), "train/P.a"), a) << "a new plan looks again";
}

TEST(Plan, PassesOnHowAStepsSamplesAreRun) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
batch: {type: flux}
parameters: {P: [1, 2]}
samples: {design: uniform, count: 10, parameters: {a: [0, 1]}}
study:
  - name: s
    priority: high
    run:
      cmd: sim $(WFLOW_SAMPLES_FILE) $(WFLOW_FIRST) $(wflow_count)
      bundle: 4
      output: packed
      continue_on: any
      shell: /bin/sh
      outputs: [x_$(WFLOW_FIRST).h5, {file: y_$(P).h5, dataset: d, shape: [3, 4], finite: true}]
  - {name: t, priority: -3, run: {cmd: use $(a), outputs: $(MERLIN_SAMPLE_ID).npy, depends: [s]}}
)yaml")
                        .plan();
  const PlannedStep& step = plan.steps()[0];
  EXPECT_EQ(step.arrays, 2U) << "outputs: uses P";
  EXPECT_EQ(step.elements, 10U);
  EXPECT_EQ(step.bundle, 4U);
  EXPECT_EQ(step.priority, 100);
  EXPECT_EQ(step.continue_on, ContinueOn::any);
  const TaskTemplate task = plan.task_template(1);
  ASSERT_EQ(task.command.size(), 6U);
  EXPECT_EQ(task.command[1].kind, Piece::Kind::samples_file);
  EXPECT_EQ(task.command[3].kind, Piece::Kind::first_sample);
  EXPECT_EQ(task.command[5].kind, Piece::Kind::sample_count);
  EXPECT_EQ(task.bundle, 4U);
  EXPECT_EQ(task.output, OutputMode::packed);
  EXPECT_TRUE(task.shell_given);
  EXPECT_EQ(task.suffix, ".slurm");
  ASSERT_EQ(task.outputs.size(), 2U);
  EXPECT_EQ(literal(task.outputs[0].file), "x_<>.h5");
  EXPECT_EQ(task.outputs[0].file[1].kind, Piece::Kind::first_sample);
  EXPECT_EQ(literal(task.outputs[1].file), "y_2.h5");
  EXPECT_EQ(task.outputs[1].dataset, "d");
  EXPECT_THAT(task.outputs[1].shape, ElementsAre(3, 4));
  EXPECT_TRUE(task.outputs[1].finite);
  EXPECT_EQ(plan.steps()[1].priority, -3);
  EXPECT_FALSE(plan.steps()[1].continue_on.has_value());
  EXPECT_FALSE(plan.task_template(2).shell_given);
  EXPECT_EQ(plan.task_template(2).outputs[0].file[0].kind, Piece::Kind::sample_id);
}

TEST(Plan, LeavesCombinationsOut) {
  const Plan plan = StudyText(R"yaml(
description: {name: n}
env: {variables: {MODE: not so fast, LEAST: 2}, labels: {BOTH: $(P)$(Q)}}
parameters: {P: [1, 2, 3, 4], Q: [a, a, b, b]}
samples: {design: uniform, count: 20, parameters: {x: [0, 1]}}
study:
  - {name: sim, run: {cmd: sim $(x), when: P >= $(LEAST) and MODE == "not so fast" and "$(BOTH)" != 4b}}
  - {name: next, run: {cmd: use $(x), depends: [sim]}}
  - {name: all, run: {cmd: "ls", depends: [sim_*]}}
  - {name: data, convert: {from: sim, file: u.h5, shard_samples: 10}}
  - {name: train, when: Q == b, train: {data: data}}
  - {name: report, run: {cmd: report, depends: [train]}}
)yaml")
                        .plan();
  EXPECT_EQ(plan.steps()[planned(plan, "sim")].arrays, 2U) << "2a and 3b";
  EXPECT_EQ(plan.array_name(0), "sim/P.2.Q.a");
  EXPECT_EQ(plan.array_name(1), "sim/P.3.Q.b");
  EXPECT_EQ(plan.steps()[planned(plan, "next")].arrays, 4U);
  EXPECT_THAT(edges(plan, array(plan, "next/P.1.Q.a")), ElementsAre());
  EXPECT_THAT(edges(plan, array(plan, "next/P.3.Q.b")), ElementsAre("sim/P.3.Q.b element"));
  EXPECT_THAT(edges(plan, array(plan, "all")), ElementsAre("sim/P.2.Q.a all", "sim/P.3.Q.b all"));
  EXPECT_EQ(plan.steps()[planned(plan, "data")].arrays, 2U) << "as its source";
  EXPECT_EQ(plan.steps()[planned(plan, "train")].arrays, 1U);
  EXPECT_THAT(edges(plan, array(plan, "train/P.3.Q.b")), ElementsAre("data.manifest/P.3.Q.b all"));
  EXPECT_EQ(plan.task_template(1).label, "P.3.Q.b");
  EXPECT_THAT(edges(plan, array(plan, "report/P.3.Q.b")), ElementsAre("train/P.3.Q.b all"));
  EXPECT_THAT(edges(plan, array(plan, "report/P.4.Q.b")), ElementsAre());
}

TEST(Plan, IsWithoutStepsThatAreLeftOut) {
  StudyText text(R"yaml(
description: {name: n}
env: {variables: {TRAIN: true}}
samples: {design: uniform, count: 20, parameters: {x: [0, 1]}}
study:
  - {name: sim, run: {cmd: sim $(x)}}
  - {name: data, when: TRAIN, convert: {from: sim, file: u.h5}}
  - {name: train, train: {data: data}}
  - {name: report, run: {cmd: report, depends: [train, sim]}}
)yaml");
  EXPECT_EQ(text.plan().steps().size(), 5U);
  text.options.variables = {"TRAIN=no"};
  const Plan plan = text.plan();
  ASSERT_EQ(plan.steps().size(), 2U);
  EXPECT_EQ(plan.array_count(), 2U);
  EXPECT_THAT(edges(plan, 1), ElementsAre("sim all"));
  const StudyAndWarnings read = text.read();
  ASSERT_EQ(read.warnings.size(), 2U);
  EXPECT_EQ(read.warnings[0].message, "the step 'data' is left out: its when: is true for no combination");
  EXPECT_EQ(read.warnings[1].message, "the step 'train' is left out, because the step it reads is");
}

std::string launched(const std::string& type, const std::string& more, const std::string& command) {
  const StudyText text("description: {name: n, description: d}\nmerlin:\nbatch: {type: " + type +
                       "}\nstudy:\n  - {name: a, description: d, run: {cmd: \"" + command +
                       "\", nodes: 2, procs: 8" + more + "}}\n");
  return literal(text.plan().task_template(0).command);
}

TEST(Launcher, IsTheBatchSystems) {
  EXPECT_EQ(launched("local", "", "$(LAUNCHER) x"), " x");
  EXPECT_EQ(launched("slurm", ", walltime: '01:00:00', slurm: --mpi=none", "$(LAUNCHER) x"),
            "srun -n 8 -N 2 -t 01:00:00 --mpi=none x");
  EXPECT_EQ(launched("flux", ", cores per task: 3", "$(LAUNCHER) x"), "flux run -n 8 -N 2 -c 3 x");
  EXPECT_EQ(launched("lsf", "", "$(LAUNCHER) x"), "jsrun --np 8 --nrs 2 -b rs -d plane:4 -X 1 x");
  EXPECT_EQ(launched("pbs", "", "$(LAUNCHER) x"), "mpiexec -n 8 x");
  EXPECT_EQ(launched("local", ", batch: {type: slurm}", "$(LAUNCHER) x"), "srun -n 8 -N 2 x");
  EXPECT_EQ(launched("slurm", "", "MERLIN_PROCS=3; $(VLAUNCHER) x"),
            "MERLIN_NODES=2\nMERLIN_CORES=1\nMERLIN_GPUS=0\nMERLIN_PROCS=3; srun -n ${MERLIN_PROCS} -N "
            "${MERLIN_NODES} -c ${MERLIN_CORES} x");
  EXPECT_EQ(
      launched("slurm", "", "$(LAUNCHER)[1n, 4p] x; $(LAUNCHER)[2p] y; $(LAUNCHER)[2, 3] z; $(LAUNCHER) w"),
      "srun -n 4 -N 1 x; srun -n 2 -N 2 y; srun -n 3 -N 2 z; srun -n 8 -N 2 w");
  EXPECT_EQ(launched("flux", "", "$(LAUNCHER)[1n] x"), "flux run -n 8 -N 1 x");
  EXPECT_EQ(launched("pbs", "", "$(LAUNCHER)[4p] x"), "mpiexec -n 4 x");
  EXPECT_EQ(launched("local", "", "$(LAUNCHER)[4p] x"), " x");
}

// The launchers of a step, one for each value of the parameter P.
std::vector<std::string> launched_each(const std::string& head, const std::string& keys) {
  const StudyText text("description: {name: n, description: d}\n" + head +
                       "\nglobal.parameters:\n  P: {values: [60, 7200], label: P.%%}\n"
                       "env: {variables: {N: 2}}\nstudy:\n"
                       "  - {name: a, description: d, run: {cmd: \"$(LAUNCHER) x\", " +
                       keys + "}}\n");
  const Plan plan = text.plan();
  std::vector<std::string> commands;
  for (ArrayId array = 0; array < plan.array_count(); ++array)
    commands.push_back(literal(plan.task_template(array).command));
  return commands;
}

TEST(Launcher, HasParametersInAllOfItsKeys) {
  const std::string merlin = "merlin:\nbatch: {type: ";
  EXPECT_THAT(
      launched_each(merlin + "slurm}", "slurm: --label=$(P.label)-$(N), reservation: r$(P), nodes: $(N)"),
      ElementsAre("srun -n 1 -N 2 --reservation=r60 --label=P.60-2 x",
                  "srun -n 1 -N 2 --reservation=r7200 --label=P.7200-2 x"));
  EXPECT_THAT(launched_each(merlin + "flux}", "flux: -o x=$(P)"),
              ElementsAre("flux run -n 1 -N 1 -o x=60 x", "flux run -n 1 -N 1 -o x=7200 x"));
  EXPECT_THAT(launched_each(merlin + "lsf}", "bind: 'packed:$(P)', num resource set: $(P), lsf: -E A=$(P)"),
              ElementsAre("jsrun --np 1 --nrs 60 -b packed:60 -d plane:1 -X 1 -E A=60 x",
                          "jsrun --np 1 --nrs 7200 -b packed:7200 -d plane:1 -X 1 -E A=7200 x"));
  const std::string maestro = "batch: {host: h, bank: b, queue: q, type: ";
  EXPECT_THAT(launched_each(maestro + "lsf}", "bind gpus: g$(P), tasks per rs: $(P), rs per node: $(P)"),
              ElementsAre("jsrun --nrs 1 -b rs -B g60 -a 60 -r 60 -c 1 x",
                          "jsrun --nrs 1 -b rs -B g7200 -a 7200 -r 7200 -c 1 x"));
  const StudyText own(
      "description: {name: n}\nparameters: {P: [1, 2]}\nstudy:\n"
      "  - {name: a, run: {cmd: $(LAUNCHER) x, procs: 2, slurm: --label=$(P)}}\n");
  EXPECT_EQ(literal(own.plan().task_template(1).command), "wflow launch --slurm=--label=2 x");
}

TEST(Launcher, HasItsTimeAsTheLauncherCountsIt) {
  const auto slurm = [](const std::string& walltime) {
    return launched("slurm", ", walltime: " + walltime, "$(LAUNCHER) x");
  };
  EXPECT_EQ(slurm("90"), "srun -n 8 -N 2 -t 00:01:30 x");  // seconds; srun -t 90 would be 90 minutes
  EXPECT_EQ(slurm("'30:00'"), "srun -n 8 -N 2 -t 00:30:00 x");
  EXPECT_EQ(slurm("00:30:00"), "srun -n 8 -N 2 -t 00:30:00 x");
  EXPECT_EQ(slurm("'1:02:30:00'"), "srun -n 8 -N 2 -t 1-02:30:00 x");
  EXPECT_EQ(slurm("1-02:30:00"), "srun -n 8 -N 2 -t 1-02:30:00 x");
  EXPECT_EQ(slurm("UNLIMITED"), "srun -n 8 -N 2 -t UNLIMITED x");
  EXPECT_EQ(launched("flux", ", walltime: '1:02:30:00'", "$(LAUNCHER) x"), "flux run -n 8 -N 2 -t 95400s x");
  EXPECT_EQ(launched("flux", ", walltime: 2h", "$(LAUNCHER) x"), "flux run -n 8 -N 2 -t 7200s x");
  EXPECT_THAT(launched_each("merlin:\nbatch: {type: slurm}", "walltime: $(P)"),
              ElementsAre("srun -n 1 -N 1 -t 00:01:00 x", "srun -n 1 -N 1 -t 02:00:00 x"));
}

TEST(Launcher, InALaunchersOwnKeyIsReported) {
  const StudyText text(
      "description: {name: n, description: d}\nmerlin:\nstudy:\n  - {name: a, description: d, "
      "run: {cmd: x, slurm: $(LAUNCHER) --x=$(nothing)}}\n");
  const StudyAndWarnings read = text.read();
  std::vector<std::string> messages;
  for (const yaml::Diagnostic& warning : read.warnings) messages.push_back(warning.message);
  EXPECT_THAT(messages, ::testing::IsSupersetOf({"'$(LAUNCHER)' can be used in cmd and restart only",
                                                 "undefined variable '$(nothing)'"}));
}

TEST(Launcher, OfOurOwnStudiesIsFoundWhereTheTaskRuns) {
  const auto own = [](const std::string& type, const std::string& more, const std::string& command) {
    const StudyText text("description: {name: n}\nbatch: {type: " + type +
                         "}\nstudy:\n  - {name: a, run: {cmd: \"" + command + "\"" + more + "}}\n");
    return literal(text.plan().task_template(0).command);
  };
  for (const char* type : {"local", "slurm", "flux"}) {
    EXPECT_EQ(own(type, ", nodes: 2, procs: 8", "$(LAUNCHER) x"), "wflow launch x");
    EXPECT_EQ(own(type, ", nodes: 2, procs: 8", "$(LAUNCHER)[1n, 4p] x"), "wflow launch -N 1 -n 4 x");
    EXPECT_EQ(own(type, "", "$(LAUNCHER) x"), " x");
  }
  EXPECT_EQ(own("slurm", ", procs: 2, slurm: --mpi=pmi2 --label", "$(LAUNCHER) x"),
            "wflow launch --slurm='--mpi=pmi2 --label' x");
}

TEST(Plan, OfALargeStudyIsQuickAndSmall) {
  std::string text =
      "description: {name: large}\nsamples: {design: sobol, count: 100000000, parameters: {a: [0, 1], b: [0, "
      "1]}}\nparameters:\n";
  for (const char* name : {"P", "Q"}) {
    text += std::string("  ") + name + ": [";
    for (int i = 0; i < 10000; ++i) text += std::to_string(name[0] == 'P' ? i : i / 100) + ", ";
    text += "]\n";
  }
  text += "study:\n";
  for (int i = 0; i < 500; ++i) {
    text += "  - name: step" + std::to_string(i) + "\n    run:\n      cmd: run $(a) $(b) $(" +
            (i % 3 == 0 ? "P" : "Q") + ")\n";
    if (i % 2 == 1) text += "      when: P != " + std::to_string(i) + " and (Q >= 0 or P in [1, 2, 3])\n";
    if (i > 0) text += "      depends: [step" + std::to_string(i - 1) + (i % 50 == 0 ? "_*" : "") + "]\n";
  }
  const StudyText file(text);
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = file.plan();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(plan.element_count(), 100'000'000ULL * 1'000'000);
  const TaskTemplate last = plan.task_template(plan.array_count() - 1);
  EXPECT_EQ(last.sample_count, 100'000'000U);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  RecordProperty("seconds", std::to_string(took.count()));
  RecordProperty("megabytes", std::to_string(usage.ru_maxrss / 1024));
#if defined(WFLOW_ADDRESS_SANITIZER) || defined(WFLOW_THREAD_SANITIZER)
  EXPECT_LT(took.count(), 60);
#else
  EXPECT_LT(took.count(), 10) << "2 s on an idle machine";
  EXPECT_LT(usage.ru_maxrss, 200 * 1024);
#endif
}

}  // namespace

namespace {

Plan three_steps() {
  return StudyText(R"yaml(
description: {name: n}
parameters: {A: [1, 2]}
samples: {design: sobol, count: 30, parameters: {x: [0, 1]}}
study:
  - {name: sim, run: {cmd: "echo $(x)"}}
  - {name: sweep, run: {cmd: "echo $(x) $(A)"}}
  - {name: train, run: {cmd: "true", depends: [sim_*]}}
)yaml")
      .plan();
}

std::string refusal(const Plan& plan, const std::string& name) {
  try {
    find_task(plan, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(TaskName, ReadsBackAsTheTask) {
  const Plan plan = three_steps();
  for (ArrayId array = 0; array < plan.array_count(); ++array) {
    const std::uint64_t elements = plan.steps()[plan.step_of(array)].elements;
    for (const Element element : {Element{0}, elements - 1}) {
      const TaskId id{array, element};
      EXPECT_EQ(find_task(plan, task_name(plan, array, element)), id);
    }
  }
  EXPECT_EQ(task_name(plan, 0, 12), "sim/12");
  EXPECT_EQ(task_name(plan, 1, 12), "sweep/" + plan.array_name(1).substr(6) + "/12");
  EXPECT_EQ(task_name("train", 1, 0), "train");
  EXPECT_EQ(numbered_task_name("train", 0), "train/0");
  EXPECT_EQ(find_task(plan, "train/0"), find_task(plan, "train"));
}

TEST(TaskName, RefusesWithWhatThereIs) {
  const Plan plan = three_steps();
  EXPECT_EQ(refusal(plan, "sim"), "sim has 30 tasks; name one, for example sim/0");
  EXPECT_EQ(refusal(plan, "sim/30"), "sim has tasks 0 to 29");
  EXPECT_EQ(refusal(plan, "sim/-1"), "sim has tasks 0 to 29");
  EXPECT_EQ(refusal(plan, "tain"), "no task 'tain' in this campaign; did you mean 'train'?");
}

}  // namespace

}  // namespace wflow::specs
