// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/fake_coordinator.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "specs/samples/samples.h"
#include "workers/execute/processes.h"

namespace wflow::workers {

namespace wire = engine::wire;

using Clock = std::chrono::steady_clock;

namespace {

wire::CampaignKeys keys_of(const std::filesystem::path& campaign) {
  return std::filesystem::exists(campaign / ".wflow/keys.json") ? wire::read_keys(campaign)
                                                                : wire::create_keys(campaign);
}

}  // namespace

FakeCoordinator::FakeCoordinator(const std::filesystem::path& campaign, std::uint64_t epoch)
    : campaign_(campaign), socket_(keys_of(campaign), wire::Listen::host) {
  wire::Endpoint endpoint = socket_.endpoint();
  endpoint.epoch = epoch;
  wire::write_endpoint(campaign, endpoint);
}

bool FakeCoordinator::until(const std::function<bool()>& done) {
  const auto end = Clock::now() + kDeadline;
  auto pulse = Clock::now();
  while (!done()) {
    const auto now = Clock::now();
    if (now > end) return false;
    if (now >= pulse && !peer_.empty()) {
      if (answering) send(wire::Pulse{heartbeat ? heartbeat->number : 0});
      pulse = now + std::chrono::milliseconds(100);
    }
    while (auto received = socket_.receive()) {
      if (std::holds_alternative<wire::Hello>(received->message)) peer_ = received->peer;
      if (received->peer == peer_) hear(received->message);
    }
    socket_.wait(std::chrono::milliseconds(10), {});
  }
  return true;
}

void FakeCoordinator::hear(wire::Message& message) {
  if (auto* value = std::get_if<wire::Hello>(&message)) hello = *value;
  if (auto* value = std::get_if<wire::Goodbye>(&message)) goodbye = *value;
  if (auto* value = std::get_if<wire::Heartbeat>(&message)) {
    heartbeat = *value;
    if (answering) send(wire::Pulse{value->number});
  }
  if (auto* value = std::get_if<wire::Results>(&message)) hear(*value);
  if (auto* value = std::get_if<wire::Returned>(&message)) {
    ++returned_messages;
    returned.insert(returned.end(), value->leases.begin(), value->leases.end());
  }
}

void FakeCoordinator::hear(const wire::Results& results) {
  ++batches;
  for (const auto& run : results.done) {
    for (std::uint64_t i = 0; i < run.count; ++i) ++ends[{run.array, run.first + i}];
  }
  for (const auto& outcome : results.outcomes) {
    ++ends[{outcome.array, outcome.element}];
    outcomes.push_back(outcome);
  }
  events.insert(events.end(), results.events.begin(), results.events.end());
  if (acknowledging) send(wire::Acknowledge{results.sequence});
}

bool FakeCoordinator::welcome_worker() {
  if (!until([&] { return hello.has_value(); })) return false;
  send(wire::Welcome{campaign_.string(), samples, 0.1, lost_s});
  return true;
}

void FakeCoordinator::send(const wire::Message& message) {
  static_cast<void>(
      socket_.send(peer_, message));  // the worker's next Hello repeats what a lost message said
}

WorkerProcess::WorkerProcess(const std::filesystem::path& campaign, const std::vector<std::string>& options) {
  SpawnRequest request;
  request.argv = {executable_directory() + "/wflow_test_worker", campaign.string()};
  request.argv.insert(request.argv.end(), options.begin(), options.end());
  pid_ = spawn(request);
}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  for (const pid_t pid : descendants(pid_)) ::kill(pid, SIGKILL);
  ::kill(pid_, SIGKILL);
  wait();
}

pid_t WorkerProcess::agent() const {
  const auto end = Clock::now() + FakeCoordinator::kDeadline;
  while (Clock::now() < end) {
    const auto below = descendants(pid_);
    if (!below.empty()) return below.front();
  }
  return -1;
}

int WorkerProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return exit_status(status);
}

std::vector<pid_t> processes_with(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    try {
      const bool marked = read_file(entry.path() / "environ").find(mark) != std::string::npos ||
                          read_file(entry.path() / "cmdline").find(mark) != std::string::npos;
      if (marked && std::stoi(name) != ::getpid()) found.push_back(std::stoi(name));
    } catch (const Error&) {
      // It has ended, or is another user's.
    }
  }
  return found;
}

int zombies_of(pid_t parent) {
  int found = 0;
  for (const Process& process : all_processes()) {
    if (process.parent != parent) continue;
    // A process that has ended meanwhile leaves `stat` empty: processes end at any time.
    std::ifstream file("/proc/" + std::to_string(process.pid) + "/stat");
    std::string stat;
    std::getline(file, stat);
    found += stat.find(") Z ") != std::string::npos ? 1 : 0;
  }
  return found;
}

specs::SampleDesign counting_design(std::uint64_t count) {
  specs::SampleDesign design;
  design.kind = specs::DesignKind::grid;
  design.count = count;
  design.columns.resize(1);
  design.columns[0].name = "x";
  for (std::uint64_t i = 0; i < count; ++i) design.columns[0].values.push_back(std::to_string(i));
  return design;
}

specs::TaskTemplate shell_task(const std::filesystem::path& campaign, const std::string& body,
                               std::uint64_t count) {
  specs::TaskTemplate task;
  task.array = 1;
  task.step = "step";
  task.script = "step";
  task.shell = "/bin/sh";
  task.command = {{specs::Piece::Kind::literal, body, 0}};
  task.workspace = (campaign / "step").string();
  task.campaign = campaign.string();
  task.sample_dependent = true;
  task.sample_count = count;
  return task;
}

}  // namespace wflow::workers
