// SPDX-License-Identifier: Apache-2.0
// The worker as the coordinator sees it, with real processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/wire/worker_journal.h"
#include "steps/packed_output.h"
#include "workers/agent/fake_coordinator.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

class WorkerTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name) const { return campaign_.path() / name; }
  std::string path(const std::string& name) const { return file(name).string(); }

  void begin(const std::string& body, std::uint64_t count,
             const std::vector<std::string>& options = {"slots=2"}) {
    worker_ = std::make_unique<WorkerProcess>(campaign_.path(), options);
    ASSERT_TRUE(coordinator_.welcome_worker());
    task_ = shell_task(campaign_.path(), body, count);
    coordinator_.send(wire::Templates{{task_}});
  }
  void lease(wire::Element first, std::uint64_t count, std::int32_t priority = 0) {
    coordinator_.send(wire::Leases{{{++lease_, 1, first, count, 0, false, priority}}});
  }
  bool ended(std::size_t count) {
    return coordinator_.until([&] { return coordinator_.ends.size() >= count; });
  }
  void expect_each_once() {
    for (const auto& [element, times] : coordinator_.ends)
      EXPECT_EQ(times, 1) << "element " << element.second;
  }

  wire::TemporaryCampaign campaign_;
  FakeCoordinator coordinator_{campaign_.path(), 1};
  std::unique_ptr<WorkerProcess> worker_;
  specs::TaskTemplate task_;
  wire::LeaseId lease_ = 0;
};

