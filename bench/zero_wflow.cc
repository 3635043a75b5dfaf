// SPDX-License-Identifier: Apache-2.0
// wflow whose workers complete every lease at once and run nothing: it measures coordinator, wire and store.
// It is called `wflow` in a folder of its own, so that it starts itself as the worker.
//   zero/wflow run|resume|retry|redo ... [--zero-workers] [--zero-failures FRACTION] [--zero-bundle N]
//     --zero-workers            nothing: programs of earlier revisions need it
//     --zero-failures FRACTION  each task's end is reported by itself, and this fraction fails
//     --zero-bundle N           no lease of `run STUDY` has more tasks
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "workers/agent/worker.h"

namespace {

namespace wire = wflow::engine::wire;

constexpr const char* kFailures = "WFLOW_ZERO_FAILURES";  // for the worker, which this program starts

// Which tasks fail is given by a hash of array, element and attempt.
wire::Results complete(const wire::Lease& lease, double unix_s, double failures) {
  wire::Results results;
  if (failures <= 0) {
    results.done.push_back({lease.id, lease.array, lease.first, lease.count, lease.attempt, 0, 0, unix_s});
    return results;
  }
  const std::uint64_t key = wflow::mix64((std::uint64_t{lease.array} << 32) + lease.attempt);
  for (wire::Element element = lease.first; element < lease.first + lease.count; ++element) {
    if (wflow::unit_real(wflow::hash64(key, element)) < failures) {
      results.outcomes.push_back(
          {lease.id, lease.array, element, lease.attempt, wire::EndReason::exited, 1, unix_s, 0, {}});
    } else {
      results.done.push_back({lease.id, lease.array, element, 1, lease.attempt, 0, 0, unix_s});
    }
  }
  return results;
}

int work(int argc, char** argv) {
  wflow::workers::WorkerOptions options;
  CLI::App app;
  CLI::App* worker = app.add_subcommand("worker");
  worker->add_option("--campaign", options.campaign)->required();
  worker->add_option("--group", options.group)->required();
  worker->add_option("--slots", options.slots);
  worker->add_option("--started-by", options.started_by);
  app.parse(argc, argv);
  const char* given = std::getenv(kFailures);
  const double failures = given == nullptr ? 0 : wflow::text::to_real(given).value_or(0);
  options.complete = [failures](const wire::Lease& lease, double unix_s) {
    return complete(lease, unix_s, failures);
  };
  return wflow::workers::run_worker(options);
}

// The value behind the option, which is removed; empty without one.
std::string take(std::vector<std::string>& words, const std::string& option) {
  const auto found = std::ranges::find(words, option);
  if (found == words.end() || found + 1 == words.end()) return {};
  const std::string value = *(found + 1);
  words.erase(found, found + 2);
  return value;
}

int body(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "worker") return work(argc, argv);
  std::vector<std::string> words(argv, argv + argc);
  std::erase(words, "--zero-workers");
  if (const std::string failures = take(words, "--zero-failures"); !failures.empty())
    ::setenv(kFailures, failures.c_str(), 1);
  if (const std::string most = take(words, "--zero-bundle"); !most.empty()) {
    wflow::cli::RunOptions options;
    options.study = words.at(2);
    options.slots = 1;
    options.quiet = true;
    options.max_range = static_cast<std::uint64_t>(wflow::text::to_integer(most).value_or(1));
    return wflow::cli::run_study(options);
  }
  std::vector<char*> rest;
  for (std::string& word : words) rest.push_back(word.data());
  return wflow::cli::run_command(static_cast<int>(rest.size()), rest.data());
}

}  // namespace

int main(int argc, char** argv) {
  return wflow::run_main("wflow", body, argc, argv);
}
