// SPDX-License-Identifier: Apache-2.0
// Whatever is killed: nothing finished is lost or runs twice, and nothing is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "engine/wire/worker_journal.h"
#include "steps/packed_output.h"
#include "workers/agent/fake_coordinator.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

class WorkerKillTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (campaign_.path() / name).string(); }

  // Every task writes its number when it begins and before it ends; those from `hang` on do not end.
  void begin(std::uint64_t count, std::uint64_t hang, bool packed = false) {
    worker_ =
        std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=3", "linger=60"});
    ASSERT_TRUE(coordinator_->welcome_worker());
    const std::string body = "echo $WFLOW_SAMPLE_ID >> " + path("begun") + "\n[ $WFLOW_SAMPLE_ID -lt " +
                             std::to_string(hang) + " ] || { setsid sleep 1000 & sleep 1000; }\n" +
                             "while [ -e " + path("hold") + " ]; do sleep 0.01; done\n" +
                             "echo $WFLOW_SAMPLE_ID >> " + path("ended") + "\n";
    specs::TaskTemplate task = shell_task(campaign_.path(), body, count);
    if (packed) {
      task.output = specs::OutputMode::packed;
      task.command[0].text += "echo printed by $WFLOW_SAMPLE_ID; touch left-by-$WFLOW_SAMPLE_ID\n";
    }
    coordinator_->send(wire::Templates{{task}});
    coordinator_->send(wire::Leases{{{1, 1, 0, count}}});
  }
  std::multiset<std::string> lines(const std::string& name) const {
    if (!std::filesystem::exists(path(name))) return {};
    const auto all = text::split(read_file(path(name)), '\n');
    return {all.begin(), all.end() - 1};
  }
  bool running(std::size_t count) {
    return coordinator_->until(
        [&] { return coordinator_->heartbeat && coordinator_->heartbeat->running.size() == count; });
  }
  bool none_left() {
    return coordinator_->until([&] { return processes_with("WFLOW_WORKSPACE=" + path("step")).empty(); });
  }

  // The last line is written before a shell has ended.
  bool zombies(pid_t agent, int count) {
    return coordinator_->until([&] { return zombies_of(agent) == count; });
  }

  // Reads the only journal, which says that its worker has ended.
  wire::JournalHeader header_of_ended() const {
    const auto left = wire::find_worker_journals(campaign_.path());
    EXPECT_EQ(left.size(), 1U);
    const auto header = left.empty() ? std::nullopt : left[0].records.header;
    EXPECT_TRUE(header && header->ended);
    return header.value_or(wire::JournalHeader());
  }

  wire::TemporaryCampaign campaign_;
  std::unique_ptr<FakeCoordinator> coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), 1);
  std::unique_ptr<WorkerProcess> worker_;
};

TEST_F(WorkerKillTest, AKilledAgentLeavesItsResultsAndNoProcess) {
  coordinator_->acknowledging = false;
  begin(40, 20);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 20; }));
  ASSERT_TRUE(running(3));
  ::kill(worker_->agent(), SIGKILL);
  EXPECT_EQ(worker_->wait(), 70);
  EXPECT_TRUE(none_left());
  const auto left = wire::find_worker_journals(campaign_.path());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_FALSE(left[0].alive);
  std::multiset<wire::Element> done;
  for (const auto& results : left[0].records.results) {
    EXPECT_TRUE(results.outcomes.empty());
    for (const auto& run : results.done) {
      for (std::uint64_t i = 0; i < run.count; ++i) done.insert(run.first + i);
    }
  }
  EXPECT_EQ(done.size(), 20U);
  std::set<wire::Element> ran;
  for (const auto& task : header_of_ended().running) ran.insert(task.element);
  EXPECT_EQ(ran, (std::set<wire::Element>{20, 21, 22})) << "what it ended goes to the coordinator";
  for (wire::Element element = 0; element < 20; ++element) EXPECT_EQ(done.count(element), 1U) << element;
}