TEST_F(WorkerTest, RunsElements) {
  begin("echo out $WFLOW_TASK; echo err >&2", 200);
  EXPECT_EQ(coordinator_.hello->protocol, wire::kProtocol);
  EXPECT_EQ(coordinator_.hello->guardian, identify(worker_->guardian()));
  EXPECT_EQ(coordinator_.hello->agent, identify(worker_->agent()));
  EXPECT_EQ(coordinator_.hello->cores, 2);
  lease(0, 150);
  lease(150, 50);
  ASSERT_TRUE(ended(200));
  expect_each_once();
  EXPECT_TRUE(coordinator_.outcomes.empty());
  EXPECT_LT(coordinator_.batches, 150U);
  EXPECT_EQ(read_file(file("step/07/24/step.out").parent_path().parent_path() / "24/step.out"),
            "out step/199\n");
  EXPECT_EQ(read_file(file("step/00/00/step.err")), "err\n");
  EXPECT_TRUE(std::filesystem::exists(file("step/03/11/MERLIN_FINISHED")));
  coordinator_.send(wire::Drain{});
  EXPECT_TRUE(coordinator_.until([&] { return coordinator_.goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  // It leaves neither journal nor event files.
  EXPECT_TRUE(std::filesystem::is_empty(file(".wflow/workers")));
}

TEST_F(WorkerTest, ReportsFailures) {
  begin(
      "case $WFLOW_SAMPLE_ID in 1) echo what went wrong >&2; exit 7;; 2) kill -9 $$;; 3) echo only out; exit "
      "1;; esac",
      5);
  lease(0, 5);
  ASSERT_TRUE(ended(5));
  ASSERT_EQ(coordinator_.outcomes.size(), 3U);
  std::sort(coordinator_.outcomes.begin(), coordinator_.outcomes.end(),
            [](const auto& a, const auto& b) { return a.element < b.element; });
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::exited);
  EXPECT_EQ(coordinator_.outcomes[0].exit_code, 7);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "what went wrong\n");
  EXPECT_EQ(coordinator_.outcomes[1].reason, wire::EndReason::signalled);
  EXPECT_EQ(coordinator_.outcomes[1].exit_code, 9);
  EXPECT_EQ(coordinator_.outcomes[2].detail, "only out\n");
  EXPECT_FALSE(std::filesystem::exists(file("step/01/MERLIN_FINISHED")));
  EXPECT_TRUE(std::filesystem::exists(file("step/00/MERLIN_FINISHED")));
}

TEST_F(WorkerTest, ReportsWhatCannotBeStarted) {
  begin("true", 2);
  specs::TaskTemplate no_shell = task_;
  no_shell.array = 2;
  no_shell.shell = "/nonexistent/shell";
  specs::TaskTemplate no_place = task_;
  no_place.array = 3;
  no_place.workspace = "/proc/nowhere";
  specs::TaskTemplate no_gpu = task_;
  no_gpu.array = 4;
  no_gpu.resources.gpus = 1;
  coordinator_.send(wire::Templates{{no_shell, no_place, no_gpu}});
  coordinator_.send(wire::Leases{{{1, 2, 0, 1}, {2, 3, 0, 1}, {3, 4, 0, 1}, {4, 99, 0, 1}}});
  ASSERT_TRUE(ended(4));
  ASSERT_EQ(coordinator_.outcomes.size(), 4U);
  for (const auto& outcome : coordinator_.outcomes) EXPECT_EQ(outcome.reason, wire::EndReason::not_started);
  EXPECT_NE(coordinator_.outcomes[0].detail.find("/nonexistent/shell"), std::string::npos);
  EXPECT_NE(coordinator_.outcomes[1].detail.find("/proc/nowhere"), std::string::npos);
  EXPECT_NE(coordinator_.outcomes[2].detail.find("GPU"), std::string::npos);
  lease(0, 2);
  EXPECT_TRUE(ended(6));
}

TEST_F(WorkerTest, GivesTasksTheirEnvironment) {
  begin("echo $WFLOW_TASK $WFLOW_ATTEMPT $OMP_NUM_THREADS $CUDA_VISIBLE_DEVICES $WFLOW_WORKSPACE > result", 3,
        {"slots=2", "cores=4", "gpus=2"});
  task_.resources.cores = 2;
  task_.resources.gpus = 1;
  coordinator_.send(wire::Templates{{task_}});
  coordinator_.send(wire::Leases{{{1, 1, 2, 1, 4}}});
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(read_file(file("step/02/result")), "step/2 4 2 0 " + path("step") + "\n");
}

TEST_F(WorkerTest, KillsTheWholeTreeAtATimeOut) {
  // A child in the task's group, and one that has left it.
  begin("sleep 1000 & setsid sleep 1000 & echo here; trap '' TERM; while :; do sleep 1000; done", 1);
  task_.timeout_s = 0.5;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 1);
  ASSERT_TRUE(ended(1));
  ASSERT_EQ(coordinator_.outcomes.size(), 1U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::timed_out);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "here\n");
  EXPECT_TRUE(coordinator_.until([&] { return processes_with("WFLOW_WORKSPACE=" + path("step")).empty(); }));
}

// A process that has left the group and whose parents have ended is found by its environment.
TEST_F(WorkerTest, KillsDaemonsToo) {
  begin("(setsid sh -c 'sleep 1000 & echo started >> " + path("started") +
            "') & wait; while :; do sleep 1000; done",
        1);
  lease(0, 1);
  ASSERT_TRUE(coordinator_.until([&] { return std::filesystem::exists(file("started")); }));
  coordinator_.send(wire::Templates{{task_}});  // as a new coordinator does
  coordinator_.send(wire::Revoke{{}, true, true});
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(coordinator_.outcomes.at(0).reason, wire::EndReason::cancelled);
  EXPECT_TRUE(coordinator_.until([&] { return processes_with("WFLOW_WORKSPACE=" + path("step")).empty(); }));
  EXPECT_FALSE(coordinator_.goodbye.has_value());
}

TEST_F(WorkerTest, PinsTasksToProcessors) {
  begin("grep Cpus_allowed_list /proc/self/status > cpus", 1, {"slots=1", "pin=1"});
  lease(0, 1);
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(read_file(file("step/cpus")).find_first_of(",-", 18), std::string::npos)
      << read_file(file("step/cpus"));
}

