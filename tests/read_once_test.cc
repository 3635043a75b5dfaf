// SPDX-License-Identifier: Apache-2.0
// Follows the convert: and train: blocks of a study from YAML to the files of their programs, and counts how
// often they are read. The linker puts the functions below before the readers of converters/ and trainer/
// (--wrap in CMakeLists.txt), so that no reading escapes the count and production code has no counter.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/yaml.h"
#include "engine/coordinate/coordinator_impl.h"
#include "engine/wire/messages.h"
#include "specs/plan/plan.h"
#include "specs/plan/versions.h"
#include "specs/study/test_study.h"
#include "steps/step.h"
#include "steps/test_samples.h"

namespace wflow {

using Convert = converters::ConvertConfig(const yaml::Node&, yaml::Diagnostics&);
using Train = trainer::TrainConfig(const yaml::Node&, yaml::Diagnostics&);
#define WFLOW_CONVERT_READER "_ZN5wflow10converters19read_convert_configERKNS_4yaml4NodeERNS1_11DiagnosticsE"
#define WFLOW_TRAIN_READER "_ZN5wflow7trainer17read_train_configERKNS_4yaml4NodeERNS1_11DiagnosticsE"
Convert real_convert __asm__("__real_" WFLOW_CONVERT_READER);
Convert counted_convert __asm__("__wrap_" WFLOW_CONVERT_READER);
Train real_train __asm__("__real_" WFLOW_TRAIN_READER);
Train counted_train __asm__("__wrap_" WFLOW_TRAIN_READER);

namespace {

struct Readings {
  int convert = 0;
  int train = 0;
  bool operator==(const Readings&) const = default;
};
Readings readings;

constexpr std::string_view kStudy = R"yaml(
description: {name: n}
samples: {design: uniform, count: 20, parameters: {a: [0, 1]}}
study:
  - {name: sim, run: {cmd: "sim $(a)"}}
  - name: data
    convert: {from: sim, file: "u_$(MERLIN_SAMPLE_ID).h5", targets: [a], shard_samples: 10, delete_inputs: true}
  - {name: fit, train: {data: data, epochs: 3}}
)yaml";

// Everything that a coordinator and the commands beside it take from the blocks.
void use_blocks(const specs::Plan& plan) {
  engine::RawOutputs outputs(plan);
  outputs.bytes(0, 0);
  specs::training_doubts(plan.study());
  specs::describe(plan);
  for (specs::ArrayId array = 0; array < plan.array_count(); ++array) specs::fingerprint_of(plan, array);
}

std::string templates_of(const specs::Plan& plan) {
  engine::wire::Templates message;
  for (specs::ArrayId array = 0; array < plan.array_count(); ++array)
    message.templates.push_back(plan.task_template(array));
  return engine::wire::encode(message);
}

// Programs of these names in PATH, so that the real ones need not be built: the worker only names them.
class ReadOnce : public ::testing::Test {
 protected:
  ReadOnce() {
    for (const char* name : {"/wflow-convert", "/wflow-train"}) {
      const std::string file = directory_.path() + name;
      write_file_durably(file, "#!/bin/sh\n", 0755);
    }
    path_ = std::getenv("PATH");
    ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1);
  }
  ~ReadOnce() override { ::setenv("PATH", path_.c_str(), 1); }

 private:
  steps::TemporaryDirectory directory_;
  std::string path_;
};

TEST_F(ReadOnce, ABlockIsReadOnceInTheProcessOfTheCoordinator) {
  readings = {};
  const specs::Plan plan = specs::StudyText(kStudy).plan();
  use_blocks(plan);
  const std::string bytes = templates_of(plan);
  EXPECT_EQ(readings, (Readings{1, 1}));

  // On the worker: the values come from the message, and their programs' files from the values.
  readings = {};
  const auto message = engine::wire::decode(bytes);
  ASSERT_TRUE(message);
  const auto& templates = std::get<engine::wire::Templates>(*message).templates;
  ASSERT_EQ(templates.size(), 4U) << "sim, data, data.manifest, fit";
  const Readings decoded = readings;
  EXPECT_EQ(decoded, (Readings{2, 1})) << "once for each template";
  const auto samples = specs::open_samples(plan.study().samples->design);
  for (std::size_t i = 1; i < templates.size(); ++i) {
    const auto step = steps::make_step(templates[i], samples.get());
    yaml::Diagnostics diagnostics("file");
    const yaml::Node file = yaml::parse(step->setup().files.at(0).text, diagnostics);
    EXPECT_EQ(file.find("output")->text, i < 3 ? "/campaign/data" : "/campaign/fit");
    EXPECT_EQ(diagnostics.to_string(), "");
  }
  EXPECT_EQ(readings, decoded);
}

// The values of another combination are another block.
TEST_F(ReadOnce, ABlockWithParametersIsReadForEachCombination) {
  std::string text(kStudy);
  text += "parameters: {LR: [1, 2, 3]}\n";
  text.replace(text.find("epochs: 3"), 9, "epochs: $(LR)");
  readings = {};
  const specs::Plan plan = specs::StudyText(text).plan();
  const Readings checked = readings;
  EXPECT_EQ(checked, (Readings{1, 2})) << "the first combination, and what is the same in all";
  templates_of(plan);
  EXPECT_EQ(readings, (Readings{1, 2 + 3}));
}

}  // namespace

converters::ConvertConfig counted_convert(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ++readings.convert;
  return real_convert(block, diagnostics);
}

trainer::TrainConfig counted_train(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  ++readings.train;
  return real_train(block, diagnostics);
}

}  // namespace wflow
