// SPDX-License-Identifier: Apache-2.0
// A campaign of so many samples and one task after them, with its record: for tests of queries and monitor.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "engine/schedule/graph.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "engine/wire/temporary_campaign.h"
#include "specs/plan/workspace.h"
#include "specs/study/study.h"

namespace wflow::engine {

class TestCampaign {
 public:
  explicit TestCampaign(std::uint64_t samples) {
    const std::string count = std::to_string(samples);
    write_file_durably(
        path() / "study.yaml",
        "description: {name: test, description: a test}\n"
        "samples: {design: uniform, count: " +
            count +
            ", seed: 1, parameters: {x: [0, 1]}}\n"
            "study:\n"
            "  - {name: simulate, description: one, run: {cmd: 'echo $(x)'}}\n"
            "  - {name: collect, description: all, run: {cmd: 'echo done', depends: [simulate]}}\n");
    specs::ReadOptions options;
    options.timestamp = "20260101-000000";
    plan_ = std::make_unique<specs::Plan>(
        specs::create_campaign(specs::Plan(specs::read_study(path() / "study.yaml", options).study, path())));
    wire::create_keys(path());
  }

  const std::filesystem::path& path() const { return directory_.path(); }
  const specs::Plan& plan() const { return *plan_; }
  void create_record() const { store::Store::create(path(), *plan_); }

  static RecordFailure failure(Element element, int exit_code) {
    RecordFailure failure;
    failure.outcome.element = element;
    failure.outcome.exit_code = exit_code;
    failure.outcome.started_s = 100;
    failure.outcome.duration_s = 1;
    failure.worker = "host-1-abc";
    failure.final = true;
    return failure;
  }

  // The samples of the range have failed with the exit code element % 3 + 1.
  static store::Batch failures(Range range) {
    store::Batch batch;
    for (Element element = range.first; element <= range.last; ++element)
      batch.failures.push_back(failure(element, static_cast<int>(element % 3) + 1));
    batch.ends = {{0, range, ElementState::failed}};
    return batch;
  }

  // The scheduler at the start of a coordinator.
  std::unique_ptr<Scheduler> scheduler(store::Store& store) const {
    auto scheduler = std::make_unique<Scheduler>(array_specs(*plan_), 1);
    restore_states(*scheduler, store.restore());
    scheduler->start();
    return scheduler;
  }

 private:
  wire::TemporaryCampaign directory_;
  std::unique_ptr<specs::Plan> plan_;
};

}  // namespace wflow::engine