TEST_F(WorkerTest, SharesItsMemory) {
  begin("mkdir " + path("alone") + " && rmdir " + path("alone"), 20, {"slots=3", "memory=1000"});
  task_.resources.memory_bytes = 501;
  coordinator_.send(wire::Templates{{task_}});
  EXPECT_EQ(coordinator_.hello->memory_bytes, 1000);
  lease(0, 20);
  ASSERT_TRUE(ended(20));
  EXPECT_TRUE(coordinator_.outcomes.empty());
}

TEST_F(WorkerTest, ForwardsEvents) {
  begin("echo '{\"n\":1}' >> $WFLOW_EVENTS; while [ ! -e " + path("go") +
            " ]; do sleep 0.01; done; echo '{\"n\":2}' >> $WFLOW_EVENTS; printf '{\"n\":3}' >> $WFLOW_EVENTS",
        2);
  lease(0, 1);
  // The first line comes while the task runs.
  ASSERT_TRUE(coordinator_.until([&] { return !coordinator_.events.empty(); }));
  EXPECT_TRUE(coordinator_.ends.empty());
  std::ofstream(file("go")) << "";
  ASSERT_TRUE(ended(1));
  ASSERT_EQ(coordinator_.events.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(json_of(coordinator_.events[static_cast<std::size_t>(i)].body),
              "{\"n\":" + std::to_string(i + 1) + "}");
  }
  // The next task of the slot begins with an empty file.
  lease(1, 1);
  ASSERT_TRUE(ended(2));
  EXPECT_EQ(coordinator_.events.size(), 6U);
}

// ---- output: packed

std::string packed(const std::string& workspace, wire::Element element) {
  std::string text;
  for (const auto& found : steps::find_packed(steps::packed_directory(workspace), element)) {
    text += "[" + steps::packed_out(found) + "|" + steps::packed_err(found) + "]";
  }
  return text;
}

TEST_F(WorkerTest, PacksWhatTasksPrint) {
  begin("", 60, {"slots=3"});
  task_.output = specs::OutputMode::packed;
  task_.shell = "/bin/bash";
  task_.command = {
      {specs::Piece::Kind::literal, "[ ", 0},
      {specs::Piece::Kind::sample_id, "", 0},
      {specs::Piece::Kind::literal,
       " -ge 30 ] || exit 0; echo out $WFLOW_SAMPLE_ID; echo err >&2; [ $WFLOW_SAMPLE_ID != 40 ] || exit 3",
       0}};
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 60);
  ASSERT_TRUE(ended(60));
  expect_each_once();
  ASSERT_EQ(coordinator_.outcomes.size(), 1U);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "err\n");
  for (wire::Element element = 0; element < 60; ++element) {
    EXPECT_EQ(packed(path("step"), element),
              element < 30 ? "" : "[out " + std::to_string(element) + "\n|err\n]");
  }
  // No directory a sample, no script.
  for (const auto& entry : std::filesystem::directory_iterator(file("step"))) {
    EXPECT_EQ(entry.path().filename(), "packed");
  }
}

TEST_F(WorkerTest, StartsPlainCommandsWithoutAShell) {
  begin("env", 4);
  task_.shell = "/bin/bash";
  task_.output = specs::OutputMode::packed;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 4);
  ASSERT_TRUE(ended(4));
  EXPECT_TRUE(coordinator_.outcomes.empty());
  const std::string text = packed(path("step"), 2);
  EXPECT_NE(text.find("\nWFLOW_TASK=step/2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nPWD=" + path(".wflow/workers")), std::string::npos) << text;
  EXPECT_EQ(text.find("\n_="), std::string::npos) << "a shell was started";
}

