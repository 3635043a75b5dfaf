// SPDX-License-Identifier: Apache-2.0
// Messages of peers and clients to the coordinator machine: lost messages, unknown peers, wrong values,
// requests.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "engine/coordinate/test_machine.h"

namespace wflow::engine {
namespace {

using testing::HasSubstr;

const TestWorker kHere{"w-here", "here", 100};
const TestWorker kThere{"w-there", "there", 200};
const TestWorker kOther{"w-other", "other", 300};

wire::Query query(wire::Request request) {
  return {std::move(request)};
}

// ---- connections

TEST(Connections, WhatWasNotDeliveredIsLeasedAgain) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  ASSERT_EQ(edge.leases(kThere.id).size(), 1U);
  edge.handle(event::Undelivered{kThere.id});  // the lease
  const std::size_t before = edge.sends.size();
  EXPECT_TRUE(edge.sent<wire::Identify>(kThere.id).empty());
  edge.pass(edge.options.timing.pulse_s);
  ASSERT_EQ(edge.sends.size(), before + 1) << "nothing else goes there";
  EXPECT_EQ(edge.sent<wire::Identify>(kThere.id).size(), 1U);
  edge.pass(3);
  EXPECT_EQ(edge.sends.size(), before + 1) << "once, until it is known to be lost";
  edge.handle(event::Undelivered{kThere.id});
  edge.pass(edge.options.timing.pulse_s);
  EXPECT_EQ(edge.sent<wire::Identify>(kThere.id).size(), 2U);
  edge.join(kThere);  // it holds nothing
  EXPECT_EQ(edge.leases(kThere.id).size(), 2U);
}

TEST(Connections, AStrangerIsAskedForItsHelloOnce) {
  TestEdge edge;
  edge.start();
  edge.beat("unknown");
  edge.beat("unknown");
  edge.say("unknown", wire::Results{1, {}, {}, {}});
  EXPECT_EQ(edge.sent<wire::Identify>("unknown").size(), 1U);
  EXPECT_EQ(edge.sends.size(), 1U);
  edge.handle(event::Undelivered{"unknown"});
  edge.beat("unknown");
  EXPECT_EQ(edge.sent<wire::Identify>("unknown").size(), 2U);
}

// With a thousand workers results, commits and acknowledgements are gathered, unless a query waits.
TEST(Connections, ManyWorkersAreToldLess) {
  TestEdge edge("", 50);
  edge.options.timing.results_per_s = 10;  // one worker sends ten a second
  edge.start();
  edge.join(kThere);
  EXPECT_DOUBLE_EQ(edge.sent<wire::Pulse>(kThere.id).back().gather_s, 0.1);
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(0), 1));
  const std::size_t commits = edge.batches.size();
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(1), 2));
  EXPECT_EQ(edge.batches.size(), commits) << "ends may wait for others";
  edge.pass(0.6);
  EXPECT_EQ(edge.batches.size(), commits + 1);
  EXPECT_TRUE(edge.sent<wire::Acknowledge>(kThere.id).empty() ||
              edge.sent<wire::Acknowledge>(kThere.id).back().sequence == 2U);
  edge.pass(edge.options.timing.pulse_s);
  EXPECT_EQ(edge.sent<wire::Acknowledge>(kThere.id).back().sequence, 2U) << "a pulse later at the latest";
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(2), 3));
  edge.say("client", query(wire::StatusRequest{}));
  EXPECT_EQ(edge.batches.size(), commits + 2) << "somebody waits for it";
}

// A worker with work for many seconds needs no new lease soon, so that it may send its results later.
TEST(Connections, AWorkerWithSpareLeasesGathersForLonger) {
  TestEdge edge("", 50);
  edge.options.timing.results_per_s = 10;
  edge.options.timing.patient_results_per_s = 2;
  edge.start();
  edge.join(kThere);
  EXPECT_DOUBLE_EQ(edge.sent<wire::Pulse>(kThere.id).back().gather_s, 0.1) << "it has none yet";
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.say(kThere.id, wire::Results{1, {{lease.id, lease.array, lease.first, 1, 0, 10, 100, 1}}, {}, {}});
  edge.pass(1);
  EXPECT_GE(edge.machine().scheduler().spare_s(kThere.id), 10);
  edge.beat(kThere.id);
  EXPECT_DOUBLE_EQ(edge.sent<wire::Pulse>(kThere.id).back().gather_s, 0.5);
}

