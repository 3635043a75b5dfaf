// SPDX-License-Identifier: Apache-2.0
// Warnings of check_shell_names.cc and check_columns.cc that need more than a file; the others are in
// testdata/errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

TEST(Columns, AreUsedByScriptsThatReadTheTable) {
  const TemporaryFolder folder;
  const auto table = folder.write("points.csv", "1,2\n3,4\n");
  const std::string head = fmt::format("samples: {{file: '{}', column_labels: [A, B]}}\n", table.string());
  EXPECT_THAT(warnings(StudyText(study(head, "echo $(A)"))), HasSubstr("nothing uses the column 'B'"));
  EXPECT_EQ(warnings(StudyText(study(head, "awk NR==$(MERLIN_SAMPLE_ID) points.csv"))), "");
}

}  // namespace
}  // namespace wflow::specs