// The shell says what is wrong with a program that cannot be started, with its own exit codes.
TEST_F(WorkerTest, LetsTheShellExplainWhatCannotBeStarted) {
  begin("./missing -x", 3);
  specs::TaskTemplate text = task_;
  text.array = 2;
  text.command[0].text = path("text");
  std::ofstream(file("text")) << "exit 5\n";
  ::chmod(path("text").c_str(), 0755);
  coordinator_.send(wire::Templates{{text}});
  coordinator_.send(wire::Leases{{{1, 1, 0, 1}, {2, 2, 0, 1}}});
  ASSERT_TRUE(ended(2));
  std::sort(coordinator_.outcomes.begin(), coordinator_.outcomes.end(),
            [](const auto& a, const auto& b) { return a.array < b.array; });
  EXPECT_EQ(coordinator_.outcomes.at(0).reason, wire::EndReason::exited);
  EXPECT_EQ(coordinator_.outcomes.at(0).exit_code, 127);
  EXPECT_NE(coordinator_.outcomes.at(0).detail.find("missing"), std::string::npos);
  EXPECT_EQ(coordinator_.outcomes.at(1).exit_code, 5);  // no "#!": the shell runs it itself
}

TEST_F(WorkerTest, GivesAPackedTaskADirectoryWhereItLeavesFiles) {
  begin(
      "[ $WFLOW_SAMPLE_ID = 1 ] || { echo $WFLOW_ATTEMPT >> result; mkdir -p sub; touch sub/$WFLOW_ATTEMPT; "
      "}",
      3, {"slots=1"});
  task_.output = specs::OutputMode::packed;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 3);
  ASSERT_TRUE(ended(3));
  EXPECT_EQ(read_file(file("step/00/result")), "0\n");
  EXPECT_EQ(read_file(file("step/02/result")), "0\n");
  EXPECT_FALSE(std::filesystem::exists(file("step/01")));
  // Again: in what the first execution left.
  coordinator_.ends.clear();
  coordinator_.send(wire::Leases{{{9, 1, 2, 1, 1}}});
  ASSERT_TRUE(ended(1));
  EXPECT_EQ(read_file(file("step/02/result")), "0\n1\n");
  EXPECT_TRUE(std::filesystem::exists(file("step/02/sub/1")));
}

TEST_F(WorkerTest, FailsAPackedTaskWhoseFilesCannotBeKept) {
  begin("touch result", 2);
  task_.output = specs::OutputMode::packed;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 1);
  ASSERT_TRUE(ended(1));
  EXPECT_TRUE(coordinator_.outcomes.empty());
  std::filesystem::remove_all(file("step"));
  std::ofstream(file("step")) << "in the way";
  lease(1, 1);
  ASSERT_TRUE(ended(2));
  ASSERT_EQ(coordinator_.outcomes.size(), 1U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::bad_output);
  EXPECT_NE(coordinator_.outcomes[0].detail.find(path("step")), std::string::npos)
      << coordinator_.outcomes[0].detail;
}

TEST_F(WorkerTest, GivesBackWhatHasNotStarted) {
  begin("while [ ! -e " + path("go") + " ]; do sleep 0.01; done", 100);
  lease(0, 50);
  lease(50, 50);
  ASSERT_TRUE(coordinator_.until(
      [&] { return coordinator_.heartbeat && coordinator_.heartbeat->running.size() == 2; }));
  coordinator_.send(wire::Revoke{{{2, 1, 50, 50}}, false, false});
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.returned_messages == 1; }));
  ASSERT_EQ(coordinator_.returned.size(), 1U);
  EXPECT_EQ(coordinator_.returned[0].first, 50U);
  EXPECT_EQ(coordinator_.returned[0].count, 50U);
  coordinator_.send(wire::Drain{});
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.returned_messages == 2; }));
  EXPECT_EQ(coordinator_.returned[1].first, 2U);
  EXPECT_EQ(coordinator_.returned[1].count, 48U);
  EXPECT_TRUE(coordinator_.ends.empty());
  std::ofstream(file("go")) << "";
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.goodbye.has_value(); }));
  EXPECT_EQ(coordinator_.ends.size(), 2U);
  EXPECT_EQ(worker_->wait(), 0);
}

