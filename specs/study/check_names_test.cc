// SPDX-License-Identifier: Apache-2.0
// Warnings of check_shell_names.cc and check_columns.cc that need more than a file; the others are in
// testdata/errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "specs/study/study.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::HasSubstr;

std::string warnings(const StudyText& text) {
  std::string all;
  for (const yaml::Diagnostic& warning : text.read().warnings) all += warning.to_string() + "\n";
  return all;
}

std::string study(const std::string& head, const std::string& run) {
  return fmt::format("description: {{name: t}}\n{}study:\n  - name: a\n    run: {{cmd: {}}}\n", head, run);
}

TEST(ShellNames, AreFineInTheEnvironment) {
  const StudyText text(study("parameters: {WFLOW_TEST_P: {values: [1, 2]}}\n", "'echo ${WFLOW_TEST_P}'"));
  ::unsetenv("WFLOW_TEST_P");
  EXPECT_THAT(warnings(text), HasSubstr("study.yaml:5:22: warning: '${WFLOW_TEST_P}'"));
  ::setenv("WFLOW_TEST_P", "1", 1);
  EXPECT_EQ(warnings(text), "");
  ::unsetenv("WFLOW_TEST_P");
}

TEST(ShellNames, MayBeSetByASource) {
  const TemporaryFolder folder;
  const auto source = folder.write("setup.sh", "export gamma=5\n");
  const std::string head = fmt::format(
      "env: {{variables: {{gamma: 1, delta: 2}}, sources: ['{}', /nowhere.sh]}}\n", source.string());
  const std::string said = warnings(StudyText(study(head, "'echo ${gamma} ${delta}'")));
  EXPECT_THAT(said, HasSubstr("the variable is '$(delta)'"));
  EXPECT_THAT(said, testing::Not(HasSubstr("gamma")));
}

TEST(Scripts, BesideTheStudyAreNotInTheDirectoryOfATask) {
  const auto said = [](const std::string& command) {
    const StudyText text(study("", "\"" + command + "\""));
    text.folder().write("sim.py", "print(1)\n");
    return warnings(text);
  };
  const char* const kMessage =
      "'sim.py' is beside the study, and a task runs in a directory of its own; write $(SPECROOT)/sim.py";
  EXPECT_THAT(said("python3 sim.py"), HasSubstr(kMessage));
  EXPECT_THAT(said("time srun /usr/bin/python3.11 -u 'sim.py' 4"), HasSubstr(kMessage));
  EXPECT_THAT(said("./sim.py"), HasSubstr(kMessage));
  for (const char* command :
       {"python3 $(SPECROOT)/sim.py", "cp $(SPECROOT)/sim.py .; python3 sim.py", "cd $(SPECROOT); ./sim.py",
        "python3 other.py sim.py", "echo sim.py", "python3; sim.py", "python3 -c sim.py2"})
    EXPECT_EQ(said(command), "") << command;
}

TEST(Columns, AreUsedByScriptsThatReadTheTable) {
  const TemporaryFolder folder;
  const auto table = folder.write("points.csv", "1,2\n3,4\n");
  const std::string head = fmt::format("samples: {{file: '{}', column_labels: [A, B]}}\n", table.string());
  EXPECT_THAT(warnings(StudyText(study(head, "echo $(A)"))), HasSubstr("nothing uses the column 'B'"));
  EXPECT_EQ(warnings(StudyText(study(head, "awk NR==$(MERLIN_SAMPLE_ID) points.csv"))), "");
}

}  // namespace

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> named(const std::string& command, const std::string& restart = "") {
  Study study;
  study.file = "/data/s/study.yaml";
  Step step;
  step.command = command;
  step.restart = restart;
  return named_files(study, step);
}

TEST(NamedFiles, AreThoseBesideTheStudy) {
  EXPECT_THAT(named("python3 /data/s/sim.py '/data/s/in/mesh.h5' --table=/data/s/t.csv /other/x.py",
                    "/data/s/again.sh"),
              ElementsAre("sim.py", "in/mesh.h5", "t.csv", "again.sh"));
  EXPECT_THAT(named("cd /data/s/; /data/s/./sim.py; /data/s/sim.py"), ElementsAre("sim.py"));
  EXPECT_THAT(named("/scratch/data/s/sim.py /data/s2/sim.py /data/s/../x.py"), IsEmpty());
}

TEST(NamedFiles, LeaveOutWhatIsWrittenAndWhatVaries) {
  EXPECT_THAT(named("echo a > /data/s/log; echo b >>/data/s/log 2> \"/data/s/err\" &> /data/s/both"),
              IsEmpty());
  EXPECT_THAT(named("cat /data/s/a | tee -a /data/s/b\ntouch /data/s/c"), ElementsAre("a"));
  EXPECT_THAT(named("sim /data/s/cfg_$(A).yaml /data/s/$(A)/x /data/s/*.py"), IsEmpty());
}

TEST(NamedFiles, AreSwitchedOff) {
  Study study;
  study.file = "/data/s/study.yaml";
  Step step;
  step.command = "/data/s/sim.py";
  step.sources_off = true;
  EXPECT_THAT(named_files(study, step), IsEmpty());
}

}  // namespace

}  // namespace wflow::specs