// The agent is stopped, its tasks end, and it is killed before it could see that: the guardian takes their
// results.
TEST_F(WorkerKillTest, TheGuardianTakesWhatTheAgentHadNotSeen) {
  std::ofstream(path("hold")) << "";
  begin(40, 1000);
  ASSERT_TRUE(running(3));
  const pid_t agent = worker_->agent();
  ::kill(agent, SIGSTOP);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(zombies(agent, 3));
  ::kill(agent, SIGKILL);
  EXPECT_EQ(worker_->wait(), 70);
  const auto left = wire::find_worker_journals(campaign_.path());
  ASSERT_EQ(left.size(), 1U);
  std::set<std::string> done;
  for (const auto& results : left[0].records.results) {
    for (const auto& run : results.done) done.insert(std::to_string(run.first));
  }
  EXPECT_EQ(done, (std::set<std::string>{"0", "1", "2"}));
  EXPECT_TRUE(std::filesystem::exists(path("step/01/00/MERLIN_FINISHED")) ||
              std::filesystem::exists(path("step/00/00/MERLIN_FINISHED")));
}

// An agent gets SIGTERM before it has seen that tasks have ended: they are done, and it does not return them.
TEST_F(WorkerKillTest, WhatHasEndedIsNotGivenBack) {
  std::ofstream(path("hold")) << "";
  begin(40, 1000);
  ASSERT_TRUE(running(3));
  const pid_t agent = worker_->agent();
  ::kill(agent, SIGSTOP);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(zombies(agent, 3));
  ::kill(agent, SIGTERM);
  ::kill(agent, SIGCONT);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  EXPECT_EQ(coordinator_->ends.size(), lines("ended").size());
  EXPECT_GE(coordinator_->ends.size(), 3U);
  EXPECT_TRUE(coordinator_->outcomes.empty());
  std::uint64_t returned = 0;
  for (const auto& lease : coordinator_->returned) returned += lease.count;
  EXPECT_EQ(returned, 40 - coordinator_->ends.size());
}

// waitid() decides how a process ended, also if its worker had decided to end it before.
class OwnEndTest : public WorkerKillTest {
 protected:
  // Three tasks run, of which none ends before `hold` is gone.
  void begin_with(const std::string& trap) {
    std::ofstream(path("hold")) << "";
    worker_ = std::make_unique<WorkerProcess>(campaign_.path(),
                                              std::vector<std::string>{"slots=3", "linger=60", "grace=30"});
    ASSERT_TRUE(coordinator_->welcome_worker());
    const std::string body = trap + "; echo $WFLOW_SAMPLE_ID >> " + path("begun") + "; while [ -e " +
                             path("hold") + " ]; do sleep 0.01; done; echo $WFLOW_SAMPLE_ID >> " +
                             path("ended");
    coordinator_->send(wire::Templates{{shell_task(campaign_.path(), body, 40)}});
    coordinator_->send(wire::Leases{{{1, 1, 0, 40}}});
    ASSERT_TRUE(coordinator_->until([&] { return lines("begun").size() == 3; }));
  }
  // The worker returns leases that it has not begun after it has signalled the tasks.
  void let_end_when_signalled() {
    ASSERT_TRUE(coordinator_->until([&] { return returned() >= 37; }));
    std::filesystem::remove(path("hold"));
  }
  std::uint64_t returned() const {
    std::uint64_t count = 0;
    for (const auto& lease : coordinator_->returned) count += lease.count;
    return count;
  }
};

TEST_F(OwnEndTest, ATaskThatIgnoresTheSignalAndSucceedsIsDone) {
  begin_with("trap '' TERM");
  ::kill(worker_->guardian(), SIGTERM);
  let_end_when_signalled();
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  EXPECT_EQ(coordinator_->ends.size(), 3U);
  EXPECT_TRUE(coordinator_->outcomes.empty());
  EXPECT_EQ(returned(), 37U);
}

TEST_F(OwnEndTest, TheSameWhereItsCoordinatorCancelsIt) {
  begin_with("trap '' TERM");
  coordinator_->send(wire::Revoke{{}, true, true});
  let_end_when_signalled();
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 3; }));
  EXPECT_TRUE(coordinator_->outcomes.empty());
}

