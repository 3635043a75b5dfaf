// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

namespace wflow {
namespace {

std::string reported(int (*body)(int, char**)) {
  testing::internal::CaptureStderr();
  run_main("wflow", body, 0, nullptr);
  return testing::internal::GetCapturedStderr();
}

TEST(RunMain, NamesTheProgram) {
  EXPECT_EQ(reported([](int, char**) -> int { throw Error(ExitCode::usage, "there is no command 'x'"); }),
            "wflow: there is no command 'x'\n");
}

TEST(RunMain, PutsAPlaceFirstSoThatEditorsFindIt) {
  EXPECT_EQ(reported([](int, char**) -> int {
              throw Error(ExitCode::spec,
                          "a b/study.yaml:12:3: error: unknown key 'x'\nstudy.yaml:13:1: error: y");
            }),
            "a b/study.yaml:12:3: error: unknown key 'x'\nstudy.yaml:13:1: error: y\n");
  EXPECT_EQ(reported([](int, char**) -> int {
              throw Error(ExitCode::spec, "study.yaml:2:3: warning: x\nstudy.yaml:13:1: error: y");
            }),
            "study.yaml:2:3: warning: x\nstudy.yaml:13:1: error: y\n");
  for (const char* sentence :
       {"study.yaml: error: it is empty", "a message: error: of something", ":1:2: error: x",
        "study.yaml:3: error: x", "cannot read\nstudy.yaml:3:1: error: x"}) {
    static std::string said;
    said = sentence;
    EXPECT_EQ(reported([](int, char**) -> int { throw Error(ExitCode::spec, said); }),
              "wflow: " + said + "\n");
  }
}

// With standard output connected to a file of this name.
std::pair<int, std::string> with_output_to(const char* file, int (*body)(int, char**)) {
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  const int full = ::open(file, O_WRONLY);
  ::dup2(full, STDOUT_FILENO);
  ::close(full);
  testing::internal::CaptureStderr();
  const int code = run_main("wflow", body, 0, nullptr);
  std::string said = testing::internal::GetCapturedStderr();
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  std::clearerr(stdout);
  return {code, std::move(said)};
}

TEST(RunMain, OutputThatCannotBeWrittenIsAnError) {
  const std::string sentence =
      "wflow: cannot write standard output: No space left on device; free some space and try again\n";
  const auto few = [](int, char**) -> int { return std::puts("a line") < 0 ? 1 : 0; };
  EXPECT_EQ(with_output_to("/dev/full", few), std::pair(5, sentence));
  EXPECT_EQ(with_output_to("/dev/null", few), std::pair(0, std::string()));
  const auto much = [](int, char**) -> int {
    for (int i = 0; i < 10'000; ++i) fmt::print("a line of many\n");
    return 0;
  };
  EXPECT_EQ(with_output_to("/dev/full", much), std::pair(5, sentence));
  const auto fails = [](int, char**) -> int {
    fmt::print("a line\n");
    throw Error(ExitCode::data, "it is damaged");
  };
  EXPECT_EQ(with_output_to("/dev/full", fails), std::pair(4, std::string("wflow: it is damaged\n")));
}

TEST(RunMain, AReaderThatHasGoneIsNoError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  std::signal(SIGPIPE, SIG_IGN);
  std::fflush(stdout);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  const int code = run_main(
      "wflow", [](int, char**) -> int { return std::puts("a line") < 0 ? 1 : 0; }, 0, nullptr);
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(ends[1]);
  std::clearerr(stdout);
  std::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace wflow
