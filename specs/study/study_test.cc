// SPDX-License-Identifier: Apache-2.0
#include "specs/study/study.h"
#include "specs/study/report_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "specs/study/test_study.h"
#include "specs/study/tokens.h"

namespace wflow::specs {
namespace {

using testing::HasSubstr;

std::string variable(const Study& study, const std::string& name) {
  for (const auto& [key, value] : study.variables) {
    if (key == name) return value;
  }
  return "?";
}

TEST(Tokens, AreFound) {
  EXPECT_FALSE(find_token("$( ls ) $() ${X} $(unfinished"));
  EXPECT_EQ(find_token("a $($(X))")->name, "X");
  EXPECT_EQ(find_token("a $(b c.workspace)")->name, "b c.workspace");
  EXPECT_TRUE(mentions("x $(A) y", "A"));
  EXPECT_FALSE(mentions("x $(AB) y", "A"));
}

TEST(Tokens, ExpandTheShellsVariables) {
  ::setenv("WFLOW_TEST_X", "value", 1);
  ::unsetenv("WFLOW_TEST_Y");
  EXPECT_EQ(expand_shell("a$WFLOW_TEST_X/${WFLOW_TEST_X}b"), "avalue/valueb");
  EXPECT_EQ(expand_shell("$WFLOW_TEST_Y ${WFLOW_TEST_Y} $ ${ $$ a$"),
            "$WFLOW_TEST_Y ${WFLOW_TEST_Y} $ ${ $$ a$");
  ::setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(expand_shell("~/x"), "/home/someone/x");
  EXPECT_EQ(expand_shell("x~"), "x~");
}

std::string printed(std::string_view value) {
  yaml::Diagnostics diagnostics("test");
  yaml::Node root = yaml::parse("env: {variables: {V: " + std::string(value) + "}}", diagnostics);
  print_values_as_python(root);
  return root.find("env")->find("variables")->find("V")->text;
}

TEST(Values, AreThoseOfYaml11) {
  const std::vector<std::pair<const char*, const char*>> expected = {{"010", "8"},
                                                                     {"-010", "-8"},
                                                                     {"09", "09"},
                                                                     {"0x1F", "31"},
                                                                     {"0b101", "5"},
                                                                     {"0o17", "0o17"},
                                                                     {"1_000", "1000"},
                                                                     {"1:30", "90"},
                                                                     {"1:30:00", "5400"},
                                                                     {"01:30", "01:30"},
                                                                     {"1:99", "1:99"},
                                                                     {"1:30.5", "90.5"},
                                                                     {"0", "0"},
                                                                     {"-0", "0"},
                                                                     {"+5", "5"},
                                                                     {"0.10", "0.1"},
                                                                     {"1.0e-5", "1e-05"},
                                                                     {"1e5", "1e5"},
                                                                     {"-.inf", "-inf"},
                                                                     {".nan", "nan"},
                                                                     {"yes", "True"},
                                                                     {"Off", "False"},
                                                                     {"'010'", "010"},
                                                                     {"0x", "0x"},
                                                                     {"2020-01-02", "2020-01-02"}};
  for (const auto& [value, python] : expected) EXPECT_EQ(printed(value), python) << value;
}

DialectChoice choice_of(const std::string& text, std::optional<Dialect> option = {},
                        std::optional<Dialect> command = {}) {
  yaml::Diagnostics diagnostics("test");
  return choose_dialect(yaml::parse(text, diagnostics), text, option, command);
}

TEST(Formats, AreChosenByWhatSaysSoFirst) {
  const std::string plain =
      "description: {name: a, description: b}\n"
      "study: [{name: s, description: d, run: {cmd: x}}]\n";
  const std::string retries =
      "description: {name: a, description: b}\n"
      "study: [{name: s, description: d, run: {cmd: x, max_retries: 2}}]\n";
  EXPECT_EQ(choice_of(plain).dialect, Dialect::ours) << "a description alone belongs to no program";
  EXPECT_FALSE(choice_of(plain).certain);
  EXPECT_EQ(choice_of(retries).dialect, Dialect::ours);
  EXPECT_FALSE(choice_of(retries).certain);
  EXPECT_EQ(choice_of(retries, {}, Dialect::merlin).dialect, Dialect::merlin);
  EXPECT_EQ(choice_of("# wflow: maestro\n" + retries, {}, Dialect::merlin).dialect, Dialect::maestro);
  EXPECT_EQ(choice_of("# wflow: maestro\n" + retries, Dialect::ours).dialect, Dialect::ours);
  EXPECT_EQ(choice_of(plain + "merlin: {}\n").dialect, Dialect::merlin);
  EXPECT_TRUE(choice_of(plain + "merlin: {}\n").certain);
  EXPECT_EQ(choice_of(plain + "samples: {design: sobol}\n", {}, Dialect::merlin).dialect, Dialect::ours);
  EXPECT_EQ(choice_of("# wflow: does this and that\n" + plain).unknown_comment, "");
  EXPECT_EQ(choice_of("# wflow: merln\n" + plain).unknown_comment, "merln");
  EXPECT_EQ(choice_of("  # wflow: merlin\n" + plain).dialect, Dialect::ours) << "not in the first column";
}

TEST(Formats, AreGuessedByWhatOnlyMerlinOrMaestroHas) {
  const auto with = [](const std::string& top, const std::string& run) {
    return choice_of("description: {name: a, description: b}\n" + top +
                     "study: [{name: s, description: d, run: {cmd: x" + run + "}}]\n");
  };
  EXPECT_EQ(with("", ", task_queue: q").dialect, Dialect::merlin);
  EXPECT_EQ(with("env: {variables: {A: $(MERLIN_INFO)}}\n", "").dialect, Dialect::merlin);
  for (const char* batch : {"host: h", "args: {mpi: s}", "num_workers: 3", "type: local_pool"})
    EXPECT_EQ(with(std::string("batch: {") + batch + "}\n", "").dialect, Dialect::maestro) << batch;
  EXPECT_EQ(with("", ", exclusive: true").dialect, Dialect::maestro);
  EXPECT_EQ(with("batch: {type: slurm}\n", ", shell: /bin/sh").dialect, Dialect::ours);
  EXPECT_EQ(with("global.parameters: {P: {values: [1]}}\n", "").dialect, Dialect::ours);
  EXPECT_EQ(
      choice_of("description: {name: a}\nbatch: {host: h}\nstudy: [{name: s, run: {cmd: x}}]\n").dialect,
      Dialect::ours)
      << "Maestro would not take it";
}

TEST(Formats, WarnOfValuesThatOnlyTheOthersPrintAsPython) {
  const std::string text =
      "description: {name: a, description: b}\n"
      "env: {variables: {A: 0.10, B: '0.10', C: 7}}\n"
      "study: [{name: s, description: d, run: {cmd: \"echo $(A) $(B) $(C)\"}}]\n";
  StudyText study(text);
  const StudyAndWarnings read = study.read();
  EXPECT_EQ(read.study.steps[0].command, "echo 0.10 0.10 7");
  ASSERT_EQ(read.warnings.size(), 1U);
  EXPECT_THAT(read.warnings[0].message, HasSubstr("print 0.10 as 0.1,"));
  EXPECT_TRUE(StudyText(text + "merlin: {}\n").read().warnings.empty());
}

constexpr std::string_view kPlain = R"yaml(
description: {name: my study}
env:
  variables: {A: 1, B: "$(A)2", DATA: $(SPECROOT)/data, mixed: 5, OUTPUT_PATH: out/$(A)}
study:
  - name: a
    run: {cmd: "echo $(B) $(MIXED) $(mixed) $(DATA) $HOME $(MERLIN_TIMESTAMP) $(MERLIN_SUCCESS)"}
)yaml";

TEST(Variables, AreReplaced) {
  const StudyText text(kPlain);
  const Study study = text.study();
  const std::string root = text.folder().path().string();
  EXPECT_EQ(variable(study, "B"), "12");
  EXPECT_EQ(variable(study, "DATA"), root + "/data");
  EXPECT_EQ(study.output_path, root + "/out/1");
  EXPECT_EQ(study.steps[0].command, "echo 12 5 5 " + root + "/data $HOME YYYYMMDD-HHMMSS $(MERLIN_SUCCESS)");
  EXPECT_EQ(text.plan().task_template(0).command[0].text,
            "echo 12 5 5 " + root + "/data $HOME YYYYMMDD-HHMMSS 0");
}

TEST(Variables, AreOverridden) {
  StudyText text(kPlain);
  text.options.variables = {"A=7", "mixed=x=y"};
  EXPECT_THAT(text.study().steps[0].command, HasSubstr("echo 72 x=y x=y"));
  text.options.variables = {"mixd=3", "none"};
  EXPECT_THAT(text.error(), HasSubstr("--vars sets 'mixd', which this study has not; did you mean 'mixed'?"));
  EXPECT_THAT(text.error(), HasSubstr("--vars takes NAME=value, found 'none'"));
}

TEST(Variables, OutputPathStaysRelativeInMerlinsFiles) {
  const StudyText text(R"yaml(
description: {name: n, description: d}
env: {variables: {OUTPUT_PATH: ./out}}
merlin:
study:
  - {name: a, description: d, run: {cmd: "echo $(OUTPUT_PATH) $(MERLIN_WORKSPACE)"}}
)yaml");
  const Study study = text.study();
  EXPECT_EQ(study.steps[0].command, "echo ./out " + text.folder().path().string() + "/out/n_YYYYMMDD-HHMMSS");
  EXPECT_EQ(study.output_path, text.folder().path() / "out");
}

TEST(Variables, OutputPathIsTheCampaignsDirectoryInOtherFiles) {
  const std::string text = R"yaml(
description: {name: n, description: d}
env: {variables: {OUTPUT_PATH: ./out}}
study:
  - {name: a, description: d, run: {cmd: "echo $(OUTPUT_PATH)"}}
)yaml";
  for (const char* whose : {"# wflow: maestro", "# wflow: wflow"}) {
    const StudyText study(whose + text);
    EXPECT_EQ(study.study().steps[0].command,
              "echo " + study.folder().path().string() + "/out/n_YYYYMMDD-HHMMSS");
  }
}

