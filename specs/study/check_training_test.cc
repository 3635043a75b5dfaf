// SPDX-License-Identifier: Apache-2.0
#include "specs/study/study.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "specs/study/test_study.h"

namespace wflow::specs {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string study(const std::string& count, const std::string& convert, const std::string& train) {
  return "description: {name: t}\n"
         "samples: {design: uniform, count: " +
         count +
         ", seed: 1, parameters: {a: [0, 1], b: [0, 1]}}\n"
         "study:\n"
         "  - {name: simulate, run: {cmd: echo $(a) $(b)}}\n"
         "  - {name: data, convert: {from: simulate, " +
         convert +
         "}}\n"
         "  - {name: train, train: {data: data, " +
         train + "}}\n";
}

std::string doubts(const std::string& text) {
  return text::join(training_doubts(StudyText(text).study()), "\n");
}

TEST(Trainings, OfFewSamplesAreDoubted) {
  EXPECT_EQ(doubts(study("200", "file: x.npy, targets: [a, b]", "epochs: 3")), "");
  EXPECT_THAT(doubts(study("24", "file: x.npy, targets: [a, b]", "epochs: 3")),
              AllOf(HasSubstr("the step 'train': of 24 samples about 19 are for training, 2 for validation "
                              "and 2 for the test"),
                    Not(HasSubstr("batch"))));
  EXPECT_THAT(doubts(study("100", "file: x.npy, targets: [a, b]", "batch: 400")),
              HasSubstr("'batch' is 400 and there are about 80 training samples"));
  const std::string none = "file: x.npy, targets: [a, b], split: {train: 0.9, validation: 0.0, test: 0.1}";
  EXPECT_THAT(doubts(study("100", none, "early_stop: 3")),
              HasSubstr("'early_stop' goes by the training loss"));
  EXPECT_THAT(doubts(study("100", none, "select: best")),
              HasSubstr("the best epoch is that of the least training loss"));
  EXPECT_EQ(doubts(study("100", none, "epochs: 3")).find("best"), std::string::npos);
}

TEST(Trainings, OfConstantsAreDoubted) {
  const auto listed = [](const std::string& train) {
    return "description: {name: t}\n"
           "samples: {design: grid, parameters: {a: [5], b: [1, 2, 3]}}\n"
           "study:\n"
           "  - {name: simulate, run: {cmd: echo $(a) $(b)}}\n"
           "  - {name: data, convert: {from: simulate, file: x.npy, targets: [a, b]}}\n"
           "  - {name: train, train: {data: data, " +
           train + "}}\n";
  };
  EXPECT_THAT(doubts(listed("epochs: 3")), HasSubstr("the target 'a' is the same in all samples"));
  EXPECT_THAT(doubts(listed("inputs: [a], targets: [b]")),
              HasSubstr("the input 'a' is the same in all samples"));
  EXPECT_THAT(doubts(listed("inputs: [b], targets: [x]")), Not(HasSubstr("the same in all samples")));
}

TEST(Trainings, ThatTheTrainerWillRefuseAreErrors) {
  EXPECT_EQ(StudyText(study("200", "file: x.npy, targets: [a, b]", "inputs: [a], targets: [b]")).error(), "");
  EXPECT_THAT(StudyText(study("200", "file: x.npy, targets: [a, b]", "inputs: [a], targets: [a, b]")).error(),
              HasSubstr("'a' is an input and a target: the network would copy it"));
  const std::string fields =
      "inputs: {a: {parameters: a}}, targets: {u: {file: u.npy, shape: [8, 8]}, v: {file: v.npy, shape: ";
  EXPECT_EQ(StudyText(study("200", fields + "[2, 1, 8, 8]}}", "targets: [u, v]")).error(), "");
  EXPECT_THAT(StudyText(study("200", fields + "[16, 16]}}", "targets: [u, v]")).error(),
              HasSubstr("the targets u and v are on different grids"));
  EXPECT_EQ(StudyText(study("200", fields + "[16, 16]}}", "targets: [u]")).error(), "");
}

}  // namespace
}  // namespace wflow::specs
