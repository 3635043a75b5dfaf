// SPDX-License-Identifier: Apache-2.0
#include "cli/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace wflow::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

ImportedStudy study_of(const std::string& text, const std::string& name = "commands.txt") {
  return import_study({.name = name, .text = text, .folder = "$(SPECROOT)"});
}

std::string refusal_of(const std::string& text, const std::string& name = "commands.txt") {
  try {
    study_of(text, name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(CommandList, WordsThatDifferBecomeColumns) {
  const auto made = study_of(
      "# my runs\n"
      "./sim --seed 1 -x=0.10 in/a.dat > out_1.txt\r\n"
      "\n"
      "  ./sim --seed 2 -x=0.2 in/b.dat > out_2.txt\n");
  EXPECT_EQ(made.kind, "commands");
  EXPECT_EQ(made.table_name, "commands.csv");
  EXPECT_EQ(made.table, "seed,x,word5,word7\n1,0.10,in/a.dat,out_1.txt\n2,0.2,in/b.dat,out_2.txt\n");
  EXPECT_THAT(
      made.study,
      HasSubstr("        cd \"$(FOLDER)\"\n        ./sim --seed $(seed) -x=$(x) $(word5) > $(word7)\n"));
  EXPECT_THAT(made.study, HasSubstr("file: \"commands.csv\"    # a row for each of the 2 commands"));
  EXPECT_THAT(made.study, Not(HasSubstr("column_labels")));
}

TEST(CommandList, NamesAreUnique) {
  EXPECT_EQ(study_of("a -n 1 -n 2\na -n 3 -n 4\n").table, "n,word5\n1,2\n3,4\n");
  EXPECT_EQ(study_of("a --folder 1\na --folder 2\n").table, "word3\n1\n2\n");  // $(FOLDER) is the study's own
  EXPECT_EQ(study_of("a --max-steps 1 -2 7\na --max-steps 2 -2 8\n").table, "max_steps,word5\n1,7\n2,8\n");
}

TEST(CommandList, OtherLinesStayWhole) {
  for (const std::string lines : {"a 1\nb 2 3\n", "a 'x 1'\na 'x 2'\n", "a $(nproc) 1\na $(nproc) 2\n",
                                  "a 1,2\na 1,3\n", "a\na\n", "a x= 1\na x=3 1\n"}) {
    const auto made = study_of(lines);
    EXPECT_EQ(made.table_name, "commands.lines");
    EXPECT_EQ(made.table, lines);
    EXPECT_THAT(made.study, HasSubstr("column_labels: [command]"));
    EXPECT_THAT(made.study, HasSubstr("        eval $(quote:command)\n"));
  }
}

TEST(CommandList, WrongFiles) {
  EXPECT_THAT(refusal_of("# nothing\n\n"), HasSubstr("commands.txt has no command"));
  EXPECT_THAT(refusal_of("parameters: {}\nstudy:\n- name: b\n", "study.yaml"),
              HasSubstr("study.yaml has parameters: at top level and is in wflow's own format already"));
  EXPECT_THAT(refusal_of("#!/bin/bash\necho 1\n", "a.sh"),
              HasSubstr("a.sh is a script without #SBATCH lines"));
}

constexpr const char* kArray = R"(#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH -a 0-6:2,9%2       # four at once
#SBATCH -t 1-02:30
#SBATCH -c4 --mem-per-cpu 2G
#SBATCH -p short --account=astro
#SBATCH --output=out_%a.txt --exclusive
#SBATCH --mail-type=END

module load gcc
if [ $SLURM_ARRAY_TASK_ID -gt 3 ]; then
  ./sim --seed $SLURM_ARRAY_TASK_ID
fi
)";

TEST(SbatchArray, OptionsBecomeKeys) {
  const auto made = study_of(kArray, "job.sh");
  EXPECT_EQ(made.kind, "Slurm array");
  EXPECT_EQ(made.table_name, "sweep.lines");
  EXPECT_EQ(made.table, "0\n2\n4\n6\n9\n");
  EXPECT_THAT(made.study, HasSubstr("batch:\n"
                                    "  type: slurm\n"
                                    "  account: \"astro\"\n"
                                    "  partition: \"short\"\n"
                                    "  walltime: \"26:30:00\"\n"
                                    "  args: [\"--exclusive\", \"--mail-type=END\"]\n"));
  EXPECT_THAT(made.study,
              HasSubstr("    run:\n"
                        "      cores: 4\n"
                        "      memory: 8 GiB\n"
                        "      timeout: \"26:30:00\"\n"
                        "      cmd: |\n"
                        "        export SLURM_ARRAY_TASK_ID=$(array_task) SLURM_ARRAY_TASK_COUNT=5\n"
                        "        export SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=9\n"
                        "        cd \"$(FOLDER)\"\n"
                        "        module load gcc\n"
                        "        if [ $SLURM_ARRAY_TASK_ID -gt 3 ]; then\n"
                        "          ./sim --seed $SLURM_ARRAY_TASK_ID\n"));
  EXPECT_THAT(made.study, HasSubstr("limit of 2 tasks at once"));
}

TEST(SbatchArray, TimesAndMemory) {
  const auto with = [](const std::string& option) {
    return study_of("#!/bin/sh\n#SBATCH --array=1-2\n#SBATCH " + option + "\n./sim\n", "a.sh").study;
  };
  EXPECT_THAT(with("--time=90"), HasSubstr("walltime: \"01:30:00\""));
  EXPECT_THAT(with("--time=10:30"), HasSubstr("walltime: \"00:10:30\""));
  EXPECT_THAT(with("--time=2:00:00"), HasSubstr("walltime: \"02:00:00\""));
  EXPECT_THAT(with("--time=2-0"), HasSubstr("walltime: \"48:00:00\""));
  EXPECT_THAT(with("--mem=500"), HasSubstr("memory: 500 MiB"));
  EXPECT_THAT(with("-n 8 -N2 --gpus-per-task=1"), HasSubstr("nodes: 2\n      procs: 8\n      gpus: 1\n"));
  EXPECT_THAT(with("-x"), HasSubstr("args: [\"-x\"]"));
  EXPECT_THAT(with("-n 1"), HasSubstr("shell: \"/bin/sh\""));
}

TEST(SbatchArray, WrongScripts) {
  const auto refusal = [](const std::string& options) {
    return refusal_of("#SBATCH " + options + "\n./sim\n", "a.sh");
  };
  EXPECT_THAT(refusal("-t 10"), HasSubstr("a.sh has no #SBATCH --array"));
  for (const char* array : {"x", "5-1", "1-3:0", "1-", "", "0-99999999999"})
    EXPECT_THAT(refusal(std::string("--array=") + array), HasSubstr("expected numbers and ranges")) << array;
  EXPECT_THAT(refusal("--array=1-2 --time=1:2:3:4"), HasSubstr("--time=1:2:3:4: expected Slurm's minutes"));
  EXPECT_THAT(refusal("--array=1-2 --mem=lots"),
              HasSubstr("--mem=lots: expected a number with K, M, G or T"));
  EXPECT_THAT(refusal("--array=1-2 -c 0"), HasSubstr("--cpus-per-task=0: expected a whole number"));
  EXPECT_THAT(refusal_of("#!/usr/bin/env python3\n#SBATCH -a 1-2\nprint(1)\n", "a.py"),
              HasSubstr("no shell of POSIX"));
  EXPECT_THAT(refusal_of("#!/bin/bash\n#SBATCH -a 1-2\n\n", "a.sh"),
              HasSubstr("no command after its #SBATCH lines"));
}

// The new study without the comments at its beginning.
std::string study_from(const std::string& text, const std::string& folder = "$(SPECROOT)") {
  const std::string made = import_study({"a.yaml", text, folder}).study;
  return made.substr(made.find("\nstudy:") == std::string::npos ? 0 : made.find("\nstudy:") + 1);
}

TEST(TheirStudy, StepsGoOnAfterFailures) {
  EXPECT_EQ(study_from("merlin: {}\nstudy:\n- name: a\n  run:\n    cmd: |\n      depends: [no]\n"
                       "    depends:\n    - b\n- {name: b, run: {cmd: c, depends: [a]}}\n"),
            "study:\n- name: a\n  run:\n    cmd: |\n      depends: [no]\n    continue_on: soft_fail\n"
            "    depends:\n    - b\n- {name: b, run: {cmd: c, continue_on: soft_fail, depends: [a]}}\n");
  EXPECT_EQ(study_from("study:\n- {name: b, run: {cmd: c, depends: [a]}}\n"),
            "study:\n- {name: b, run: {cmd: c, depends: [a]}}\n")
      << "Maestro's do not";
}

TEST(TheirStudy, MaestrosPoolIsLeftOut) {
  const auto batch_of = [](const std::string& batch) {
    const std::string made = import_study({"a.yaml", batch + "study:\n- a\n", "$(SPECROOT)"}).study;
    const std::size_t begin = made.find("\nbatch:") + 1;
    return made.substr(begin, made.find("study:") - begin);
  };
  EXPECT_EQ(batch_of("batch: {type: local_pool, num_workers: 2}\n"), "batch: {type: local_pool}\n");
  EXPECT_EQ(batch_of("batch: {num_workers: 2, type: local_pool}\n"), "batch: {type: local_pool}\n");
  EXPECT_EQ(batch_of("batch: {num_workers: 2}\n"), "batch: {}\n");
  EXPECT_EQ(batch_of("batch:\n  num_workers: 2\n  type: local\n"),
            "batch:\n  # wflow run -j in place of num_workers: 2\n  type: local\n");
}

TEST(TheirStudy, SamplesMoveToTopLevel) {
  const std::string steps = "study:\n- {name: b, run: {cmd: $(SPECROOT)/c}}\n";
  const std::string below = study_from(
      steps +
      "merlin:\n  resources: {}\n  samples:\n    # each\n    file: a.csv\n    column_labels:\n    - X\n");
  EXPECT_EQ(below, steps + "samples:\n  # each\n  file: a.csv\n  column_labels:\n  - X\n");
  EXPECT_THAT(study_from(steps + "merlin: {samples: {file: a.csv, column_labels: [X]}}\n"),
              HasSubstr("\nsamples:\n  file: a.csv\n"));
  EXPECT_THAT(study_from(steps, "/there"), HasSubstr("cmd: /there/c"));
}

}  // namespace
}  // namespace wflow::cli