TEST(Merlin, UnknownKeysAreWarningsUnlessStrict) {
  StudyText text(R"yaml(
description: {name: n, description: d}
merlin: {resources: {workers: {w: {args: -l INFO --concurrency 6 -O fair, steps: [a]}}}}
study:
  - {name: a, description: d, run: {cmd: "echo $(NOTHING)", max_retrys: 3, nodes: 2}}
)yaml");
  const StudyAndWarnings read = text.read();
  ASSERT_EQ(read.warnings.size(), 2U);
  EXPECT_THAT(read.warnings[0].message + read.warnings[1].message, HasSubstr("did you mean 'max_retries'"));
  EXPECT_EQ(read.study.workers.at(0).slots, 6);
  EXPECT_EQ(read.study.steps[0].resources.nodes, 2);
  EXPECT_FALSE(read.study.steps[0].retry_failures);
  text.options.strict = true;
  EXPECT_THAT(text.error(), HasSubstr("unknown key 'max_retrys'"));
  EXPECT_THAT(text.error(), HasSubstr("undefined variable '$(NOTHING)'"));
}

TEST(Maestro, LabelsSourcesAndAnchorsWork) {
  const StudyText text(R"yaml(
description: {name: n, description: d}
user: {anchors: {run: &run {procs: 4, nodes: 2}}}
env:
  variables: {ROOT: /r}
  labels: {OUT: $(ROOT)/$(P.label)/x}
  sources: [source /etc/profile]
global.parameters:
  P: {values: [1, 2], label: P.%%}
study:
  - name: a
    run: {<<: *run, cmd: "echo $(OUT)"}
)yaml");
  const Plan plan = text.plan();
  EXPECT_EQ(plan.steps()[0].arrays, 2U);
  EXPECT_EQ(plan.task_template(1).command[0].text, "source /etc/profile\necho /r/P.2/x");
  EXPECT_EQ(plan.task_template(1).resources.procs, 4);
}

