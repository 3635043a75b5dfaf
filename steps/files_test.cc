// SPDX-License-Identifier: Apache-2.0
#include "steps/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

TEST(Files, SetupLeavesWhatIsRightAlone) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a/b/config.yaml";
  const ArraySetup setup{{directory.path() + "/a/b"}, {{path, "x: 1\n"}}};
  write_setup(setup);
  struct stat first {};
  ASSERT_EQ(::stat(path.c_str(), &first), 0);
  write_setup(setup);
  struct stat second {};
  ASSERT_EQ(::stat(path.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
  write_setup({{}, {{path, "x: 2\n"}}});
  EXPECT_EQ(read_file(path), "x: 2\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path() + "/a/b"), {}), 1);
}

TEST(Files, OfATaskAreWrittenIntoItsDirectory) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path() + "/00/07";
  task.files = {{task.directory + "/s.sh", "#!/bin/sh\n\ntrue\n"}};
  write_files(task);
  write_files(task);
  EXPECT_EQ(read_file(task.directory + "/s.sh"), "#!/bin/sh\n\ntrue\n");
  mark_finished(task.directory + "/MERLIN_FINISHED");
  EXPECT_TRUE(std::filesystem::exists(task.directory + "/MERLIN_FINISHED"));
  std::ofstream(directory.path() + "/file") << "";
  task.directory = directory.path() + "/file/below";
  EXPECT_THROW(write_files(task), Error);
}

// Two workers may share a task's script: a shell that reads it must not see it change.
TEST(Files, OfATaskAreNeverChangedInPlace) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path();
  const std::string script = directory.path() + "/s.sh";
  task.files = {{script, "echo one\n"}};
  write_files(task);
  std::ifstream reader(script);
  struct stat first {};
  ASSERT_EQ(::stat(script.c_str(), &first), 0);
  write_files(task);
  struct stat again {};
  ASSERT_EQ(::stat(script.c_str(), &again), 0);
  EXPECT_EQ(first.st_ino, again.st_ino);
  task.files[0].text = "echo another one\n";
  write_files(task);
  EXPECT_EQ(read_file(script), "echo another one\n");
  const std::string seen(std::istreambuf_iterator<char>(reader), {});
  EXPECT_EQ(seen, "echo one\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(Files, TailIsOfStderrElseOfStdoutAndOfThisAttempt) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path();
  task.out_file = "t.out";
  task.err_file = "t.err";
  std::ofstream(directory.path() + "/t.err") << "old error\n";
  std::ofstream(directory.path() + "/t.out") << "old output\n";
  const OutputSizes before = output_sizes(task);
  const auto tail = [&](std::size_t limit) {
    return output_tail(directory.path() + "/t.out", directory.path() + "/t.err", before, limit);
  };
  EXPECT_EQ(tail(100), "");
  std::ofstream(directory.path() + "/t.out", std::ios::app) << "new output\n";
  EXPECT_EQ(tail(100), "new output\n");
  std::ofstream(directory.path() + "/t.err", std::ios::app) << std::string(5000, 'x') << "\nthe end\n";
  EXPECT_EQ(tail(100), "the end\n");
  EXPECT_LE(tail(6).size(), 6U);
}

}  // namespace
}  // namespace wflow::steps
