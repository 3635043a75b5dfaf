// SPDX-License-Identifier: Apache-2.0
// A new campaign of two steps (100 samples, then one task) with its database, for the store's tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "engine/store/store.h"
#include "specs/study/study.h"

namespace wflow::engine::store {

class StoreFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    namespace fs = std::filesystem;
    campaign_ =
        fs::path(::testing::TempDir()) / ("store_" + std::to_string(::getpid()) + "_" +
                                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(campaign_);
    fs::create_directories(campaign_);
    write_file_durably(campaign_ / "study.yaml", kStudy);
    specs::ReadOptions options;
    options.timestamp = "20260101-000000";
    plan_ =
        std::make_unique<specs::Plan>(specs::read_study(campaign_ / "study.yaml", options).study, campaign_);
    Store::create(campaign_, *plan_);
  }
  void TearDown() override { std::filesystem::remove_all(campaign_); }

  static Batch ends(std::vector<RecordEnd> list) {
    Batch batch;
    batch.ends = std::move(list);
    return batch;
  }
  static std::string text_of(const Restored& restored) {
    std::string text;
    for (const auto& end : restored.ends) {
      text += std::to_string(end.array) + ":" + std::to_string(end.range.first) + "-" +
              std::to_string(end.range.last) + std::string(name_of(end.state)) + " ";
    }
    return text;
  }

  static constexpr auto kDone = ElementState::done;
  static constexpr auto kFailed = ElementState::failed;
  static constexpr auto kOpen = ElementState::blocked;

  std::filesystem::path campaign_;
  std::unique_ptr<specs::Plan> plan_;

 private:
  static constexpr const char* kStudy = R"yaml(
description: {name: test, description: a test}
samples: {design: uniform, count: 100, seed: 1, parameters: {x: [0, 1]}}
study:
  - name: simulate
    description: one
    run: {cmd: "echo $(x)"}
  - name: collect
    description: all
    run: {cmd: "echo done", depends: [simulate]}
)yaml";
};

}  // namespace wflow::engine::store