// The agent is killed before it could see their ends; its guardian judges by the same rule.
TEST_F(OwnEndTest, TheSameWithAGuardian) {
  begin_with("trap '' TERM");
  const pid_t agent = worker_->agent();
  ::kill(worker_->guardian(), SIGTERM);
  ASSERT_TRUE(coordinator_->until([&] { return returned() >= 37; }));
  ::kill(agent, SIGSTOP);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(
      coordinator_->until([&] { return lines("ended").size() == 3; }));  // no child of a shell is left
  ASSERT_TRUE(zombies(agent, 3));
  ::kill(agent, SIGKILL);
  worker_->wait();
  std::uint64_t done = 0;
  for (const auto& left : wire::find_worker_journals(campaign_.path())) {
    for (const auto& results : left.records.results) {
      EXPECT_TRUE(results.outcomes.empty());
      for (const auto& run : results.done) done += run.count;
    }
  }
  EXPECT_EQ(done, 3U);
}

// A process with a handler may be in the middle of its work when it exits with 0.
TEST_F(OwnEndTest, ATaskThatAnswersTheSignalWithExitCode0RunsAgain) {
  begin_with("trap 'exit 0' TERM");
  ::kill(worker_->guardian(), SIGTERM);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  EXPECT_TRUE(coordinator_->ends.empty());
  EXPECT_EQ(returned(), 40U);
}

// The agent is killed after it has read a task's last line, while it writes what the task printed: into a
// pipe here, which no process empties.
TEST_F(WorkerKillTest, NoLineOfATaskIsLostWithAnAgentThatPacks) {
  coordinator_->acknowledging = false;
  worker_ =
      std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=1", "linger=60"});
  ASSERT_TRUE(coordinator_->welcome_worker());
  const std::string log = path("step/packed/" + coordinator_->hello->worker + ".0.log");
  std::filesystem::create_directories(path("step/packed"));
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const FileDescriptor pipe = open_file(log, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  auto task = shell_task(campaign_.path(), "seq 100000; echo '{\"n\":1}' >> $WFLOW_EVENTS", 1);
  task.output = specs::OutputMode::packed;
  coordinator_->send(wire::Templates{{task}});
  coordinator_->send(wire::Leases{{{1, 1, 0, 1}}});
  ASSERT_TRUE(coordinator_->until([&] {
    int bytes = 0;
    return ::ioctl(pipe.get(), FIONREAD, &bytes) == 0 && bytes == ::fcntl(pipe.get(), F_GETPIPE_SZ);
  }));
  std::filesystem::remove(log);
  ::kill(worker_->agent(), SIGKILL);
  EXPECT_EQ(worker_->wait(), 70);
  std::size_t events = 0;
  std::uint64_t done = 0;
  for (const auto& left : wire::find_worker_journals(campaign_.path())) {
    for (const auto& results : left.records.results) {
      events += results.events.size();
      for (const auto& run : results.done) done += run.count;
    }
  }
  EXPECT_EQ(events, 1U);
  EXPECT_EQ(done, 1U);
  EXPECT_EQ(steps::packed_out(steps::find_packed(path("step/packed"), 0).at(0)).size(), 588895U);
}

TEST_F(WorkerKillTest, AGuardianPacksNothingWhereNothingWasPrinted) {
  std::ofstream(path("hold")) << "";
  worker_ =
      std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=1", "linger=60"});
  ASSERT_TRUE(coordinator_->welcome_worker());
  auto task = shell_task(campaign_.path(), "while [ -e " + path("hold") + " ]; do sleep 0.01; done", 1);
  task.output = specs::OutputMode::packed;
  coordinator_->send(wire::Templates{{task}});
  coordinator_->send(wire::Leases{{{1, 1, 0, 1}}});
  ASSERT_TRUE(running(1));
  const pid_t agent = worker_->agent();
  ::kill(agent, SIGSTOP);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(zombies(agent, 1));
  ::kill(agent, SIGKILL);
  EXPECT_EQ(worker_->wait(), 70);
  ASSERT_EQ(wire::find_worker_journals(campaign_.path()).size(), 1U);
  EXPECT_EQ(wire::find_worker_journals(campaign_.path())[0].records.results.size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(path("step/packed")));
}

// Killed at many different moments of a busy worker: what ended is reported or in the journal, exactly once.
TEST_F(WorkerKillTest, NothingFinishedIsLostWheneverTheAgentDies) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    std::filesystem::remove(path("begun"));
    std::filesystem::remove(path("ended"));
    coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), round + 1);
    begin(2000, 5000);
    ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() >= 5 + 13 * round; }));
    ::kill(worker_->agent(), SIGKILL);
    EXPECT_EQ(worker_->wait(), 70);
    auto ends = coordinator_->ends;
    coordinator_->until([end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100)] {
      return std::chrono::steady_clock::now() > end;  // while messages were left in the socket
    });
    ends = coordinator_->ends;
    for (const auto& left : wire::find_worker_journals(campaign_.path())) {
      for (const auto& results : left.records.results) {
        EXPECT_TRUE(results.outcomes.empty());
        for (const auto& run : results.done) {
          for (std::uint64_t i = 0; i < run.count; ++i) ends[{run.array, run.first + i}] |= 0x100;
        }
      }
      std::filesystem::remove(left.journal);
    }
    // Every line in `ended` but those of tasks that were killed between their echo and their end (at most one
    // a slot).
    std::size_t unknown = 0;
    for (const std::string& line : lines("ended")) unknown += ends.count({1, std::stoull(line)}) == 0 ? 1 : 0;
    EXPECT_LE(unknown, 3U);
    for (const auto& [element, times] : ends) EXPECT_LE(times & 0xff, 1) << element.second;
  }
}

