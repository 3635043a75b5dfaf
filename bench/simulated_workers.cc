// SPDX-License-Identifier: Apache-2.0
// Many workers in one process, whose tasks never end: they say Hello, take leases, and send a heartbeat a
// second.
//   wflow_simulated_workers CAMPAIGN NUMBER SECONDS
// Prints "ready" when every one has a lease, and ends after so many seconds more.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/wire/transport.h"

namespace {

namespace wire = wflow::engine::wire;
using Clock = std::chrono::steady_clock;

struct SimulatedWorker {
  wire::ClientSocket socket;
  std::vector<wire::Lease> leases;
  std::uint64_t heartbeats = 0;
};

wire::Hello hello_of(const wire::CampaignKeys& keys, std::size_t number,
                     const std::vector<wire::Lease>& held) {
  wire::Hello hello;
  hello.held = held;
  hello.campaign = keys.token;
  hello.worker = fmt::format("simulated-{}-{}", ::getpid(), number);
  hello.guardian.host = "elsewhere";  // not this host: it is watched by its heartbeats
  hello.guardian.pid = hello.agent.pid = static_cast<std::int64_t>(number) + 1;
  hello.agent.host = hello.guardian.host;
  hello.group = "default";
  hello.cores = 1;
  return hello;
}

// A lost connection shows that a message was not sent.
void send(SimulatedWorker& worker, const wire::Message& message) {
  [[maybe_unused]] const bool sent = worker.socket.send(message);
}

void take_messages(SimulatedWorker& worker, const wire::CampaignKeys& keys, std::size_t number) {
  while (auto message = worker.socket.receive()) {
    if (const auto* leases = std::get_if<wire::Leases>(&*message))
      worker.leases.insert(worker.leases.end(), leases->leases.begin(), leases->leases.end());
    if (std::holds_alternative<wire::Revoke>(*message)) send(worker, wire::Returned{});
    if (std::holds_alternative<wire::Identify>(*message)) send(worker, hello_of(keys, number, worker.leases));
  }
}

int simulate(const std::filesystem::path& campaign, std::size_t number, double seconds) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const wire::CampaignKeys keys = wire::read_keys(campaign);
  const auto endpoint = wire::read_endpoint(campaign);
  if (!endpoint) throw wflow::Error(wflow::ExitCode::usage, "no coordinator runs this campaign");
  wire::ClientContext context;
  std::vector<SimulatedWorker> workers;
  workers.reserve(number);
  for (std::size_t i = 0; i < number; ++i) {
    workers.push_back({wire::ClientSocket(keys, *endpoint, context), {}});
    send(workers.back(), hello_of(keys, i, {}));
  }
  bool ready = false;
  std::size_t reconnected = 0;
  auto end = Clock::time_point::max();
  // A tenth of them each tenth of a second: every one once a second.
  for (std::size_t turn = 0; Clock::now() < end; ++turn) {
    const auto next = Clock::now() + std::chrono::milliseconds(100);
    std::size_t leased = 0;
    for (std::size_t i = 0; i < number; ++i) {
      take_messages(workers[i], keys, i);
      leased += workers[i].leases.empty() ? 0 : 1;
      if (workers[i].socket.lost()) {  // as wflow's workers: once more, with what it holds
        workers[i].socket = wire::ClientSocket(keys, *endpoint, context);
        send(workers[i], hello_of(keys, i, workers[i].leases));
        ++reconnected;
      }
      if (workers[i].leases.empty() || i % 10 != turn % 10) continue;
      const wire::Lease& lease = workers[i].leases.front();
      send(workers[i], wire::Heartbeat{++workers[i].heartbeats, 0, {{lease.array, lease.first, 0}}});
    }
    if (leased == number && !ready) {
      ready = true;
      end = Clock::now() + std::chrono::milliseconds(static_cast<int>(seconds * 1000));
      fmt::print("ready after {} broken connections\n", reconnected);
      std::fflush(stdout);
    }
    std::this_thread::sleep_until(next);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = argc == 4 ? wflow::text::to_integer(argv[2]) : std::nullopt;
  const auto seconds = argc == 4 ? wflow::text::to_integer(argv[3]) : std::nullopt;
  if (!number || !seconds || *number < 1) {
    fmt::print(stderr, "usage: wflow_simulated_workers CAMPAIGN NUMBER SECONDS\n");
    return 2;
  }
  try {
    return simulate(argv[1], static_cast<std::size_t>(*number), static_cast<double>(*seconds));
  } catch (const wflow::Error& error) {
    fmt::print(stderr, "wflow_simulated_workers: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
