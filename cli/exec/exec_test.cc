// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "cli/exec/arguments.h"
#include "cli/exec/exec_study.h"
#include "cli/exec/placeholders.h"

namespace wflow::cli {
namespace {

engine::CampaignStatus status_of(std::uint64_t done, std::uint64_t failed, std::uint64_t all) {
  engine::StepStatus step;
  step.elements = all;
  step.counts[static_cast<std::size_t>(engine::ElementState::done)] = done;
  step.counts[static_cast<std::size_t>(engine::ElementState::failed)] = failed;
  step.counts[static_cast<std::size_t>(engine::ElementState::ready)] = all - done - failed;
  engine::CampaignStatus status;
  status.steps.push_back(step);
  return status;
}

TEST(Halt, RulesOfGnuParallel) {
  EXPECT_FALSE(is_met(read_halt("never"), status_of(0, 9, 9)));
  EXPECT_FALSE(is_met(read_halt("0"), status_of(0, 9, 9)));
  EXPECT_FALSE(is_met(read_halt("soon,fail=3"), status_of(5, 2, 9)));
  EXPECT_TRUE(is_met(read_halt("soon,fail=3"), status_of(5, 3, 9)));
  EXPECT_TRUE(is_met(read_halt("1"), status_of(0, 1, 9)));
  EXPECT_EQ(read_halt("2").when, HaltRule::When::now);
  EXPECT_FALSE(is_met(read_halt("now,success=2"), status_of(1, 5, 9)));
  EXPECT_TRUE(is_met(read_halt("now,success=2"), status_of(2, 0, 9)));
  EXPECT_TRUE(is_met(read_halt("soon,done=4"), status_of(2, 2, 9)));
  EXPECT_FALSE(is_met(read_halt("soon,fail=30%"), status_of(0, 2, 10)));
  EXPECT_TRUE(is_met(read_halt("soon,fail=30%"), status_of(0, 3, 10)));
  EXPECT_EQ(max_failures_of(read_halt("soon,fail=30%")), "30 %");
  EXPECT_EQ(max_failures_of(read_halt("now,fail=2")), "2");
  EXPECT_EQ(max_failures_of(read_halt("now,success=2")), "none");
  for (const char* wrong :
       {"", "soon", "soon,fail", "soon,fail=0", "soon,fail=x", "later,fail=1", "soon,fail=101%", "3"})
    EXPECT_THROW(read_halt(wrong), Error) << wrong;
}

TEST(Records, JobLogLine) {
  TaskRow row;
  row.element = 4;
  row.exit_code = 3;
  row.started_s = 1700000000.5;
  row.duration_s = 1.25;
  EXPECT_EQ(joblog_line(row, 7, "echo a\nb"), "5\t:\t1700000000.500\t     1.250\t0\t7\t3\t0\techo a b\n");
  row.exit_code.reset();
  row.signal = 9;
  EXPECT_EQ(joblog_line(row, 0, "x"), "5\t:\t1700000000.500\t     1.250\t0\t0\t0\t9\tx\n");
  row.signal.reset();
  row.reason = "timed_out";
  EXPECT_EQ(joblog_line(row, 0, "x"), "5\t:\t1700000000.500\t     1.250\t0\t0\t-1\t15\tx\n");
}

TEST(Records, NamesOfFolders) {
  EXPECT_EQ(folder_name("a b"), "a b");
  EXPECT_EQ(folder_name("dir/a\\b\tc"), "dir\\_a\\\\b\\tc");
  EXPECT_EQ(folder_name(".."), "\\..");
}

TEST(Placeholders, OfATextThatNoShellReads) {
  const ExecText text = exec_text("{#}: {2/} of {1}\x01", {"arg1", "arg2"}, true);
  std::string shown;
  for (const TextPiece& piece : text.pieces) shown += piece.is_column ? "<" + piece.text + ">" : piece.text;
  EXPECT_EQ(shown, "<#>: <arg2_name> of <arg1>");
  ASSERT_EQ(text.columns.size(), 2U);
  EXPECT_THROW(exec_text("{%}", {"arg1"}, true), Error);
  EXPECT_NE(exec_command({"echo", "{%}"}, {"arg1"}, true, "/").text.find("\"$WFLOW_SLOT\""),
            std::string::npos);
}

// The lines that are there become rows while the writer goes on.
TEST(LineStream, TakesWhatHasCome) {
  const StagingFolder folder(::testing::TempDir(), "exec");
  ArgumentTable table(folder.path(), {{0, ArgumentPart::whole, "arg1"}});
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor out(ends[0]);
  FileDescriptor in(ends[1]);
  LineStream lines(out.get(), "pipe");
  write_all(in.get(), "a\n\nb\nc", "pipe");
  lines.add_to(table, 0, {});
  EXPECT_EQ(table.rows(), 2U);
  EXPECT_FALSE(lines.ended());
  write_all(in.get(), "c\nlast", "pipe");
  lines.add_to(table, 0, {.time_s = 0});
  EXPECT_EQ(table.rows(), 2U) << "the wait is over before it begins";
  in = {};
  lines.add_to(table, 0, {});
  EXPECT_TRUE(lines.ended());
  table.flush();
  EXPECT_EQ(read_file(table.file()), "a\nb\ncc\nlast\n");
}

}  // namespace
}  // namespace wflow::cli
