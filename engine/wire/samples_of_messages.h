// SPDX-License-Identifier: Apache-2.0
// One message of every kind with no field at its default: for tests.
#pragma once

#include <utility>
#include <vector>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

inline converters::ConvertConfig sample_conversion() {
  converters::ConvertConfig config;
  config.from = "simulate";
  config.file = "u_$(MERLIN_SAMPLE_ID).h5";
  converters::FieldConfig x;
  x.name = "x";
  x.shape = {64, 64, 64};
  config.fields = converters::short_fields(std::move(x), {"omega_m", "1e5"});
  config.split.parts = {1, 0, 0};
  config.max_missing = 0.1;
  config.output = "/campaign/data";
  config.count = 1'000'000;
  config.block_starts = {200, 400};
  return config;
}

inline specs::SampleDesign sample_design() {
  specs::SampleDesign part;
  part.kind = specs::DesignKind::sobol;
  part.count = 20;
  part.seed = 7;
  part.columns = {{"x", 0.5, 1e300, true, true, {"a", "b"}}};
  part.file = "/campaign/samples.csv";
  part.header = true;
  part.checksum = "0123";
  part.grown = {10};
  specs::SampleDesign all = part;
  all.kind = specs::DesignKind::parts;
  all.parts = {part, part};
  return all;
}

inline specs::TaskTemplate sample_template() {
  specs::TaskTemplate t;
  t.array = 7;
  t.step = "simulate";
  t.label = "OMEGA.0.3";
  t.kind = specs::StepKind::convert;
  t.command = {{specs::Piece::Kind::literal, "echo ", 0}, {specs::Piece::Kind::column, "", 3}};
  t.restart = {{specs::Piece::Kind::sample_path, "", 0}, {specs::Piece::Kind::quoted_column, "", 1}};
  t.shell = "/bin/bash";
  t.settings = sample_conversion();
  t.workspace = "/campaign/simulate";
  t.script = "simulate_OMEGA.0.3";
  t.campaign = "/campaign";
  t.sample_dependent = true;
  t.sample_count = 1'000'000'000'000;
  t.level_max_dirs = 100;
  t.layout_samples = 1'000'000;
  t.resources = {4, 1, std::int64_t{1} << 40, 2, 8, 1};
  t.timeout_s = 12.5;
  t.stall_timeout_s = 90.25;
  t.trust_markers = true;
  t.block_samples = 64;
  t.source_workspace = "/campaign/other";
  t.environment = {{"KEY", "value with \n and \xff"}, {"EMPTY", ""}};
  t.shell_given = true;
  t.suffix = ".slurm";
  t.sample_starts = {200, 400};
  t.bundle = 4096;
  t.output = specs::OutputMode::packed;
  t.outputs = {{{{specs::Piece::Kind::literal, "u.h5", 0}}, "density", {64, 64, 64}, true}};
  return t;
}

// One for each form of a step's settings.
inline std::vector<specs::TaskTemplate> sample_templates() {
  std::vector<specs::TaskTemplate> templates(6);
  templates[0] = sample_template();
  trainer::TrainConfig training;
  training.data = "/campaign/data";
  training.optimizer.learning_rate = 1e-3;
  training.search.rungs = {2, 10};
  training.epochs = 10;
  training.search.rung = 2;
  training.search.folders = {"/campaign/fit.rung_1", "/campaign/fit"};
  training.search.trainings = {"LR.1", "2"};
  training.search.training = 1;
  templates[1].settings = training;
  templates[2].settings = specs::PluginBlock{
      "/lib.so", "symbol", 10, {"x"}, false, 3, "/request.json", "./simulator", "/study", sample_design()};
  templates[5].kind = specs::StepKind::propose;
  propose::ProposeConfig choice;
  choice.from = "simulate";
  choice.until = 0.01;
  choice.bounds = {{"x", -5, 10, false, true}};
  templates[5].settings = choice;
  templates[3].settings = specs::UnreadBlock{yaml::map({{"epochs", yaml::scalar("many")}}), "train: error"};
  return templates;
}