// Ten thousand heartbeats a second, and as many answers, would cost more than the results do.
TEST(Connections, ManyWorkersSendFewerHeartbeats) {
  TestEdge edge("", 1);
  edge.options.timing.results_per_s = 10;
  edge.options.timing.heartbeats_per_s = 0.4;
  edge.start();
  edge.join(kThere);
  EXPECT_DOUBLE_EQ(edge.sent<wire::Welcome>(kThere.id).at(0).heartbeat_s, 2.5);
  edge.join(kOther);
  EXPECT_DOUBLE_EQ(edge.sent<wire::Welcome>(kOther.id).at(0).heartbeat_s, 3) << "no more than this";
  const std::size_t pulses = edge.sent<wire::Pulse>(kThere.id).size();
  edge.pass(2.3);
  EXPECT_EQ(edge.sent<wire::Pulse>(kThere.id).size(), pulses) << "the next heartbeat will be answered";
  edge.pass(2);
  EXPECT_GT(edge.sent<wire::Pulse>(kThere.id).size(), pulses) << "three times would be silence";
  EXPECT_TRUE(edge.looks.empty());
  edge.pass(20);
  EXPECT_FALSE(edge.looks.empty()) << "neither has said anything";
  EXPECT_TRUE(edge.reads.empty());
  edge.pass(edge.options.timing.lost_s + edge.options.timing.margin_s);
  EXPECT_EQ(edge.reads.size(), 2U) << "the fence is the same";
}

TEST(Connections, AShortFenceHasSeveralHeartbeats) {
  Timing timing;
  EXPECT_DOUBLE_EQ(timing.heartbeat_of(1), 1);
  EXPECT_DOUBLE_EQ(timing.heartbeat_of(1000), 2);
  EXPECT_DOUBLE_EQ(timing.heartbeat_of(10'000), 3);
  timing.lost_s = 9;
  EXPECT_DOUBLE_EQ(timing.heartbeat_of(10'000), 1.5);
  timing.lost_s = 3;
  EXPECT_DOUBLE_EQ(timing.heartbeat_of(10'000), 1);
}

TEST(Connections, TemplatesGoOutOncePerConnection) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.say(kThere.id, TestEdge::failure(lease, 104));
  edge.pass(2);
  EXPECT_EQ(edge.leases(kThere.id).size(), 2U);
  EXPECT_EQ(edge.sent<wire::Templates>(kThere.id).size(), 1U);
  edge.say("new", edge.hello(kThere, {edge.leases(kThere.id).back()}));
  EXPECT_EQ(edge.sent<wire::Templates>("new").size(), 1U) << "it went with the connection";
}

TEST(Connections, ALostWorkerThatComesBackJoinsAnew) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.pass(edge.options.timing.lost_s + edge.options.timing.margin_s + 2);
  edge.join(kOther);
  edge.handle(event::JournalRead{kThere.id, {}, {}});
  ASSERT_EQ(edge.leases(kOther.id).size(), 1U);
  edge.beat(kThere.id);
  EXPECT_EQ(edge.sent<wire::Identify>(kThere.id).size(), 1U);
  edge.join(kThere, {lease});
  const auto revokes = edge.sent<wire::Revoke>(kThere.id);
  ASSERT_EQ(revokes.size(), 1U) << "its task runs elsewhere";
  EXPECT_TRUE(revokes[0].kill_running);
  ASSERT_EQ(revokes[0].leases.size(), 1U);
  EXPECT_EQ(revokes[0].leases[0].id, lease.id);
  EXPECT_EQ(edge.batches.back().workers_joined.size(), 1U);
}

TEST(Connections, AWorkerThatSpeaksWhileItIsLostKeepsItsLeases) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.pass(edge.options.timing.lost_s + edge.options.timing.margin_s + 2);
  ASSERT_EQ(edge.reads.size(), 1U);
  edge.say("again", edge.hello(kThere, {lease}));
  edge.beat("again");
  edge.handle(event::JournalRead{kThere.id, {}, {}});
  EXPECT_EQ(edge.machine().scheduler().leased(), 1U);
  EXPECT_TRUE(edge.sent<wire::Revoke>("again").empty());
  EXPECT_FALSE(edge.has_history("lost:"));
}

TEST(Connections, TheSilenceOfAnEndedCampaignIsNotWaitedFor) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(0)));
  EXPECT_FALSE(edge.machine().ended());
  edge.pass(4 * edge.options.timing.heartbeat_s);
  EXPECT_TRUE(edge.machine().ended());
}

