// SPDX-License-Identifier: Apache-2.0
// --pgen: parameters made by a Python file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "specs/plan/workspace.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::HasSubstr;

constexpr std::string_view kStudy = R"yaml(
description: {name: n, description: d}
env: {variables: {COUNT: 3, OUTPUT_PATH: out}}
global.parameters: {OLD: {values: [1], label: OLD.%%}}
study:
  - {name: a, description: d, run: {cmd: "echo $(ITER) $(SIZE.label) $(SIZE.name)"}}
)yaml";

constexpr std::string_view kGenerator = R"py(
from maestrowf.datastructures.core import ParameterGenerator

def get_custom_generator(env, **kwargs):
    print("counting")
    made = ParameterGenerator()
    count = int(env.find("COUNT").value)
    made.add_parameter("ITER", [i * int(kwargs["factor"]) for i in range(count)], "I%%")
    made.add_parameter("SIZE", [0.5, 1e-7, "big"], ["half", "tiny", "big"], "size of it")
    return made
)py";

TEST(Generator, ReplacesTheParameters) {
  StudyText text(kStudy);
  text.options.generator = text.folder().write("generate.py", kGenerator);
  text.options.generator_arguments = {"factor: 10", "other:a:b"};
  const Plan plan = text.plan();
  ASSERT_EQ(plan.array_count(), 3U);
  EXPECT_EQ(plan.array_name(2), "a/I20.big");
  EXPECT_EQ(plan.task_template(1).command[0].text, "echo 10 tiny size of it");
  EXPECT_EQ(plan.study().parameters[1].values[1], "1e-07") << "as Python writes it";
}

TEST(Generator, RunsOnceInACampaign) {
  StudyText text(kStudy);
  text.options.generator = text.folder().write("generate.py", kGenerator);
  text.options.generator_arguments = {"factor:1"};
  text.options.timestamp = "20260101-000000";
  const Study study = text.study();
  std::filesystem::remove(text.options.generator);
  const Plan plan = create_campaign(Plan(study, campaign_directory(study, text.options.timestamp)));
  EXPECT_EQ(plan.array_count(), 3U);
  EXPECT_EQ(Plan(read_campaign(plan.campaign()), plan.campaign()).array_name(1), "a/I1.tiny");
  const auto info = plan.campaign() / "merlin_info";
  EXPECT_THAT(read_file(info / "study.expanded.yaml"), HasSubstr("I%%"));
  EXPECT_THAT(read_file(info / "study.partial.yaml"), HasSubstr("size of it"));
  EXPECT_THAT(read_file(info / "study.orig.yaml"), HasSubstr("OLD"));
}

std::string failure(std::string_view generator) {
  StudyText text(kStudy);
  text.options.generator = text.folder().write("generate.py", generator);
  const std::string error = text.error();
  return error.substr(std::min(error.size(), error.find("generate.py")));
}

TEST(Generator, SaysWhatFailed) {
  EXPECT_EQ(failure("def get_custom_generator(env, **kwargs):\n  return 1 / 0\n"),
            "generate.py:2: error: the parameter generator failed: ZeroDivisionError: division by zero");
  EXPECT_EQ(failure("x = 3\n"),
            "generate.py: error: the parameter generator failed: AttributeError: it has no function "
            "get_custom_generator(env, **kwargs)");
  EXPECT_THAT(failure("def f(:\n"),
              HasSubstr("generate.py:1: error: the parameter generator failed: SyntaxError"));
  EXPECT_THAT(failure("def get_custom_generator(env):\n  return 3\n"), HasSubstr("no ParameterGenerator"));
  EXPECT_THAT(failure("import sys\nsys.exit(3)\n"), HasSubstr("generate.py:2: error"));
  EXPECT_THAT(failure("import os\nos._exit(3)\n"), HasSubstr("generate.py ended with exit code 3"));
  StudyText text(kStudy);
  text.options.generator_arguments = {"factor:1"};
  EXPECT_THAT(text.error(), HasSubstr("--pargs is for --pgen"));
  text.options.generator = "none.py";
  EXPECT_THAT(text.error(), HasSubstr("No such file"));
  text.options.generator_arguments = {"factor"};
  EXPECT_THAT(text.error(), HasSubstr("--pargs takes KEY:VALUE"));
}

TEST(Generator, IsCheckedAsTheFilesOwnParametersAre) {
  StudyText text(kStudy);
  text.options.generator =
      text.folder().write("generate.py",
                          "from maestrowf.datastructures.core import ParameterGenerator\n"
                          "def get_custom_generator(env):\n"
                          "  made = ParameterGenerator()\n"
                          "  made.add_parameter('ITER', [1, 2])\n"
                          "  made.add_parameter('SIZE', [1])\n"
                          "  return made\n");
  EXPECT_THAT(text.error(), HasSubstr("error: the parameter 'SIZE' has 1 value, 'ITER' has 2"));
}

}  // namespace
}  // namespace wflow::specs
