// SPDX-License-Identifier: Apache-2.0
#include "engine/followups/followups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "specs/plan/workspace.h"

namespace wflow::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStudy = R"yaml(
description: {name: n}
env: {variables: {OUTPUT_PATH: out}}
iterate: {max: 2}
study:
  - {name: s, run: {cmd: echo $(ITERATION)}}
)yaml";

class Followups : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ("followups_" + std::to_string(::getpid()) + "_" +
                                          ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_file_durably(folder_ / "study.yaml", kStudy);
  }
  void TearDown() override { fs::remove_all(folder_); }

  specs::Study study() {
    specs::ReadOptions options;
    options.directory = folder_;
    return specs::read_study(folder_ / "study.yaml", options).study;
  }

  specs::Plan campaign(const std::string& name) {
    specs::Plan plan = specs::create_campaign(specs::Plan(study(), folder_ / name));
    store::Store::create(plan.campaign(), plan);
    return plan;
  }

  static wire::TaskEvent event(const std::string& line) {
    const auto parsed = wire::parse_event_line(line);
    const auto* body = parsed ? std::get_if<wire::EventBody>(&*parsed) : nullptr;
    return {0, 0, 0, 5, body != nullptr ? *body : wire::EventBody(wire::OtherEvent{})};
  }

  // All of its one task ended so.
  static CampaignStatus ended(ElementState state) {
    CampaignStatus status;
    StepStatus step;
    step.elements = 1;
    step.counts[static_cast<std::size_t>(state)] = 1;
    status.steps.push_back(step);
    return status;
  }

  static void submit(const fs::path& campaign, const nlohmann::json& body) {
    store::Batch batch;
    batch.followups.push_back(*followup_of(event(body.dump())));
    store::Store(campaign).commit(batch);
  }

  fs::path folder_;
};

TEST_F(Followups, AnEventThatIsNoneIsNone) {
  for (const char* line :
       {"submit", "[]", R"({"type": "note", "text": "submit"})", R"({"type": "submit"})",
        R"({"type": "submit", "kind": 3, "id": "a"})", R"({"type": "submit", "kind": "restart", "id": "a"})",
        R"({"type": "submit", "kind": "other", "id": "a", "spec": "s"})"}) {
    EXPECT_FALSE(followup_of(event(line))) << line;
  }
}

TEST_F(Followups, RunOneProcessAtATime) {
  const fs::path top = campaign("top").campaign();
  EXPECT_FALSE(running_campaign(top));
  {
    FollowupQueue queue(top);
    EXPECT_EQ(running_campaign(top), top);
    EXPECT_THROW(FollowupQueue{top}, Error);
    queue.announce("/another/one/of/a/long/name");
    queue.announce("/another");
    EXPECT_EQ(running_campaign(top), fs::path("/another"));
  }
  EXPECT_FALSE(running_campaign(top));
}

TEST_F(Followups, ASubmittedStudyOutlivesItsFileAndIsMadeOnce) {
  const specs::Plan top = campaign("top");
  submit(top.campaign(), submit_study(top.campaign(), study()));
  fs::remove(folder_ / "study.yaml");
  FollowupQueue queue(top.campaign());
  auto next = queue.next();
  ASSERT_TRUE(next);
  const fs::path made = queue.begin(*next).campaign();
  EXPECT_EQ(made.parent_path(), folder_ / "out");
  // Killed while it was being made: the same directory is made anew.
  fs::remove(store::database_path(made));
  auto again = queue.next();
  EXPECT_EQ(queue.begin(*again).campaign(), made);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out"), {}), 1);
  queue.end(*again, FollowupState::finished, ExitCode::ok);
  EXPECT_FALSE(queue.next());
}

TEST_F(Followups, OfAFollowupGoToTheTopOnce) {
  const specs::Plan top = campaign("top");
  const specs::Plan child = campaign("child");
  submit(child.campaign(), submit_study(child.campaign(), study()));
  submit(child.campaign(), submit_restart(top.campaign()));
  FollowupQueue queue(top.campaign());
  queue.take_from(child, {}, false);
  queue.take_from(child, {}, false);
  std::vector<std::string> kinds;
  for (const auto& followup : queue.all())
    kinds.push_back(followup.kind + " " + std::string(name_of(followup.state)));
  // And the next iteration of the child's study.
  EXPECT_EQ(kinds, (std::vector<std::string>{"submitted pending", "restart pending", "iteration pending"}));
  EXPECT_FALSE(FollowupQueue(child.campaign()).next())
      << "whoever runs the child alone leaves them to the top";
}

TEST_F(Followups, IterationsEndAtTheMostAndAfterFailures) {
  const specs::Plan first = campaign("top");
  FollowupQueue queue(first.campaign());
  queue.take_from(first, ended(ElementState::ready), false);
  queue.take_from(first, ended(ElementState::failed), false);
  EXPECT_FALSE(queue.next());
  EXPECT_EQ(store::Store(first.campaign()).status_at_rest().iterations,
            "stopped, because tasks of iteration 1 failed");
  queue.take_from(first, ended(ElementState::failed), true);
  auto next = queue.next();
  ASSERT_TRUE(next);
  const specs::Plan second = queue.begin(*next);
  EXPECT_EQ(second.campaign(), first.campaign() / "iterations" / "002");
  EXPECT_EQ(second.study().options.iteration.previous, first.campaign());
  EXPECT_EQ(second.task_template(0).command.front().text, "echo 2");
  queue.end(*next, FollowupState::finished, ExitCode::ok);
  queue.take_from(second, ended(ElementState::done), false);
  EXPECT_FALSE(queue.next());
  EXPECT_EQ(store::Store(first.campaign()).status_at_rest().iterations,
            "ended with iteration 2, the last (max), and not converged");
}

TEST_F(Followups, AnEventOfTheNameEndsTheIterations) {
  const specs::Plan first = campaign("top");
  store::Batch batch;
  batch.events.push_back(event(R"({"type":"converged"})"));
  store::Store(first.campaign()).commit(batch);
  FollowupQueue queue(first.campaign());
  queue.take_from(first, ended(ElementState::done), false);
  EXPECT_FALSE(queue.next());
  EXPECT_EQ(store::Store(first.campaign()).status_at_rest().iterations, "converged in iteration 1");
}

}  // namespace
}  // namespace wflow::engine