TEST(Peers, WorkersAreToldWhileADashboardLooksAtRunningTasks) {
  TestEdge edge("", 4);
  edge.start();
  edge.join(kThere);
  const auto watched = [&] {
    edge.sends.clear();
    edge.beat(kThere.id);
    return edge.sent<wire::Pulse>(kThere.id).back().watched;
  };
  EXPECT_FALSE(watched());
  edge.say("dashboard", wire::Query{wire::WatchRequest{}});
  EXPECT_FALSE(watched()) << "it did not ask for running tasks";
  edge.say("dashboard", wire::Query{wire::WatchRequest{0, 10, 10}});
  EXPECT_TRUE(watched());
  edge.pass(11);
  EXPECT_FALSE(watched());
}

TEST(Peers, CountWhatHasEndedOnAWorker) {
  TestEdge edge("", 4);
  edge.start();
  edge.join(kThere);
  EXPECT_EQ(edge.machine().peers(edge.now.steady_s).at(0).ended, 0U);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.say(kThere.id, TestEdge::success(lease, 1));
  EXPECT_EQ(edge.machine().peers(edge.now.steady_s).at(0).ended, lease.count);
}

// ---- wrong values

TEST(Checks, RefuseWorkersThatAreNone) {
  TestEdge edge;
  edge.start();
  const auto reason = [&](wire::Hello hello) {
    edge.sends.clear();
    edge.say("p", std::move(hello));
    const auto refused = edge.sent<wire::Refuse>("p");
    return refused.empty() ? std::string() : refused[0].reason;
  };
  const wire::Hello good = edge.hello(kThere);
  wire::Hello bad = good;
  bad.campaign = "another";
  EXPECT_THAT(reason(bad), HasSubstr("another campaign"));
  bad = good;
  bad.protocol = 2;
  EXPECT_THAT(reason(bad), HasSubstr("protocol 2"));
  for (const char* name : {"", "../x", ".x", "a/b", "a\xff"}) {
    bad = good;
    bad.worker = name;
    EXPECT_THAT(reason(bad), HasSubstr("name")) << name;
  }
  bad = good;
  bad.guardian.host = "\xff\xfe";
  EXPECT_THAT(reason(bad), HasSubstr("no text"));
  bad = good;
  bad.cores = 0;
  EXPECT_THAT(reason(bad), HasSubstr("core"));
  bad = good;
  bad.group = "gpus";
  EXPECT_THAT(reason(bad), HasSubstr("no worker group 'gpus'"));
  EXPECT_EQ(edge.machine().refused_messages(), 10U);
  EXPECT_EQ(reason(good), "");
}

TEST(Checks, WrongNumbersHarmNobody) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  wire::Results results = TestEdge::success(lease, 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  results.done[0].duration_sum_s = nan;
  results.done[0].duration_square_sum = -1;
  results.done[0].last_end_s = std::numeric_limits<double>::infinity();
  results.done.push_back({lease.id, 77, 0, 1, 0, 0, 0, 0});
  results.done.push_back({lease.id, 0, 0, ~0ULL, 0, 0, 0, 0});
  results.events.push_back({0, 99, 0, nan, wire::Note{"x"}});
  edge.say(kThere.id, results);
  EXPECT_EQ(edge.count(ElementState::done), 1U);
  EXPECT_EQ(edge.machine().refused_messages(), 3U);
  EXPECT_EQ(edge.sent<wire::Acknowledge>(kThere.id).back().sequence, 3U) << "else it would come for ever";
  const ArrayProgress progress = edge.machine().scheduler().progress(lease.array);
  EXPECT_EQ(progress.duration_sum_s, 0);
  EXPECT_EQ(progress.duration_square_sum, 0);
  edge.beat(kThere.id, {{0, 99, nan}, {lease.array, 0, nan}});
  ASSERT_EQ(edge.machine().peers(edge.now.steady_s)[0].running.size(), 1U);
  EXPECT_EQ(edge.machine().peers(edge.now.steady_s)[0].running[0].started_s, 0);
}

