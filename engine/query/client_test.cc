// SPDX-License-Identifier: Apache-2.0
#include "engine/query/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "engine/query/queries.h"
#include "engine/query/test_campaign.h"
#include "engine/wire/transport.h"

namespace wflow::engine {
namespace {

std::string sentence_of(const std::function<void()>& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Client, SaysWhereNoCampaignWasStarted) {
  const TestCampaign campaign(10);
  const auto status = [&] { campaign_status(campaign.path()); };
  EXPECT_NE(sentence_of(status, ExitCode::usage).find("no campaign was started here yet"), std::string::npos);
  // A coordinator that was killed before it had a record.
  wire::write_endpoint(campaign.path(), {"ipc:///nowhere", "tcp://127.0.0.1:1", "host", 1, 1});
  EXPECT_NE(sentence_of(status, ExitCode::usage).find("no campaign was started here yet"), std::string::npos);
  const auto nothing = [] { campaign_status("/nonexistent"); };
  EXPECT_NE(sentence_of(nothing, ExitCode::usage).find("not a campaign directory"), std::string::npos);
}

TEST(Client, ReadsTheRecordOfACampaignAtRest) {
  const TestCampaign campaign(10);
  campaign.create_record();
  store::Store(campaign.path()).commit(TestCampaign::failures({3, 4}));
  const CampaignStatus status = campaign_status(campaign.path());
  EXPECT_EQ(status.state, CampaignState::interrupted);
  EXPECT_EQ(status.failed(), 2U);
  EXPECT_EQ(status.last_failure, 2U);
  ASSERT_EQ(status.failures.size(), 2U);
  EXPECT_EQ(status.failures[1].number, 2U);
  for (const bool with_plan : {true, false}) {
    Client client = with_plan ? Client(campaign.plan()) : Client(campaign.path());
    EXPECT_EQ(client.explain({0, 3}).state, ElementState::failed);
    EXPECT_FALSE(client.live());
    EXPECT_EQ(client.retryable({}), 2U);
    EXPECT_EQ(client.workers().size(), 0U);
    sentence_of([&] { client.snapshot("/nonexistent/x"); }, ExitCode::system);
    client.snapshot(campaign.path() / ("copy" + std::to_string(with_plan)));
  }
  EXPECT_FALSE(Client(campaign.path()).command(wire::DrainRequest{}));
}

TEST(Client, ARecordIsReadOnlyWhereNobodyHoldsIt) {
  const TestCampaign campaign(10);
  campaign.create_record();
  store::Store(campaign.path()).commit(TestCampaign::failures({3, 4}));
  const auto record = read_record(campaign.path(), {0, 0, 0}, 10);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->watch.status.failed(), 2U);
  // The record is free afterwards; while another process holds it, the call does not wait.
  const store::Store held(campaign.path());
  EXPECT_FALSE(read_record(campaign.path(), {0, 0, 0}, 10));
}

// A coordinator that answers as told, on a thread of its own.
class Coordinator {
 public:
  Coordinator(const TestCampaign& campaign, std::function<wire::Answer(const wire::Request&)> answer)
      : answer_(std::move(answer)), thread_([this, &campaign] { serve(campaign); }) {
    while (!listens_) std::this_thread::yield();
  }
  ~Coordinator() {
    ended_ = true;
    thread_.join();
  }

 private:
  void serve(const TestCampaign& campaign) {
    wire::ServerSocket socket(wire::read_keys(campaign.path()), wire::Listen::host);
    wire::write_endpoint(campaign.path(), socket.endpoint());
    listens_ = true;
    while (!ended_) {
      socket.wait(std::chrono::milliseconds(5), {});
      while (auto received = socket.receive()) {
        const auto* query = std::get_if<wire::Query>(&received->message);
        if (query == nullptr) continue;
        EXPECT_TRUE(socket.send(received->peer, answer_(query->request)));
      }
    }
  }

  std::function<wire::Answer(const wire::Request&)> answer_;
  std::atomic<bool> listens_ = false, ended_ = false;
  std::thread thread_;
};

// It ends between the copy and the answer.
TEST(Client, ASnapshotThatNobodyConfirmedIsMadeOnce) {
  const TestCampaign campaign(10);
  campaign.create_record();
  const std::filesystem::path copy = campaign.path() / "copy.db";
  auto held = std::make_unique<store::Store>(campaign.path());
  std::atomic<bool> listens = false;
  std::thread coordinator([&] {
    wire::ServerSocket socket(wire::read_keys(campaign.path()), wire::Listen::host);
    wire::write_endpoint(campaign.path(), socket.endpoint());
    listens = true;
    while (!socket.receive()) socket.wait(std::chrono::milliseconds(5), {});
    held->snapshot(copy);
    held.reset();
  });
  while (!listens) std::this_thread::yield();
  EXPECT_NO_THROW(Client(campaign.path()).snapshot(copy));
  coordinator.join();
  const auto again = [&] { Client(campaign.path()).snapshot(copy); };
  EXPECT_NE(sentence_of(again, ExitCode::usage).find("exists already"), std::string::npos);
}

// Longer than other questions may take.
TEST(Client, ASnapshotThatTakesLongIsAskedForOnce) {
  const TestCampaign campaign(10);
  campaign.create_record();
  const store::Store held(campaign.path());
  std::atomic<int> asked = 0;
  const Coordinator coordinator(campaign, [&](const wire::Request&) -> wire::Answer {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return wire::done_answer();
  });
  EXPECT_NO_THROW(Client(campaign.path(), {1, 0.05}).snapshot(campaign.path() / "copy.db"));
  EXPECT_EQ(asked, 1);
}

TEST(Client, AsksTheCoordinatorWhereOneLives) {
  const TestCampaign campaign(10);
  campaign.create_record();
  const store::Store held(campaign.path());
  const Coordinator coordinator(campaign, [](const wire::Request& request) -> wire::Answer {
    if (const auto* workers = std::get_if<wire::WorkersRequest>(&request)) {
      wire::WorkersAnswer page;
      page.workers.resize(3);
      if (workers->from < 6) page.next = workers->from + 3;
      return {page};
    }
    if (std::holds_alternative<wire::CancelRequest>(request)) return wire::done_answer(7, 2);
    if (std::holds_alternative<wire::PauseRequest>(request)) return wire::refusal("the campaign is ending");
    CampaignStatus status;
    status.name = "live";
    return {status};
  });
  Client client(campaign.path());
  EXPECT_EQ(client.status().name, "live");
  EXPECT_EQ(client.workers().size(), 9U);
  EXPECT_TRUE(client.live());
  const auto done = client.command(wire::CancelRequest{});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->count, 7U);
  EXPECT_EQ(done->running, 2U);
  EXPECT_EQ(sentence_of([&] { client.command(wire::PauseRequest{}); }, ExitCode::usage),
            "the campaign is ending");
  sentence_of([&] { client.explain({0, 0}); }, ExitCode::version);
}

}  // namespace
}  // namespace wflow::engine