TEST(Samples, MayDifferByTheirNumberAlone) {
  const StudyText text(R"yaml(
description: {name: n}
samples: {count: 5}
study:
  - {name: s, run: {cmd: "echo $(MERLIN_SAMPLE_ID)"}}
  - {name: t, run: {cmd: "echo once"}}
)yaml");
  const Study study = text.study();
  EXPECT_EQ(study.samples->design.count, 5U);
  EXPECT_TRUE(study.samples->design.columns.empty());
  const Plan plan(study, "/c");
  EXPECT_TRUE(plan.steps()[0].sample_dependent);
  EXPECT_FALSE(plan.steps()[1].sample_dependent);
}

TEST(Samples, AreOverriddenByAFile) {
  StudyText text(R"yaml(
description: {name: n}
samples: {design: sobol, count: 10, seed: 3, parameters: {a: [0, 1], b: [0, 1]}}
study:
  - {name: s, run: {cmd: "echo $(a) $(B)"}}
)yaml");
  text.options.samples_file = "mine.csv";
  EXPECT_THAT(text.error(), HasSubstr("no such file"));
  text.folder().write("mine.csv", "1,2\n3,4\n5,6\n");
  const Study study = text.study();
  EXPECT_EQ(study.samples->design.count, 3U);
  EXPECT_EQ(study.samples->design.columns[1].name, "b");
  EXPECT_TRUE(Plan(study, "/c").steps()[0].sample_dependent);
}

