// SPDX-License-Identifier: Apache-2.0
// The coordinator with its sockets and its database, and a worker that is played by the test.
#include "engine/coordinate/coordinator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <limits>

#include "base/clock.h"
#include "base/file.h"
#include "engine/store/store.h"
#include "engine/wire/keys.h"
#include "engine/wire/temporary_campaign.h"
#include "engine/wire/transport.h"
#include "specs/plan/workspace.h"
#include "specs/study/study.h"

namespace wflow::engine {
namespace {

using namespace std::chrono_literals;

// Its workers stand on another machine, so that the coordinator starts none.
constexpr const char* kStudy = R"yaml(
description: {name: far, description: one step elsewhere}
samples: {design: uniform, count: 3, seed: 1, parameters: {x: [0, 1]}}
workers: {far: {slots: 1, machines: [far], steps: [simulate]}}
study:
  - {name: simulate, description: one, run: {cmd: "echo $(x)"}}
)yaml";

class FarWorker {
 public:
  FarWorker(const std::filesystem::path& campaign, const wire::CampaignKeys& keys)
      : token_(keys.token), socket_(keys, *wire::read_endpoint(campaign)) {}

  bool say(const wire::Message& message) { return socket_.send(message); }
  void say_hello() {
    wire::Hello hello;
    hello.version = "test";
    hello.campaign = token_;
    hello.worker = "far-1-test";
    hello.group = "far";
    hello.guardian = {"far", "boot", "pid:[1]", 1, 1};
    hello.agent = {"far", "boot", "pid:[1]", 2, 2};
    hello.cores = 1;
    EXPECT_TRUE(say(hello));
    EXPECT_TRUE(say(wire::Heartbeat{1, 0, {}}));
  }
  // The next message of this kind.
  template <class T>
  std::optional<T> hear() {
    for (const double until_s = steady_now_s() + 60; steady_now_s() < until_s; socket_.wait(20ms, {})) {
      while (auto message = socket_.receive()) {
        if (auto* wanted = std::get_if<T>(&*message)) return std::move(*wanted);
      }
    }
    return std::nullopt;
  }

 private:
  std::string token_;
  wire::ClientSocket socket_;
};

class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() {
    write_file_durably(campaign_.path() / "study.yaml", kStudy);
    specs::ReadOptions options;
    options.timestamp = "20260101-000000";
    plan_ = std::make_unique<specs::Plan>(specs::create_campaign(
        specs::Plan(specs::read_study(campaign_.path() / "study.yaml", options).study, campaign_.path())));
    keys_ = wire::create_keys(campaign_.path());
    store::Store::create(campaign_.path(), *plan_);
  }
  std::future<CoordinatorEnd> run() {
    auto end = std::async(std::launch::async, [this] { return run_coordinator(*plan_, {}, {}); });
    while (!wire::read_endpoint(campaign_.path())) {
      if (end.wait_for(10ms) == std::future_status::ready) end.get();  // throws why
    }
    return end;
  }

  wire::TemporaryCampaign campaign_;
  std::unique_ptr<specs::Plan> plan_;
  wire::CampaignKeys keys_;
};

// A duration of NaN was stored as NULL, which the database refuses: the campaign ended by it.
TEST_F(CoordinatorTest, DurationsThatAreNoNumbersEndNothing) {
  auto end = run();
  FarWorker worker(campaign_.path(), keys_);
  worker.say_hello();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  wire::Results results;
  for (std::uint64_t done = 0; done < 3;) {
    const auto leases = worker.hear<wire::Leases>();
    ASSERT_TRUE(leases);
    for (const wire::Lease& lease : leases->leases) {
      ++results.sequence;
      results.done = {{lease.id, lease.array, lease.first, lease.count, 0, nan, -infinity, infinity}};
      results.outcomes = {{lease.id, lease.array, lease.first, 0, EndReason::exited, 1, nan, nan, "stale"}};
      results.events = {{lease.array, lease.first, 0, nan, wire::Metric{"loss", 1, 1, nan}}};
      ASSERT_TRUE(worker.say(results));
      done += lease.count;
    }
  }
  ASSERT_TRUE(worker.hear<wire::Drain>());
  ASSERT_TRUE(worker.say(wire::Goodbye{"drained"}));
  EXPECT_EQ(end.get().code, ExitCode::ok);
  const CampaignStatus status = store::Store(campaign_.path()).status_at_rest();
  ASSERT_EQ(status.steps.size(), 1U);
  EXPECT_EQ(status.steps[0].count(ElementState::done), 3U);
  EXPECT_TRUE(std::isfinite(status.steps[0].mean_s));
}

}  // namespace
}  // namespace wflow::engine