inline std::vector<TaskEvent> sample_events() {
  const std::vector<EventBody> bodies = {Metric{"loss", 2, 300, 0.25},
                                         Progress{12, 100, "steps"},
                                         Note{"the mesh was refined"},
                                         Artifact{"model", "/campaign/train/model.wf"},
                                         Checkpoint{"/campaign/train/c1", "abc", 1, 50},
                                         Submission{"submitted", "host-1-2", "/s.yaml", "{}", "/d"},
                                         Convergence{},
                                         MissingSample{17, "u.h5 holds NaN or infinite values"},
                                         Converted{37, {{"u.h5 holds NaN or infinite values", 3, 17}}},
                                         OtherEvent{"mine", R"({"type":"mine","x":1})"}};
  std::vector<TaskEvent> events;
  for (const EventBody& body : bodies) events.push_back({7, 12, 1, 1.7e9, body});
  return events;
}

inline std::vector<Query> sample_queries() {
  Selection tasks;
  tasks.step = "simulate";
  tasks.ranged = true;
  tasks.first = 3;
  tasks.last = 1ULL << 40;
  tasks.by_exit_code = true;
  tasks.exit_code = -9;
  tasks.chosen = true;
  tasks.parts = {{7, 1, 9}, {8, 0, 0}};
  return {{StatusRequest{}},
          {TasksRequest{{7, 1ULL << 40}, 9, 1, 1ULL << 50, 0x1ff, true}},
          {ExplainRequest{{7, 12}}},
          {WorkersRequest{2000}},
          {RetryableRequest{tasks}},
          {SnapshotRequest{"/tmp/copy.db"}},
          {DrainRequest{}},
          {StopRequest{}},
          {PauseRequest{false}},
          {RetryRequest{tasks}},
          {CancelRequest{tasks, true}},
          {AllocationsRequest{}},
          {AllocationsCommand{AllocationsVerb::drain, "wabcdef001002", 3}},
          {UsageRequest{7, 12, 1ULL << 40, 500}},
          {WatchRequest{4000, 1000, 500}},
          {UsageSummaryRequest{}}};
}

inline AllocationsAnswer sample_allocations() {
  AllocationsAnswer answer;
  answer.allocations = {{"wabcdef001002",
                         "1234",
                         "all",
                         "slurm",
                         "running",
                         4,
                         3600,
                         1.7e9,
                         1.7e9 + 60,
                         1.7e9 + 3660,
                         1.7e9 + 3000,
                         4,
                         true,
                         "Priority",
                         "the account is not valid",
                         {"n1", "n2"}}};
  answer.allocations_total = 12;
  answer.pools = {{"all", "slurm", 4, 64, 1, 3, 3600, 2.5, 7.5, 1.7e9 + 9000, 2, "refused"}};
  answer.excluded_nodes = {"n7"};
  return answer;
}