TEST_F(WorkerTest, KillsWhatIsRevokedByForce) {
  begin("sleep 1000", 10);
  lease(0, 10);
  ASSERT_TRUE(coordinator_.until(
      [&] { return coordinator_.heartbeat && coordinator_.heartbeat->running.size() == 2; }));
  coordinator_.send(wire::Revoke{{}, true, true});
  ASSERT_TRUE(ended(2));
  ASSERT_EQ(coordinator_.outcomes.size(), 2U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::cancelled);
  ASSERT_EQ(coordinator_.returned.size(), 1U);
  EXPECT_EQ(coordinator_.returned[0].count, 8U);
}

TEST_F(WorkerTest, StartsHigherPrioritiesFirst) {
  begin("echo $WFLOW_SAMPLE_ID >> " + path("order") + "; while [ ! -e " + path("go") +
            " ]; do sleep 0.01; done",
        10, {"slots=1"});
  lease(0, 1);
  ASSERT_TRUE(coordinator_.until(
      [&] { return coordinator_.heartbeat && coordinator_.heartbeat->running.size() == 1; }));
  lease(1, 2);
  lease(3, 2, 5);
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.heartbeat->queued == 4; }));
  std::ofstream(file("go")) << "";
  ASSERT_TRUE(ended(5));
  EXPECT_EQ(read_file(file("order")), "0\n3\n4\n1\n2\n");
}

class BundleTest : public WorkerTest {
 protected:
  // Bundles of ten; every process says which rows it has got.
  void begin_bundles(const std::string& body, std::uint64_t count,
                     const std::vector<std::string>& options = {"slots=2"}) {
    coordinator_.samples = counting_design(count);
    begin("echo $WFLOW_FIRST $WFLOW_COUNT >> " + path("processes") + "\n" + body, count, options);
    task_.bundle = 10;
    coordinator_.send(wire::Templates{{task_}});
  }
  std::vector<std::string> processes() const {
    auto all = text::split(read_file(file("processes")), '\n');
    all.pop_back();
    std::sort(all.begin(), all.end());
    return all;
  }
  void sort_outcomes() {
    std::sort(coordinator_.outcomes.begin(), coordinator_.outcomes.end(),
              [](const auto& a, const auto& b) { return a.element < b.element; });
  }
};

TEST_F(BundleTest, OneProcessGetsTheSamplesOfABundle) {
  begin_bundles("cp $WFLOW_SAMPLES_FILE rows", 25);
  lease(0, 25);
  ASSERT_TRUE(ended(25));
  expect_each_once();
  EXPECT_TRUE(coordinator_.outcomes.empty());
  EXPECT_EQ(processes(), (std::vector<std::string>{"0 10", "10 10", "20 5"}));
  EXPECT_EQ(read_file(file("step/02/rows")), "MERLIN_SAMPLE_ID,x\n20,20\n21,21\n22,22\n23,23\n24,24\n");
  EXPECT_TRUE(std::filesystem::exists(file("step/00/MERLIN_FINISHED")));
}

TEST_F(BundleTest, ALeaseMayBeginAndEndInsideABundle) {
  begin_bundles("", 30);
  lease(4, 11);
  ASSERT_TRUE(ended(11));
  lease(17, 1);
  ASSERT_TRUE(ended(12));
  expect_each_once();
  EXPECT_EQ(processes(), (std::vector<std::string>{"10 5", "17 1", "4 6"}));
  EXPECT_TRUE(std::filesystem::exists(file("step/01/samples-17-1.csv")));
}

TEST_F(BundleTest, SingleSamplesFailInAProcessThatEndsWell) {
  begin_bundles(R"(echo '{"type":"sample_failed","sample":3,"error":"no root in cell 7"}' >> $WFLOW_EVENTS
echo '{"type":"progress","done":5,"total":10}' >> $WFLOW_EVENTS)",
                10);
  lease(0, 10);
  ASSERT_TRUE(ended(10));
  expect_each_once();
  ASSERT_EQ(coordinator_.outcomes.size(), 1U);
  EXPECT_EQ(coordinator_.outcomes[0].element, 3U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::exited);
  EXPECT_EQ(coordinator_.outcomes[0].exit_code, 1);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "no root in cell 7");
  // Reports on samples are results, not events.
  ASSERT_EQ(coordinator_.events.size(), 1U);
  EXPECT_EQ(type_of(coordinator_.events[0].body), "progress");
}