TEST(Checks, TextsOfTasksAreMendedAndCut) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  wire::Results results = TestEdge::failure(lease, 1);
  results.outcomes[0].detail = "caf\xe9";
  results.events.push_back({lease.array, 0, 0, 1, wire::Note{std::string(4000, 'x')}});
  results.events.push_back({lease.array, 0, 0, 1, wire::Note{"\xff\xff"}});
  edge.say(kThere.id, results);
  const store::Batch& batch = edge.batches.back();
  ASSERT_EQ(batch.failures.size(), 1U);
  EXPECT_EQ(batch.failures[0].outcome.detail, "caf\xef\xbf\xbd");
  EXPECT_EQ(batch.events.size(), 1U) << "the other one is no text";
  EXPECT_EQ(edge.machine().refused_messages(), 1U);
  for (const store::HistoryRow& row : edge.history) EXPECT_LE(row.text.size(), 1100U);
}

TEST(Checks, ANameIsUsedOnceOnly) {
  TestEdge edge;
  edge.start();
  edge.join(kThere);
  TestWorker impostor = kOther;
  impostor.id = kThere.id;
  edge.say("impostor", edge.hello(impostor));
  EXPECT_EQ(edge.sent<wire::Refuse>("impostor").size(), 1U);
  EXPECT_TRUE(edge.sent<wire::Welcome>("impostor").empty());
}

// ---- tasks' events

TEST(Events, NotesAndSubmissionsAreRecordedOnce) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  wire::Results results;
  results.sequence = 1;
  results.events.push_back({lease.array, 0, 0, 1, wire::Note{"half way"}});
  results.events.push_back({lease.array, 0, 0, 1, wire::Submission{"submitted", "id", "/s.yaml", "{}", ""}});
  edge.say(kThere.id, results);
  EXPECT_TRUE(edge.has_history("half way"));
  ASSERT_EQ(edge.batches.back().followups.size(), 1U);
  EXPECT_EQ(edge.batches.back().followups[0].spec, "/s.yaml");
  results.events.erase(results.events.begin());
  edge.say(kThere.id, results);
  EXPECT_TRUE(edge.batches.back().followups.empty()) << "received twice";
}

// ---- requests

// ---- what is logged at the level `trace`

TEST(Trace, HasEachEventAndEachAction) {
  TestEdge edge("", 1);
  edge.options.trace = true;
  edge.start();
  edge.join(kThere);
  const wire::Lease lease = edge.leases(kThere.id).at(0);
  edge.say(kThere.id, TestEdge::success(lease));
  const auto place = [&](const std::string& part) {
    const auto has = [&](const std::string& line) { return line.find(part) != std::string::npos; };
    return std::find_if(edge.traced.begin(), edge.traced.end(), has) - edge.traced.begin();
  };
  const std::string done = fmt::format("lease {}: 0 of array 0 done", lease.id);
  const std::string row = "action: commit: 0 ends, 0 failures, 0 floors, 1 workers joined";
  EXPECT_LT(place("event: from w-there: Hello of worker w-there"), place(row));
  EXPECT_LT(place(row), place("action: to w-there: Leases: lease"));
  EXPECT_LT(place("action: to w-there: Leases: lease"), place("event: from w-there: Results 1: " + done));
  EXPECT_LT(place("event: from w-there: Results 1: " + done),
            place("action: to w-there: Acknowledge up to 1"));
  EXPECT_LT(place("action: to w-there: Acknowledge up to 1"), std::ssize(edge.traced));
  EXPECT_LT(place("event: the commit is on disk"), std::ssize(edge.traced));
}

