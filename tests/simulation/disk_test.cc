// SPDX-License-Identifier: Apache-2.0
// The store on a disk whose fsync fails. The simulator found these: disk.h has the model.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/store/store.h"
#include "tests/simulation/tasks.h"
#include "tests/simulation/vfs.h"

namespace wflow::simulation {
namespace {

class FailingDisk : public ::testing::Test {
 protected:
  explicit FailingDisk(std::uint64_t seed = 1) : seed_(seed) {
    vfs_.restart(seed_);
    disk_.put(engine::store::database_path(study_.plan.campaign()).string(), study_.database);
  }
  // Made before a Vfs is SQLite's default.
  static const SimulatedStudy& first_study() {
    static const Studies kStudies = make_studies();
    return *kStudies.all.front();
  }
  // A new process.
  std::unique_ptr<engine::store::Store> open(const std::string& host = "host",
                                             engine::store::CommitGuard* guard = nullptr) {
    process_ = std::make_shared<DiskUser>();
    process_->host = host;
    vfs_.use(&disk_, process_);
    return std::make_unique<engine::store::Store>(
        study_.plan.campaign(), engine::store::DatabaseOptions{.vfs = Vfs::kName, .lock = guard});
  }
  // No call of the process changes the disk any more.
  void kill(std::unique_ptr<engine::store::Store> store) {
    process_->dead = true;
    store.reset();
  }
  static engine::store::Batch worker(const std::string& id) {
    engine::store::Batch batch;
    batch.workers_joined.push_back({.id = id, .group = "g", .guardian = {}, .agent = {}});
    return batch;
  }
  static std::vector<std::string> workers(engine::store::Store& store) {
    std::vector<std::string> ids;
    for (const auto& row : store.restore().workers) ids.push_back(row.id);
    return ids;
  }

  const SimulatedStudy& study_ = first_study();
  std::uint64_t seed_;
  double now_s_ = 0;
  FaultCounts faults_;
  Disk disk_{now_s_, Draw(seed_, Concern::disk), faults_};
  Vfs vfs_;
  std::shared_ptr<DiskUser> process_;
};

class FailingDisks : public FailingDisk, public ::testing::WithParamInterface<std::uint64_t> {
 protected:
  FailingDisks() : FailingDisk(GetParam()) {}
};

// The log's frames of the failed commit are in the page cache alone: a later process reads them as committed,
// and appends to them.
TEST_P(FailingDisks, CommitsAfterAFailedFsyncAndAKillSurviveTheHost) {
  auto store = open();
  store->commit(worker("before"));
  disk_.fail(DiskCall::sync, 1);
  bool failed = false;
  try {
    store->commit(worker("failed"));
  } catch (const Error& error) {
    failed = true;
    EXPECT_TRUE(is_disk_trouble(error)) << error.what();
  }
  kill(std::move(store));
  disk_.mend();
  store = open();
  store->commit(worker("after"));
  kill(std::move(store));
  Draw draw(seed_, Concern::faults);
  disk_.crash("host", draw, faults_);
  const std::vector<std::string> left = workers(*open());
  EXPECT_NE(std::ranges::find(left, "before"), left.end());
  EXPECT_NE(std::ranges::find(left, "after"), left.end()) << "failed: " << failed;
}

// On a file system that keeps locks to one host: the first process stood still, and sees that it has lost the
// campaign.
TEST_F(FailingDisk, AProcessThatHasLostTheCampaignLeavesTheDatabaseAlone) {
  class Guard final : public engine::store::CommitGuard {
   public:
    bool lost = false;
    void check() override {
      if (lost) throw Error(ExitCode::busy, "lost");
    }
  } guard;
  disk_.keep_locks_to_hosts();
  auto frozen = open("first", &guard);
  frozen->commit(worker("before"));
  auto second = open("second");
  second->commit(worker("after"));
  guard.lost = true;
  EXPECT_THROW(frozen->commit(worker("late")), Error);
  frozen.reset();
  second->commit(worker("later"));
  kill(std::move(second));
  EXPECT_EQ(workers(*open("third")), (std::vector<std::string>{"after", "before", "later"}));
}

INSTANTIATE_TEST_SUITE_P(Seeds, FailingDisks, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace wflow::simulation