TEST_F(BundleTest, AProcessThatFailsTakesAlongWhatItHasNotReported) {
  begin_bundles(R"(for n in 0 1 2; do echo '{"type":"sample_done","sample":'$n'}' >> $WFLOW_EVENTS; done
echo '{"type":"sample_failed","sample":4,"error":"gone","exit_code":104}' >> $WFLOW_EVENTS
echo what went wrong >&2; exit 7)",
                10);
  lease(0, 10);
  ASSERT_TRUE(ended(10));
  expect_each_once();
  sort_outcomes();
  ASSERT_EQ(coordinator_.outcomes.size(), 7U);
  EXPECT_EQ(coordinator_.outcomes[0].element, 3U);
  EXPECT_EQ(coordinator_.outcomes[0].exit_code, 7);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "what went wrong\n");
  EXPECT_EQ(coordinator_.outcomes[1].element, 4U);
  EXPECT_EQ(coordinator_.outcomes[1].exit_code, 104);
  EXPECT_EQ(coordinator_.outcomes[2].exit_code, 7);
  EXPECT_NE(coordinator_.outcomes[2].detail.find("sample 3"), std::string::npos);
}

TEST_F(BundleTest, KillsTheDaemonsOfAProcess) {
  begin_bundles("(setsid sh -c 'sleep 1000 & echo started >> " + path("started") +
                    "') & wait; while :; do sleep 1000; done",
                10);
  lease(0, 10);
  ASSERT_TRUE(coordinator_.until([&] { return std::filesystem::exists(file("started")); }));
  coordinator_.send(wire::Revoke{{}, true, true});
  ASSERT_TRUE(ended(10));
  EXPECT_TRUE(coordinator_.until([&] { return processes_with("WFLOW_WORKSPACE=" + path("step")).empty(); }));
}

// Processes of one bundle share its files.
TEST_F(BundleTest, AFailureShowsWhatItsOwnProcessPrinted) {
  begin_bundles("[ $WFLOW_FIRST = 5 ] || { echo fine >&2; exit 0; }; exit 3", 10, {"slots=1"});
  lease(0, 5);
  lease(5, 5);
  ASSERT_TRUE(ended(10));
  sort_outcomes();
  ASSERT_EQ(coordinator_.outcomes.size(), 5U);
  EXPECT_EQ(coordinator_.outcomes[0].element, 5U);
  EXPECT_EQ(coordinator_.outcomes[0].detail, "");
}

TEST_F(BundleTest, WhatAProcessPrintsIsPackedForAllOfItsSamples) {
  begin_bundles("echo of $WFLOW_FIRST", 25);
  task_.output = specs::OutputMode::packed;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 25);
  ASSERT_TRUE(ended(25));
  for (const wire::Element element : {0U, 9U, 10U, 24U})
    EXPECT_EQ(packed(path("step"), element), "[of " + std::to_string(element / 10 * 10) + "\n|]");
}

TEST_F(BundleTest, ATimeLimitIsTheProcesss) {
  begin_bundles(R"(echo '{"type":"sample_done","first":0,"count":9}' >> $WFLOW_EVENTS; sleep 1000)", 10);
  task_.timeout_s = 0.3;
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 10);
  ASSERT_TRUE(ended(10));
  ASSERT_EQ(coordinator_.outcomes.size(), 1U);
  EXPECT_EQ(coordinator_.outcomes[0].element, 9U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::timed_out);
}