TEST(Trace, IsNotMadeWhereNobodyReadsIt) {
  TestEdge edge("", 1);
  edge.start();
  edge.join(kThere);
  EXPECT_TRUE(edge.traced.empty());
}

TEST(Requests, QuestionsWaitForWhatTheyMayBeAbout) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  edge.say("client", query(wire::StatusRequest{}));
  EXPECT_EQ(edge.questions.size(), 1U) << "all is on disk";
  edge.hold_commits = true;
  edge.order.clear();
  edge.handle(event::Signal{event::SignalKind::hangup});
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(0)));
  edge.say("client", query(wire::StatusRequest{}));
  EXPECT_EQ(edge.questions.size(), 1U);
  edge.finish_commit();  // the first batch, without the result
  EXPECT_EQ(edge.questions.size(), 1U);
  edge.say(kThere.id, TestEdge::success(edge.leases(kThere.id).at(1)));
  edge.finish_commit();
  EXPECT_EQ(edge.order, (std::vector<std::string>{"commit", "commit", "question", "commit"}));
}

TEST(Requests, AFloodOfQuestionsIsRefused) {
  TestEdge edge;
  edge.start();
  edge.hold_commits = true;
  edge.handle(event::Signal{event::SignalKind::hangup});
  for (int i = 0; i < 1001; ++i) edge.say("client", query(wire::StatusRequest{}));
  const auto answers = edge.sent<wire::Answer>("client");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(std::get<wire::Refusal>(answers[0].body).code, ExitCode::busy);
}

TEST(Requests, CancelCountsWhatRuns) {
  TestEdge edge("", 3);
  edge.start();
  edge.join(kThere);
  const std::uint64_t leased = edge.machine().scheduler().leased();
  ASSERT_GT(leased, 0U);
  wire::CancelRequest request;
  request.kill = true;
  edge.say("client", query(request));
  const auto answers = edge.sent<wire::Answer>("client");
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(std::get<wire::Done>(answers[0].body).count, 3U);
  EXPECT_EQ(std::get<wire::Done>(answers[0].body).running, leased);
  ASSERT_FALSE(edge.sent<wire::Revoke>(kThere.id).empty());
  EXPECT_TRUE(edge.sent<wire::Revoke>(kThere.id)[0].kill_running);
  // The machine repeats a request to kill after a broken connection.
  edge.say("new", edge.hello(kThere, edge.leases(kThere.id)));
  EXPECT_FALSE(edge.sent<wire::Revoke>("new").empty());
  for (const wire::Lease& lease : edge.leases(kThere.id)) {
    wire::Results results = TestEdge::failure(lease, 0);
    results.outcomes[0].reason = wire::EndReason::cancelled;
    edge.say("new", results);
  }
  EXPECT_EQ(edge.count(ElementState::cancelled), 3U);
  EXPECT_EQ(edge.machine().phase(), Phase::dismissing);
}

TEST(Requests, OfAStepThatIsNotThereAreRefused) {
  TestEdge edge;
  edge.start();
  wire::CancelRequest request;
  request.tasks.step = "simulat";
  edge.say("client", query(request));
  const auto answers = edge.sent<wire::Answer>("client");
  EXPECT_THAT(std::get<wire::Refusal>(answers.at(0).body).sentence, HasSubstr("did you mean 'simulate'?"));
}

TEST(Requests, RetryLooksAtTheStoreFirst) {
  TestEdge edge("", 2);
  edge.start();
  edge.join(kThere);
  edge.say(kThere.id, TestEdge::failure(edge.leases(kThere.id).at(0), 1));
  ASSERT_EQ(edge.count(ElementState::failed), 1U);
  edge.hold_commits = true;
  edge.handle(event::Signal{event::SignalKind::hangup});
  edge.say("client", query(wire::RetryRequest{}));
  EXPECT_TRUE(edge.retries.empty());
  edge.finish_commit();
  ASSERT_EQ(edge.retries.size(), 1U);
  EXPECT_EQ(edge.retries[0].peer, "client");
  edge.handle(event::Retry{"client", {{0, {0, 0}}, {1, {0, 0}}}, {}});
  EXPECT_EQ(edge.count(ElementState::failed), 0U);
  ASSERT_TRUE(edge.committing);
  EXPECT_EQ(edge.batches.back().floors.size(), 1U);
  EXPECT_TRUE(edge.sent<wire::Answer>("client").empty()) << "it is lost if the coordinator is killed now";
  edge.finish_commit();
  EXPECT_EQ(std::get<wire::Done>(edge.sent<wire::Answer>("client").at(0).body).count, 1U);
  edge.handle(event::Retry{"client", {}, "no such step"});
  EXPECT_EQ(std::get<wire::Refusal>(edge.sent<wire::Answer>("client").at(1).body).sentence, "no such step");
}

