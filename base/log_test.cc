// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Not the folder of the run before (--gtest_repeat): its message would not be printed again.
    std::string made = (fs::path(::testing::TempDir()) / "log_XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    campaign_ = made;
  }
  void TearDown() override {
    log::open(campaign_, "unused");  // for the next test
    fs::remove_all(campaign_);
  }
  fs::path folder() const { return campaign_ / ".wflow" / "logs"; }
  std::string text(const std::string& name) const { return read_file(folder() / (name + ".log")); }
  // Returns the text that `body` prints on standard error.
  template <typename Body>
  static std::string printed(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }

  fs::path campaign_;
};

TEST_F(LogTest, ALineHasTimeLevelProcessAndText) {
  log::open(campaign_, "coordinator-1", LogLevel::info);
  const std::string out = printed([] {
    log::write(LogLevel::debug, "not wanted");
    log::write(LogLevel::info, "lease 12: granted");
  });
  EXPECT_EQ(out, "");
  EXPECT_THAT(
      text("coordinator-1"),
      ::testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} info "
                              "coordinator-1\\[" +
                              std::to_string(::getpid()) + "\\] lease 12: granted\n"));
  EXPECT_TRUE(log::takes(LogLevel::info));
  EXPECT_FALSE(log::takes(LogLevel::debug));
}

TEST_F(LogTest, WarningsAlsoGoToStandardErrorOnce) {
  log::open(campaign_, "p", LogLevel::error);
  EXPECT_EQ(printed([] { log::write(LogLevel::warning, "the disk is nearly full"); }),
            "wflow: the disk is nearly full\n");
  EXPECT_EQ(printed([] {
              for (int i = 0; i < 3; ++i) log::write(LogLevel::error, "lost");
              log::record(LogLevel::error, "printed elsewhere");
            }),
            "wflow: lost\n");
  const std::string lines = text("p");
  EXPECT_EQ(lines.find("nearly full"), std::string::npos) << "below the level of the file";
  EXPECT_NE(lines.find("printed elsewhere"), std::string::npos);
}

TEST_F(LogTest, ALineStaysOneLineWhateverAPeerSays) {
  log::open(campaign_, "p", LogLevel::info);
  log::write(LogLevel::info, std::string("a\n2026-01-01 error faked\x1b[31m {} \xff") + '\0');
  const auto lines = text::split(text("p"), '\n');
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("a 2026-01-01 error faked"), std::string::npos);
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos);
}

TEST_F(LogTest, FilesAreBounded) {
  log::open(campaign_, "p", LogLevel::info);
  const std::string line(1 << 20, 'x');
  for (std::size_t written = 0; written < (log::kFiles + 2) * log::kFileBytes; written += line.size())
    log::write(LogLevel::info, line);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder())) {
    ++files;
    EXPECT_LE(entry.file_size(), log::kFileBytes + line.size());
  }
  EXPECT_EQ(files, log::kFiles);
}

TEST_F(LogTest, OldFilesOfMany) {
  fs::create_directories(folder());
  for (int i = 0; i < 250; ++i) {
    const fs::path path = folder() / ("worker-" + std::to_string(i) + ".log");
    write_all(open_file(path, O_WRONLY | O_CREAT).get(), "x", path);
    const auto age = i < 240 ? std::chrono::hours(48 + 240 - i) : std::chrono::hours(0);
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
  }
  log::open(campaign_, "p", LogLevel::info);
  EXPECT_FALSE(fs::exists(folder() / "worker-0.log"));
  EXPECT_FALSE(fs::exists(folder() / "worker-49.log"));
  EXPECT_TRUE(fs::exists(folder() / "worker-50.log"));
  EXPECT_TRUE(fs::exists(folder() / "worker-249.log"));
}

// Only the lines are lost.
TEST_F(LogTest, AFullDiskDoesNotReachTheCaller) {
  fs::create_directories(folder());
  fs::create_symlink("/dev/full", folder() / "p.log");
  log::open(campaign_, "p", LogLevel::info);
  EXPECT_EQ(printed([] {
              log::write(LogLevel::info, "one");
              log::write(LogLevel::warning, "two");
            }),
            "wflow: two\n");
}

TEST_F(LogTest, AFolderThatCannotBeWrittenIsToldOnce) {
  write_file_durably(campaign_ / ".wflow", "a file");
  const std::string out = printed([this] {
    log::open(campaign_, "p", LogLevel::info);
    log::open(campaign_, "p", LogLevel::info);
    log::write(LogLevel::info, "lost");
  });
  EXPECT_EQ(out, "wflow: no log is kept: " + folder().string() + " cannot be written\n");
  EXPECT_FALSE(log::takes(LogLevel::info));
  fs::remove(campaign_ / ".wflow");
}

TEST_F(LogTest, AForkedChildHasAFileOfItsOwn) {
  log::open(campaign_, "guardian", LogLevel::info);
  log::write(LogLevel::info, "before");
  const pid_t child = ::fork();
  if (child == 0) {
    log::open(campaign_, "agent", LogLevel::info);
    log::write(LogLevel::info, "child");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  log::write(LogLevel::info, "after");
  EXPECT_EQ(text::split(text("guardian"), '\n').size(), 3u) << "nothing twice";
  EXPECT_NE(text("agent").find("[" + std::to_string(child) + "] child"), std::string::npos);
}

TEST_F(LogTest, TheErrorThatEndsAProgramIsInItsFileToo) {
  log::open(campaign_, "p", LogLevel::info);
  const std::string out = printed([] {
    const auto body = [](int, char**) -> int { throw Error(ExitCode::data, "it is damaged"); };
    EXPECT_EQ(run_main("wflow-test", body, 0, nullptr), 4);
  });
  EXPECT_EQ(out, "wflow-test: it is damaged\n");
  EXPECT_NE(text("p").find(" error p["), std::string::npos);
  EXPECT_NE(text("p").find("it is damaged"), std::string::npos);
}

TEST(LogLevels, HaveNames) {
  EXPECT_EQ(log::level_from_name("warning"), LogLevel::warning);
  EXPECT_FALSE(log::level_from_name("loud"));
  EXPECT_EQ(log::name_of(LogLevel::trace), "trace");
  ::setenv("WFLOW_LOG", "debug", 1);
  EXPECT_EQ(log::wanted_level(), LogLevel::debug);
  ::setenv("WFLOW_LOG", "loud", 1);
  EXPECT_EQ(log::wanted_level(), LogLevel::info);
  ::unsetenv("WFLOW_LOG");
  EXPECT_EQ(log::wanted_level(), LogLevel::info);
}

}  // namespace

namespace {

TEST(EventWriter, AppendsOneJsonLineAnEvent) {
  const std::string path = ::testing::TempDir() + "/events.jsonl";
  std::filesystem::remove(path);
  EventWriter writer(path);
  writer.progress(3, 10, "samples");
  writer.metric("validation_loss", 0.5, 2, 40);
  EventWriter(path).note("two\nlines");
  EventWriter(path).artifact("model", "runs/../model.pt");
  const std::string text = read_file(path);
  std::vector<nlohmann::json> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(nlohmann::json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["done"], 3);
  EXPECT_EQ(lines[1]["name"], "validation_loss");
  EXPECT_EQ(lines[2]["text"], "two\nlines");
  EXPECT_EQ(lines[3]["path"], (std::filesystem::current_path() / "model.pt").string());
}

TEST(EventWriter, WithoutAFileDoesNothing) {
  EventWriter writer("");
  writer.progress(1, 2, "epochs");
}

}  // namespace

}  // namespace wflow