TEST_F(BundleTest, WhatItHasReportedIsDoneWhenItsWorkerIsToldToEnd) {
  begin_bundles(R"(for n in 0 1 2 7; do echo '{"type":"sample_done","sample":'$n'}' >> $WFLOW_EVENTS; done
echo > )" + path("started") +
                    "; sleep 1000",
                10);
  lease(0, 10);
  ASSERT_TRUE(coordinator_.until([&] { return std::filesystem::exists(file("started")); }));
  ::kill(worker_->guardian(), SIGTERM);
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.goodbye.has_value(); }));
  EXPECT_EQ(worker_->wait(), 0);
  expect_each_once();
  EXPECT_EQ(coordinator_.ends.size(), 4U);
  EXPECT_TRUE(coordinator_.outcomes.empty());
  std::set<wire::Element> returned;
  for (const auto& part : coordinator_.returned) {
    for (std::uint64_t i = 0; i < part.count; ++i) returned.insert(part.first + i);
  }
  EXPECT_EQ(returned, (std::set<wire::Element>{3, 4, 5, 6, 8, 9}));
}

TEST_F(WorkerTest, LooksForDeclaredOutputs) {
  begin(
      "case $WFLOW_SAMPLE_ID in 1) ;; 2) : > out.txt;; 3) exit 7;; 5) mkfifo out.txt;; *) echo value > "
      "out.txt;; esac",
      6);
  task_.outputs = {{{{specs::Piece::Kind::literal, "out.txt", 0}}, "", {}, false}};
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 6);
  ASSERT_TRUE(ended(6));
  expect_each_once();
  std::sort(coordinator_.outcomes.begin(), coordinator_.outcomes.end(),
            [](const auto& a, const auto& b) { return a.element < b.element; });
  ASSERT_EQ(coordinator_.outcomes.size(), 4U);
  EXPECT_EQ(coordinator_.outcomes[0].reason, wire::EndReason::bad_output);
  EXPECT_NE(coordinator_.outcomes[0].detail.find("step/01/out.txt is not there"), std::string::npos);
  EXPECT_EQ(coordinator_.outcomes[1].reason, wire::EndReason::bad_output);
  EXPECT_NE(coordinator_.outcomes[1].detail.find("out.txt is empty"), std::string::npos);
  EXPECT_EQ(coordinator_.outcomes[2].exit_code, 7);
  EXPECT_NE(coordinator_.outcomes[3].detail.find("neither a file nor a directory"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(file("step/01/MERLIN_FINISHED")));
}

TEST_F(WorkerTest, RunsWideTasksAlone) {
  begin("mkdir " + path("alone") + " && rmdir " + path("alone"), 20);
  task_.resources.cores = 1;
  task_.resources.procs = 64;  // more than there are: all
  coordinator_.send(wire::Templates{{task_}});
  lease(0, 20);
  ASSERT_TRUE(ended(20));
  EXPECT_TRUE(coordinator_.outcomes.empty());
}

TEST_F(WorkerTest, EndsWhenIdle) {
  begin("true", 1, {"slots=1", "idle=0.2"});
  lease(0, 1);
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.goodbye.has_value(); }));
  EXPECT_EQ(coordinator_.ends.size(), 1U);
  EXPECT_EQ(worker_->wait(), 0);
}

TEST_F(WorkerTest, EndsWhenRefused) {
  worker_ = std::make_unique<WorkerProcess>(campaign_.path(), std::vector<std::string>{"slots=1"});
  ASSERT_TRUE(coordinator_.until([&] { return coordinator_.hello.has_value(); }));
  coordinator_.send(wire::Refuse{"of another version"});
  EXPECT_EQ(worker_->wait(), 2);
}

TEST_F(WorkerTest, CompletesLeasesAsItsProgramSays) {
  begin("exit 1", 1'000'000, {"slots=1", "complete=1"});
  lease(0, 100'000);
  ASSERT_TRUE(ended(100'000));
  expect_each_once();
  EXPECT_FALSE(std::filesystem::exists(file("step")));
}

}  // namespace
}  // namespace wflow::workers