// For every task that counts as done, output and files are in place, whichever process took its
// result.
TEST_F(WorkerKillTest, PackedOutputIsWholeWheneverTheAgentDies) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    std::filesystem::remove_all(path("step"));
    std::filesystem::remove(path("ended"));
    coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), round + 1);
    begin(500, 1000, true);
    ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() >= 4 + 9 * round; }));
    ::kill(worker_->agent(), SIGKILL);
    EXPECT_EQ(worker_->wait(), 70);
    std::set<wire::Element> done;
    for (const auto& [element, times] : coordinator_->ends) done.insert(element.second);
    for (const auto& left : wire::find_worker_journals(campaign_.path())) {
      for (const auto& results : left.records.results) {
        EXPECT_TRUE(results.outcomes.empty());
        for (const auto& run : results.done) {
          for (std::uint64_t i = 0; i < run.count; ++i) done.insert(run.first + i);
        }
      }
      std::filesystem::remove(left.journal);
    }
    for (const wire::Element element : done) {
      const auto found = steps::find_packed(steps::packed_directory(path("step")), element);
      ASSERT_EQ(found.size(), 1U) << element;
      EXPECT_EQ(steps::packed_out(found[0]), "printed by " + std::to_string(element) + "\n");
      const std::string place = path("step/" + specs::sample_path(element, 500, 25));
      EXPECT_TRUE(std::filesystem::exists(place + "/left-by-" + std::to_string(element))) << place;
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place), {}), 1) << place;
    }
  }
}

// Bundles of seven, of which each process reports two as failed: what the agent or its guardian has recorded
// of a process is all of it or nothing, once, and as the process has said.
TEST_F(WorkerKillTest, BundlesAreRecordedWholeWheneverTheAgentDies) {
  constexpr std::uint64_t kSamples = 2100;
  for (std::uint64_t round = 0; round < 8; ++round) {
    std::filesystem::remove(path("ended"));
    coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), round + 1);
    coordinator_->samples = counting_design(kSamples);
    worker_ =
        std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=3", "linger=60"});
    ASSERT_TRUE(coordinator_->welcome_worker());
    auto task = shell_task(campaign_.path(),
                           R"(echo '{"type":"sample_failed","sample":'$((WFLOW_FIRST + 2))'}' >> $WFLOW_EVENTS
echo '{"type":"sample_failed","sample":'$((WFLOW_FIRST + 6))',"error":"last"}' >> $WFLOW_EVENTS
echo $WFLOW_FIRST >> )" + path("ended"),
                           kSamples);
    task.bundle = 7;
    coordinator_->send(wire::Templates{{task}});
    coordinator_->send(wire::Leases{{{1, 1, 0, kSamples}}});
    ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() >= 7 + 49 * round; }));
    ::kill(worker_->agent(), SIGKILL);
    EXPECT_EQ(worker_->wait(), 70);
    coordinator_->until([end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100)] {
      return std::chrono::steady_clock::now() > end;  // while messages were left in the socket
    });
    std::map<wire::Element, int> done;
    std::map<wire::Element, int> failed;
    const auto known = coordinator_->ends;
    for (const auto& [element, times] : known) {
      EXPECT_EQ(times, 1) << element.second;
      done[element.second] = 1;
    }
    for (const auto& outcome : coordinator_->outcomes) {
      done.erase(outcome.element);
      failed[outcome.element] = 1;
    }
    for (const auto& left : wire::find_worker_journals(campaign_.path())) {
      for (const auto& results : left.records.results) {
        for (const auto& run : results.done) {
          for (std::uint64_t i = 0; i < run.count; ++i) done[run.first + i] = 1;
        }
        for (const auto& outcome : results.outcomes) failed[outcome.element] = 1;
      }
      std::filesystem::remove(left.journal);
    }
    std::set<wire::Element> bundles;
    for (const auto& [element, times] : done) bundles.insert(element / 7);
    for (const auto& [element, times] : failed) bundles.insert(element / 7);
    for (const wire::Element bundle : bundles) {
      for (wire::Element element = bundle * 7; element < bundle * 7 + 7; ++element) {
        const bool bad = element % 7 == 2 || element % 7 == 6;
        EXPECT_EQ(failed.count(element), bad ? 1U : 0U) << element;
        EXPECT_EQ(done.count(element), bad ? 0U : 1U) << element;
      }
    }
    // Processes that had said so and were killed before they ended: at most one a slot.
    std::size_t unknown = 0;
    for (const std::string& line : lines("ended")) unknown += bundles.contains(std::stoull(line) / 7) ? 0 : 1;
    EXPECT_LE(unknown, 3U);
  }
}