TEST(Samples, OfMerlinMayHaveOtherColumns) {
  const StudyText text(R"yaml(
description: {name: n, description: d}
merlin: {samples: {file: s.csv, column_labels: [a, b, c]}}
study:
  - {name: s, description: d, run: {cmd: "echo $(a) $(b)"}}
)yaml");
  text.folder().write("s.csv", "1,2\n3,4\n");
  const StudyAndWarnings read = text.read();
  ASSERT_EQ(read.warnings.size(), 1U);
  EXPECT_THAT(read.warnings[0].message, HasSubstr("has 2 columns, column_labels has 3"));
  EXPECT_EQ(read.study.samples->design.columns.size(), 2U);
}

TEST(Samples, MayBeUnknownUntilGenerated) {
  const StudyText text(R"yaml(
description: {name: n}
samples: {file: $(MERLIN_INFO)/s.csv, column_labels: [a], generate: {cmd: make it}}
study:
  - {name: s, run: {cmd: "echo $(a)"}}
)yaml");
  const Plan plan = text.plan();
  EXPECT_EQ(plan.study().samples->design.count, 0U);
  EXPECT_EQ(plan.element_count(), 0U);
}

TEST(ReportFiles, AreThoseOfTheStep) {
  const Study study = StudyText(R"(
description: {name: n}
env: {variables: {WHERE: plots}}
study:
  - {name: a, run: {cmd: sim, report: {figures: [$(WHERE)/*.png, all.SVG], tables: sums.csv}}}
  - {name: b, report: {figures: one.jpeg}, run: {cmd: sim}}
  - {name: c, run: {cmd: sim}}
)")
                          .study();
  EXPECT_EQ(report_files(study, "a").figures, (std::vector<std::string>{"plots/*.png", "all.SVG"}));
  EXPECT_EQ(report_files(study, "a").tables, (std::vector<std::string>{"sums.csv"}));
  EXPECT_EQ(report_files(study, "b").figures, (std::vector<std::string>{"one.jpeg"}));
  EXPECT_TRUE(report_files(study, "c").figures.empty());
  EXPECT_EQ(study.format.dialect, Dialect::ours);
  EXPECT_EQ(figure_type("x/all.SVG"), "image/svg+xml");
  EXPECT_EQ(figure_type("all.pdf"), "");
}

TEST(Parameters, MakeProducts) {
  const StudyText text(R"yaml(
description: {name: n}
parameters:
  A: [1, 2]
  B: {values: [x, y], label: "%%%%"}
  product: {C: [7, 8, 9]}
study:
  - {name: a, run: {cmd: "echo $(A) $(B) $(C) $(C.label) $(C.name)"}}
)yaml");
  const Plan plan = text.plan();
  ASSERT_EQ(plan.array_count(), 6U);
  EXPECT_EQ(plan.task_template(1).command[0].text, "echo 1 x 8 C.8 C");
  EXPECT_EQ(plan.array_name(1), "a/A.1.xx.C.8");
  EXPECT_EQ(plan.task_template(5).command[0].text, "echo 2 y 9 C.9 C");
}

TEST(Commands, MayHoldTheShellsOwnSubstitutions) {
  const StudyText text(R"yaml(
description: {name: n}
study:
  - name: a
    run:
      cmd: |
        f() { echo hi; }
        x=$(f) y=$(ls) z=$(pwd) w=$(cat file | wc -l) v=$((1 + 2)) u=${x}
)yaml");
  EXPECT_EQ(text.error(), "");
}

TEST(Files, ThatAreNoStudyAreSaidToBe) {
  EXPECT_THROW(read_study("/no/such/file.yaml", {}), Error);
  EXPECT_THAT(StudyText("").error(), HasSubstr("this file is empty"));
  EXPECT_THAT(StudyText("{").error(), HasSubstr("the mapping that begins in line 1 with { is not closed"));
}

TEST(Batch, GivesPoolsWhatTheySayNothingAbout) {
  const Study study = StudyText(R"yaml(
description: {name: t}
batch: {type: slurm, bank: astro, queue: compute, nodes: 4, walltime: "4:00:00", args: [--mail-type=NONE, -x n1],
        setup: [module load openmpi, "export X=$HOME"], linger: 5 min, exclusive: true}
workers:
  sim: {steps: [a], max: 3, idle_timeout: 2 min}
  big: {nodes: all, slots: 8, min: 2, walltime: 90, batch: {type: flux, partition: gpu, gpus: 4, args: -a -b, exclusive: false}}
study:
  - {name: a, run: {cmd: echo}}
)yaml")
                          .study();
  EXPECT_EQ(study.batch.linger_s, 300);
  const WorkerGroup& sim = study.workers.at(0);
  EXPECT_EQ(sim.allocation.type, "slurm");
  EXPECT_EQ(sim.allocation.account, "astro");
  EXPECT_EQ(sim.allocation.partition, "compute");
  EXPECT_EQ(sim.allocation.nodes, 4);
  EXPECT_EQ(sim.allocation.walltime_s, 4 * 3600);
  EXPECT_EQ(sim.allocation.args, (std::vector<std::string>{"--mail-type=NONE", "-x n1"}));
  EXPECT_EQ(sim.allocation.setup, (std::vector<std::string>{"module load openmpi", "export X=$HOME"}))
      << "the node's shell expands it";
  EXPECT_TRUE(sim.allocation.exclusive);
  EXPECT_EQ(sim.min, 0);
  EXPECT_EQ(sim.max, 3);
  EXPECT_EQ(sim.idle_timeout_s, 120);
  const WorkerGroup& big = study.workers.at(1);
  EXPECT_EQ(big.allocation.type, "flux");
  EXPECT_EQ(big.allocation.account, "astro");
  EXPECT_EQ(big.allocation.partition, "gpu");
  EXPECT_EQ(big.allocation.nodes, 4);
  EXPECT_EQ(big.allocation.gpus, 4);
  EXPECT_EQ(big.allocation.walltime_s, 90);
  EXPECT_EQ(big.allocation.args, (std::vector<std::string>{"-a", "-b"}));
  EXPECT_FALSE(big.allocation.exclusive);
  EXPECT_EQ(big.min, 2);
  EXPECT_EQ(big.max, 2);
  EXPECT_EQ(study.batch.allocation.partition, "compute");
}

TEST(Batch, TakesMerlinsAndMaestrosKeys) {
  const Study study = StudyText(R"yaml(
description: {name: t, description: of Merlin}
batch: {type: lsf, bank: b, queue: q, nodes: all, walltime: "00:01:00", launch_pre: env A=1, launch_args: --x, worker_launch: w,
        flux_path: /f, args: {flux: {o: 1}}, shell: /bin/sh}
study:
  - {name: a, description: x, run: {cmd: echo}}
merlin:
  resources: {workers: {w: {args: -c 3, nodes: 2, batch: {type: local, shell: /bin/zsh}}}}
)yaml")
                          .study();
  const AllocationSpec& spec = study.batch.allocation;
  EXPECT_EQ(spec.type, "lsf");
  EXPECT_EQ(spec.nodes, 1);
  EXPECT_EQ(spec.launch_pre, "env A=1");
  EXPECT_EQ(spec.launch_args, "--x");
  EXPECT_EQ(spec.worker_launch, "w");
  EXPECT_THAT(spec.args, testing::IsEmpty());
  EXPECT_EQ(study.batch.shell, "/bin/sh");
  EXPECT_TRUE(study.workers.at(0).allocation.is_local());
  EXPECT_EQ(study.workers.at(0).allocation.nodes, 2);
  EXPECT_EQ(study.workers.at(0).slots, 3);
}

const WorkerGroup* group_of(const Study& study, const std::string& name) {
  const auto at = std::find_if(study.workers.begin(), study.workers.end(),
                               [&](const WorkerGroup& group) { return group.name == name; });
  return at == study.workers.end() ? nullptr : &*at;
}

TEST(Allocations, HaveAsManyNodesAsTheirWidestStep) {
  const StudyText text(R"(
description: {name: n}
batch: {type: slurm}
workers: {wide: {steps: [b]}, narrow: {steps: [c], nodes: 2}}
study:
  - {name: a, run: {cmd: x, nodes: 3}}
  - {name: b, run: {cmd: x, nodes: 4, min_nodes: 2}}
  - {name: c, run: {cmd: x}}
)");
  const Study study = text.read().study;
  EXPECT_EQ(study.batch.allocation.nodes, 3) << "of the step that no group serves";
  EXPECT_EQ(group_of(study, "wide")->allocation.nodes, 4);
  EXPECT_EQ(group_of(study, "narrow")->allocation.nodes, 2);
  EXPECT_EQ(study.steps[0].resources.procs, 3) << "one a node";
  EXPECT_EQ(study.steps[1].resources.min_nodes, 2);
}

TEST(Allocations, OfAStepsOwn) {
  const std::string steps = R"(
study:
  - {name: a, run: {cmd: x}}
  - {name: b, batch: own, nodes: 4, walltime: 2 h, run: {cmd: x}}
)";
  const Study study =
      StudyText("description: {name: n}\nbatch: {type: slurm}\nworkers: {all: {slots: 2}}" + steps)
          .read()
          .study;
  ASSERT_EQ(study.workers.size(), 2U);
  EXPECT_EQ(group_of(study, "all")->steps, std::vector<std::string>{"a"});
  EXPECT_EQ(group_of(study, "b")->allocation.nodes, 4);
  EXPECT_EQ(group_of(study, "b")->allocation.walltime_s, 7200);
  const Study local = StudyText("description: {name: n}" + steps).read().study;
  EXPECT_TRUE(local.workers.empty()) << "this machine is all there is";
}

TEST(Study, OfMaestroAllocatesTheNodesOfItsWidestStep) {
  const StudyText text(R"yaml(
description: {name: n, description: d}
batch: {type: slurm, host: h, bank: b, queue: q, nodes: 1}
study:
  - {name: a, description: d, run: {cmd: x, nodes: 4}}
  - {name: b, description: d, run: {cmd: x}}
)yaml");
  const Study study = text.read().study;
  ASSERT_EQ(study.format.dialect, Dialect::maestro);
  EXPECT_EQ(study.workers.empty() ? study.batch.allocation.nodes : study.workers.front().allocation.nodes, 4);
}

TEST(Study, SaysThatMerlinIgnoresSources) {
  const StudyText text(
      "description: {name: n, description: d}\nmerlin:\nenv: {sources: [module load gcc]}\n"
      "study:\n  - {name: a, description: d, run: {cmd: x}}\n");
  std::vector<std::string> messages;
  for (const yaml::Diagnostic& warning : text.read().warnings) messages.push_back(warning.message);
  EXPECT_THAT(messages,
              ::testing::Contains(::testing::StartsWith("Merlin and Maestro do not run these lines")));
}

TEST(Study, AnswersTheWordsOfOtherPrograms) {
  const auto error = [](const std::string& samples, const std::string& step) {
    return StudyText("description: {name: n}\nsamples: {" + samples +
                     "parameters: {x: [0, 1]}}\nstudy:\n  - {name: a, run: {cmd: x, " + step + "}}\n")
        .error();
  };
  const std::string design = "design: sobol, count: 2, ";
  EXPECT_THAT(error(design, "mem: 1 GB"), HasSubstr("did you mean 'memory'?"));
  EXPECT_THAT(error(design, "needs: b"), HasSubstr("did you mean 'depends'?"));
  EXPECT_THAT(error(design, "retries: 2"), HasSubstr("did you mean 'max_retries'?"));
  EXPECT_THAT(error(design, "time: 2"), HasSubstr("did you mean 'timeout'?"));
  EXPECT_THAT(error(design, "command: y"), HasSubstr("did you mean 'cmd'?"));
  EXPECT_THAT(error("design: lhs, count: 2, ", "cores: 1"), HasSubstr("did you mean 'latin_hypercube'?"));
  const StudyText braces(
      "description: {name: n}\nsamples: {design: sobol, count: 2, parameters: {alpha: [0, 1]}}\n"
      "study:\n  - {name: a, run: {cmd: 'sim {alpha} {{ alpha }} {beta} $(alpha)'}}\n");
  std::vector<std::string> messages;
  for (const yaml::Diagnostic& warning : braces.read().warnings) messages.push_back(warning.message);
  EXPECT_EQ(messages, std::vector<std::string>(2, "'{alpha}' stays as it is; its value is $(alpha)"));
}

}  // namespace
}  // namespace wflow::specs
