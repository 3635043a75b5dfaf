// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace wflow
