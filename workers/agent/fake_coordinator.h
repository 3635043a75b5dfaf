// SPDX-License-Identifier: Apache-2.0
// A coordinator for tests: real socket, no scheduler. And the worker program that it talks to.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/wire/temporary_campaign.h"
#include "engine/wire/transport.h"

namespace wflow::workers {

class FakeCoordinator {
 public:
  static constexpr std::chrono::seconds kDeadline{60};

  FakeCoordinator(const std::filesystem::path& campaign, std::uint64_t epoch);

  // Turns until `done`; false at the deadline.
  bool until(const std::function<bool()>& done);
  // Waits for a worker's Hello and answers with Welcome.
  bool welcome_worker();
  void send(const engine::wire::Message& message);

  // The messages received so far.
  std::optional<engine::wire::Hello> hello;
  std::optional<engine::wire::Goodbye> goodbye;
  std::optional<engine::wire::Heartbeat> heartbeat;
  std::vector<engine::wire::Lease> returned;
  int returned_messages = 0;
  std::vector<engine::wire::Outcome> outcomes;
  std::vector<engine::wire::TaskEvent> events;
  std::map<std::pair<engine::wire::ArrayId, engine::wire::Element>, int>
      ends;  // times that each element ended
  std::uint64_t batches = 0;

  bool acknowledging = true;
  bool answering = true;  // heartbeats, with Pulses
  double lost_s = 60;
  std::optional<specs::SampleDesign> samples;  // for welcome_worker()

 private:
  void hear(const engine::wire::Results& results);
  void hear(engine::wire::Message& message);

  std::filesystem::path campaign_;
  engine::wire::ServerSocket socket_;
  std::string peer_;
};

// wflow_test_worker as a child of the test.
class WorkerProcess {
 public:
  WorkerProcess(const std::filesystem::path& campaign, const std::vector<std::string>& options);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();
  pid_t guardian() const { return pid_; }
  pid_t agent() const;
  int wait();  // its exit code, 128 + signal

 private:
  pid_t pid_ = -1;
};

// Processes that carry `mark` in their environment or command line, as /proc shows them.
std::vector<pid_t> processes_with(const std::string& mark);

// Children of `parent` that have ended and that it has not waited for. A shell's own `sleep` is no child of
// the agent that started the shell.
int zombies_of(pid_t parent);

// Samples of one column "x" that holds the sample's number.
specs::SampleDesign counting_design(std::uint64_t count);

// A shell task in <campaign>/step that runs `body` for each of `count` samples ($WFLOW_SAMPLE_ID).
specs::TaskTemplate shell_task(const std::filesystem::path& campaign, const std::string& body,
                               std::uint64_t count);

}  // namespace wflow::workers