TEST(Requests, TheRetryAtTheStartComesAfterTheJournals) {
  TestEdge edge("", 1);
  edge.restored.ends = {{0, {0, 0}, ElementState::failed}};
  edge.options.retry.emplace();
  edge.known = {kThere.known()};
  edge.start();
  EXPECT_TRUE(edge.retries.empty());
  edge.join(kThere);
  ASSERT_EQ(edge.retries.size(), 1U);
  EXPECT_EQ(edge.machine().phase(), Phase::running) << "all has ended, but something will run again";
  edge.handle(event::Retry{"", {{0, {0, 0}}}, {}});
  EXPECT_EQ(edge.leases(kThere.id).size(), 1U);
}

TEST(Requests, PauseDrainAndStop) {
  TestEdge edge("", 4);
  edge.start();
  edge.say("client", query(wire::PauseRequest{true}));
  edge.join(kThere);
  EXPECT_TRUE(edge.leases(kThere.id).empty());
  edge.say("client", query(wire::PauseRequest{false}));
  const auto leases = edge.leases(kThere.id);
  ASSERT_FALSE(leases.empty());
  edge.handle(event::Signal{event::SignalKind::interrupt});
  EXPECT_EQ(edge.machine().phase(), Phase::draining);
  edge.say("client", query(wire::PauseRequest{true}));
  EXPECT_TRUE(std::holds_alternative<wire::Refusal>(edge.sent<wire::Answer>("client").back().body));
  edge.handle(event::Signal{event::SignalKind::interrupt});
  EXPECT_EQ(edge.machine().phase(), Phase::stopping);
  edge.say(kThere.id, wire::Returned{leases});
  EXPECT_EQ(edge.machine().phase(), Phase::dismissing);
  edge.say(kThere.id, wire::Goodbye{"drained"});
  edge.handle(event::JournalRead{kThere.id, {}, {}});
  EXPECT_TRUE(edge.machine().ended());
  EXPECT_FALSE(edge.machine().campaign_over());
  EXPECT_TRUE(edge.machine().asked_to_end());
}

TEST(Requests, AConnectionHearsOfADrainOnce) {
  TestEdge edge("", 4);
  edge.start();
  edge.join(kThere);
  const auto leases = edge.leases(kThere.id);
  ASSERT_FALSE(leases.empty());
  edge.handle(event::Signal{event::SignalKind::interrupt});
  EXPECT_EQ(edge.sent<wire::Drain>(kThere.id).size(), 1U);
  edge.say(kThere.id, wire::Returned{leases});
  EXPECT_EQ(edge.machine().phase(), Phase::dismissing);
  EXPECT_EQ(edge.sent<wire::Drain>(kThere.id).size(), 1U);
  edge.say(kThere.id, edge.hello(kThere));  // it may not have arrived
  EXPECT_EQ(edge.sent<wire::Drain>(kThere.id).size(), 2U);
}

TEST(Requests, ATaskMayAskForTheEnd) {
  TestEdge edge("", 4);
  edge.start();
  edge.join(kThere);
  edge.say(kThere.id, TestEdge::failure(edge.leases(kThere.id).at(0), 105));
  EXPECT_NE(edge.machine().phase(), Phase::running);
  EXPECT_TRUE(edge.machine().asked_to_end());
  EXPECT_TRUE(edge.has_history("a task asked for the end"));
}

}  // namespace
}  // namespace wflow::engine