// A task's outputs are looked at before it counts as done, whoever dies in between.
TEST_F(WorkerKillTest, NothingIsDoneBeforeItsOutputsWereLookedAt) {
  for (std::uint64_t round = 0; round < 4; ++round) {
    coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), round + 1);
    worker_ =
        std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=3", "linger=60"});
    ASSERT_TRUE(coordinator_->welcome_worker());
    // Odd ones leave nothing.
    auto task = shell_task(campaign_.path(), "[ $((WFLOW_SAMPLE_ID % 2)) = 1 ] || echo > out", 2000);
    task.outputs = {{{{specs::Piece::Kind::literal, "out", 0}}, "", {}, false}};
    coordinator_->send(wire::Templates{{task}});
    coordinator_->send(wire::Leases{{{1, 1, 0, 2000}}});
    ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() >= 5 + 13 * round; }));
    ::kill(worker_->agent(), SIGKILL);
    EXPECT_EQ(worker_->wait(), 70);
    for (const auto& outcome : coordinator_->outcomes) EXPECT_EQ(outcome.element % 2, 1U);
    for (const auto& left : wire::find_worker_journals(campaign_.path())) {
      for (const auto& results : left.records.results) {
        for (const auto& run : results.done) {
          for (std::uint64_t i = 0; i < run.count; ++i) EXPECT_EQ((run.first + i) % 2, 0U);
        }
        for (const auto& outcome : results.outcomes) EXPECT_EQ(outcome.element % 2, 1U);
      }
      std::filesystem::remove(left.journal);
    }
    std::filesystem::remove_all(path("step"));
  }
}

TEST_F(WorkerKillTest, AKilledGuardianTakesEverythingAlong) {
  begin(40, 0);
  ASSERT_TRUE(running(3));
  const pid_t agent = worker_->agent();
  ::kill(worker_->guardian(), SIGKILL);
  EXPECT_EQ(worker_->wait(), 128 + SIGKILL);
  EXPECT_TRUE(none_left());
  EXPECT_TRUE(coordinator_->until([&] { return ::kill(agent, 0) != 0; }));
}

TEST_F(WorkerKillTest, TheTasksLeadersDieWithGuardianAndAgentKilledAtOnce) {
  begin(40, 0);
  ASSERT_TRUE(running(3));
  const pid_t agent = worker_->agent();
  ::kill(worker_->guardian(), SIGSTOP);
  ::kill(agent, SIGSTOP);
  const auto leaders = coordinator_->heartbeat->running.size();
  EXPECT_EQ(leaders, 3U);
  ::kill(worker_->guardian(), SIGKILL);
  ::kill(agent, SIGKILL);
  EXPECT_EQ(worker_->wait(), 128 + SIGKILL);
  EXPECT_TRUE(coordinator_->until([&] { return processes_with(path("step/step.sh")).empty(); }));
  // Without guardian and agent, no process is left to end the children of the leaders.
  for (const pid_t pid : processes_with("WFLOW_WORKSPACE=" + path("step"))) ::kill(pid, SIGKILL);
}

