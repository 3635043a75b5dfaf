// SPDX-License-Identifier: Apache-2.0
#include "steps/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "steps/test_samples.h"

namespace wflow::steps {
namespace {

TEST(Files, SetupLeavesWhatIsRightAlone) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/a/b/config.yaml";
  const ArraySetup setup{{directory.path() + "/a/b"}, {{path, "x: 1\n"}}};
  write_setup(setup, "/");
  struct stat first {};
  ASSERT_EQ(::stat(path.c_str(), &first), 0);
  write_setup(setup, "/");
  struct stat second {};
  ASSERT_EQ(::stat(path.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
  write_setup({{}, {{path, "x: 2\n"}}}, "/");
  EXPECT_EQ(read_file(path), "x: 2\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path() + "/a/b"), {}), 1);
}

TEST(Files, OfATaskAreWrittenIntoItsDirectory) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path() + "/00/07";
  task.files = {{task.directory + "/s.sh", "#!/bin/sh\n\ntrue\n"}};
  write_files(task, "/");
  write_files(task, "/");
  EXPECT_EQ(read_file(task.directory + "/s.sh"), "#!/bin/sh\n\ntrue\n");
  mark_finished(task.directory + "/MERLIN_FINISHED");
  EXPECT_TRUE(std::filesystem::exists(task.directory + "/MERLIN_FINISHED"));
  std::ofstream(directory.path() + "/file") << "";
  task.directory = directory.path() + "/file/below";
  EXPECT_THROW(write_files(task, "/"), Error);
}

TEST(Files, OfACampaignThatWasMovedAreNotMadeInItsOldPlace) {
  const TemporaryDirectory directory;
  const std::string campaign = directory.path() + "/campaign";
  PreparedTask task;
  task.directory = campaign + "/step/7";
  EXPECT_THROW(write_files(task, campaign), Error);
  EXPECT_THROW(write_setup({{campaign + "/step"}, {}}, campaign), Error);
  EXPECT_FALSE(std::filesystem::exists(campaign));
}

std::size_t entries(const std::string& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

TEST(Files, AReaderOfTheOldScriptReadsAllOfIt) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path();
  const std::string path = directory.path() + "/s.sh";
  task.files = {{path, "#!/bin/sh\n\necho one\n"}};
  write_files(task, "/");
  std::ifstream reader(path);
  std::string line;
  ASSERT_TRUE(std::getline(reader, line));
  struct stat before {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  write_files(task, "/");
  struct stat after {};
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);  // an equal file stays
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);

  task.files[0].text = "#!/bin/sh\n\nx\n";
  write_files(task, "/");
  reader.seekg(0);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "#!/bin/sh\n\necho one\n");
  EXPECT_EQ(read_file(path), task.files[0].text);
  EXPECT_EQ(entries(directory.path()), 1U);
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_NE(after.st_mode & S_IXUSR, 0U);
}

TEST(Files, WritersAtTheSameTimeLeaveAWholeFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/s.sh";
  constexpr int kWriters = 4;
  const auto text_of = [](int writer) { return std::string(20000, static_cast<char>('a' + writer)); };
  const auto is_whole = [&](const std::string& text) {
    for (int writer = 0; writer < kWriters; ++writer) {
      if (text == text_of(writer)) return true;
    }
    return false;
  };
  PreparedTask first;
  first.directory = directory.path();
  first.files = {{path, text_of(0)}};
  write_files(first, "/");
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      PreparedTask task;
      task.directory = directory.path();
      task.files = {{path, text_of(writer)}};
      for (int round = 0; round < 50; ++round) write_files(task, "/");
    });
  }
  int torn = 0;
  for (int look = 0; look < 200; ++look) torn += is_whole(read_file(path)) ? 0 : 1;
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(torn, 0);
  EXPECT_TRUE(is_whole(read_file(path)));
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Files, AFailureLeavesNothingBehind) {
  const TemporaryDirectory directory;
  PreparedTask task;
  task.directory = directory.path();
  task.files = {{directory.path() + "/s.sh", "true\n"}};
  std::filesystem::create_directory(directory.path() + "/s.sh");
  EXPECT_THROW(write_files(task, "/"), Error);
  EXPECT_EQ(entries(directory.path()), 1U);
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