inline StatusAnswer sample_status() {
  StatusAnswer status;
  status.name = "cosmoflow";
  status.directory = "/campaign";
  status.state = CampaignState::paused;
  status.coordinator = "host (pid 12)";
  status.started_s = 1.7e9;
  status.elapsed_s = 12.5;
  status.time_s = 1.7e9 + 100;
  StepStatus& step = status.steps.emplace_back();
  step.name = "train";
  step.kind = "train";
  step.arrays = 3;
  step.elements = 1ULL << 40;
  step.counts = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  step.mean_s = 1.5;
  step.deviation_s = 0.5;
  step.usage = {3, {1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {}, {1, 1, 1, 1}};
  step.rate_per_s = 100;
  step.left_s = 3.25;
  step.progress_done = 12;
  step.progress_total = 100;
  step.progress_unit = "steps";
  step.samples = 40;
  step.missing = {{"u.h5 holds NaN or infinite values", 3, 17}};
  step.held = "its first 20 tasks all failed";
  status.workers = {{"host-1-abc", "host", 64, 60, 4096, 0.25, true, 1ULL << 40}};
  status.workers_total = 20'000;
  status.failures = {
      {9, "simulate/12", "simulate", 7, 12, 2, "exit code 3", "host-1-abc", 1.7e9, 0.5, true, "no"}};
  status.last_failure = 11;
  status.metrics = {{7, 0, "train", "loss", {{1, 10, 0.5}, {2, 20, 0.25}}}};
  status.artifacts = {{"train", "model", "/campaign/model.wf"}};
  status.artifacts_total = 5;
  status.history = {{3, 1.7e9, "worker", "worker x joined"}};
  status.followups = {{"iteration", 2, "/s.yaml", "/d", FollowupState::handed_over, "/top", 10, 9, 1}};
  status.iterations = "converged in iteration 3";
  status.allocations = sample_allocations();
  status.refused = {12, 3, 1};
  status.slow = {{"simulate/17", "host-1-abc", 700.5, 20.25}};
  status.slow_total = 4;
  return status;
}

inline std::vector<Answer> sample_answers() {
  TasksAnswer tasks;
  tasks.runs = {{7, 0, 1ULL << 40, ElementState::failed}};
  tasks.records = {{7, 12, 3, -15, "exited", "host-1-abc", 1.7e9, 0.5, "no root in cell 7"}};
  tasks.leases = {{7, 13, 20, "host-1-abc"}};
  tasks.running = {{7, 13, 1.7e9}};
  tasks.missing = {{7, 14, "u.h5 is not there"}};
  tasks.next = TaskPlace{8, 21};
  ExplainAnswer explain;
  explain.task = "simulate/12";
  explain.step = "simulate";
  explain.state = ElementState::delayed;
  explain.paused = true;
  explain.worker = "host-1-abc";
  explain.running_since_s = 1.7e9;
  explain.parents = {{"make", 12, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {"make/1"}, {"make/2", "make/3"}}};
  explain.parents_total = 4;
  explain.executions = {{1, "exit code 3", "w", "host", 1.7e9, 0.5, true, "detail", 1.8e9, "drained"}};
  explain.executions_total = 2;
  explain.missing = {"data: u.h5 is not there"};
  explain.waits_for = "allocation 1234, pending for 12 min: Priority";
  WorkersAnswer workers;
  workers.workers = {
      {"w", "host", "cpu", 12, 64, 8, 1.7e9, 1.8e9, "drained", 3, WorkerViewState::draining, 5, 4}};
  workers.next = 2000;
  UsageAnswer usage;
  usage.used = {{{0, 7, 12, 3, 1, 1.7e9, 2.5, 2.25, 1 << 30, 4096, 8192}, "w"}};
  usage.next = 5000;
  WatchAnswer watch;
  watch.status = sample_status();
  watch.running = {{7, 13, "simulate/13", "host-1-abc", 1.7e9, 1 << 30}};
  watch.running_total = 5000;
  watch.checkpoints = {{9, 0, 3, 120, 1.7e9 + 5, "/campaign/train/checkpoints/3"}};
  UsageSummary summary;
  summary.steps = {{"simulate", std::string("\0\x01\xff", 3)}};
  summary.lost = {{"simulate", "timed_out", 12, 3600.5}};
  return {refusal(std::string(100'000, 'x'), ExitCode::busy),
          done_answer(1ULL << 40, 12),
          {sample_status()},
          {tasks},
          {explain},
          {workers},
          {sample_allocations()},
          {usage},
          {watch},
          {summary}};
}

inline std::vector<Message> sample_messages() {
  const Lease lease{1ULL << 63, 7,
                    100,        1ULL << 40,
                    2,          true,
                    -5,         1LL << 40,
                    3,          2,
                    1,          {"n1", "n2"},
                    0,          {{640, 2, "its task of simulate failed"}}};
  const Outcome outcome{9, 7, 12, 1, EndReason::timed_out, -15, 1.7e9, 0.25, "no space left\n"};
  const ProcessIdentity guardian{"host", "boot", "pid:[1]", 4711, 12345};
  const ProcessIdentity agent{"host", "boot", "pid:[1]", 4712, 12346};
  return {
      Hello{kProtocol,
            "0.1.0",
            "token",
            "host-1-abc",
            "cpu",
            guardian,
            agent,
            3,
            64,
            8,
            std::int64_t{1} << 38,
            "wabcdef001002",
            "n1",
            1,
            3600.5,
            {lease}},
      Results{3,
              {{9, 7, 0, 1000, 2, 12.5, 0.75, 1.7e9}},
              {outcome},
              sample_events(),
              {{9, 7, 5, 1, 2, 1.7e9, 0.25, 0.125, 1 << 20, 4096, 8192}}},
      Heartbeat{17, 200, {{7, 12, 1.7e9, 1 << 30}}, 3600.5},
      Goodbye{"drained"},
      Welcome{"/campaign", sample_design(), 0.5, 30},
      Refuse{"another campaign"},
      Templates{sample_templates()},
      Leases{{lease, {}}},
      Acknowledge{1ULL << 50},
      Revoke{{lease}, true, true},
      Drain{},
      Pulse{17, 2, 0.2, true},
      Returned{{lease}},
      sample_queries()[1],
      sample_answers()[2],
      Identify{},
  };
}

}  // namespace wflow::engine::wire