TEST_F(WorkerKillTest, ATermSignalReturnsEverything) {
  begin(40, 0);
  ASSERT_TRUE(running(3));
  ::kill(worker_->guardian(), SIGTERM);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  EXPECT_TRUE(none_left());
  std::uint64_t returned = 0;
  for (const auto& lease : coordinator_->returned) returned += lease.count;
  EXPECT_EQ(returned, 40U);
  EXPECT_TRUE(coordinator_->ends.empty());
}

TEST_F(WorkerKillTest, ANewCoordinatorGetsEverythingOnce) {
  std::ofstream(path("hold")) << "";
  coordinator_->acknowledging = false;
  begin(12, 1000);
  ASSERT_TRUE(running(3));
  coordinator_.reset();  // its sockets close as those of a killed one do
  std::filesystem::remove(path("hold"));
  // The worker goes on alone: all tasks end without a coordinator.
  const auto end = std::chrono::steady_clock::now() + FakeCoordinator::kDeadline;
  while (lines("ended").size() < 12) ASSERT_LT(std::chrono::steady_clock::now(), end);
  std::ofstream(path("hold")) << "";
  coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), 2);
  ASSERT_TRUE(coordinator_->welcome_worker());
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 12; }));
  for (const auto& [element, times] : coordinator_->ends) EXPECT_EQ(times, 1) << element.second;
  EXPECT_EQ(lines("begun").size(), 12U);
  coordinator_->send(wire::Drain{});
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
}

TEST_F(WorkerKillTest, HeldLeasesAreNamedToANewCoordinator) {
  std::ofstream(path("hold")) << "";
  begin(12, 1000);
  ASSERT_TRUE(running(3));
  coordinator_ = std::make_unique<FakeCoordinator>(campaign_.path(), 2);
  ASSERT_TRUE(coordinator_->welcome_worker());
  std::set<wire::Element> held;
  for (const auto& lease : coordinator_->hello->held) {
    EXPECT_EQ(lease.id, 1U);
    for (std::uint64_t i = 0; i < lease.count; ++i) EXPECT_TRUE(held.insert(lease.first + i).second);
  }
  EXPECT_EQ(held.size(), 12U);
  std::filesystem::remove(path("hold"));
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 12; }));
  EXPECT_EQ(lines("begun").size(), 12U);
}

TEST_F(WorkerKillTest, ALonelyWorkerEndsAndLeavesItsJournal) {
  worker_ =
      std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=1", "linger=0.5"});
  ASSERT_TRUE(coordinator_->welcome_worker());
  coordinator_->acknowledging = false;
  coordinator_->send(wire::Templates{{shell_task(campaign_.path(), "true", 5)}});
  coordinator_->send(wire::Leases{{{1, 1, 0, 5}}});
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 5; }));
  coordinator_.reset();
  EXPECT_EQ(worker_->wait(), 5);
  const auto left = wire::find_worker_journals(campaign_.path());
  ASSERT_EQ(left.size(), 1U);
  std::uint64_t done = 0;
  for (const auto& results : left[0].records.results) done += results.done.size();
  EXPECT_EQ(done, 5U);
  ASSERT_TRUE(left[0].records.header);
  EXPECT_TRUE(left[0].records.header->ended) << "nobody needs to wait for its fence";
  EXPECT_TRUE(left[0].records.header->guardian.known());
}

TEST_F(WorkerKillTest, TheEndIsSaidByTheGuardianOfAKilledAgent) {
  begin(40, 20);
  ASSERT_TRUE(running(3));
  ::kill(worker_->agent(), SIGKILL);
  EXPECT_EQ(worker_->wait(), 70);
  EXPECT_GT(header_of_ended().lost_s, 0) << "as its agent has written it";
}

TEST_F(WorkerKillTest, ASignalledWorkerWithoutACoordinatorSaysItsEnd) {
  begin(3, 1000);
  ASSERT_TRUE(coordinator_->until([&] { return coordinator_->ends.size() == 3; }));
  coordinator_.reset();
  ::kill(worker_->guardian(), SIGTERM);
  EXPECT_EQ(worker_->wait(), 0);
  header_of_ended();
}

}  // namespace
}  // namespace wflow::workers
