// SPDX-License-Identifier: Apache-2.0
// wflow_test_worker CAMPAIGN KEY=VALUE...: a worker for tests, without the command line of wflow.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "workers/agent/worker.h"

namespace {

wflow::engine::wire::Results complete(const wflow::engine::wire::Lease& lease, double unix_s) {
  wflow::engine::wire::Results results;
  results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 0, 0, unix_s});
  return results;
}

int body(int count, char** words) {
  wflow::workers::WorkerOptions options;
  options.campaign = words[1];
  options.group = "test";
  options.grace_s = 0.3;
  for (int i = 2; i < count; ++i) {
    const auto parts = wflow::text::split(words[i], '=');
    const double value = std::atof(parts.at(1).c_str());
    if (parts[0] == "slots") options.slots = static_cast<int>(value);
    if (parts[0] == "cores") options.cores = static_cast<int>(value);
    if (parts[0] == "gpus") options.gpus = static_cast<int>(value);
    if (parts[0] == "memory") options.memory_bytes = static_cast<std::int64_t>(value);
    if (parts[0] == "pin") options.pin = value > 0;
    if (parts[0] == "linger") options.linger_s = value;
    if (parts[0] == "grace") options.grace_s = value;
    if (parts[0] == "idle") options.idle_timeout_s = value;
    if (parts[0] == "started_by") options.started_by = static_cast<std::uint64_t>(value);
    if (parts[0] == "complete" && value > 0) options.complete = complete;
  }
  return wflow::workers::run_worker(options);
}

}  // namespace

int main(int count, char** words) {
  return wflow::run_main("wflow_test_worker", body, count, words);
}
