// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/handover.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "engine/query/client.h"
#include "engine/store/campaign_lock.h"

namespace wflow::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStartFile = "coordinator.json";
constexpr std::chrono::milliseconds kHandoverLook{50};
// Longest time from the end of the campaign's lock to that of the process, which reads the record once more.
constexpr double kLastWords_s = 10;

bool lives(const ProcessIdentity& process) {
  return process.same_table(own_identity()) && !ProcessHandle(process).ended();
}

}  // namespace

bool is_coordinated(const specs::Plan& plan) {
  engine::Client client(plan);
  client.status();  // after an answer, live() knows its source
  return client.live();
}

void drain_and_wait(const fs::path& campaign, bool silent) {
  const auto holder = engine::store::read_lock(campaign);
  if (!engine::Client(campaign).command(engine::wire::DrainRequest{})) return;
  if (!silent) {
    fmt::print("draining {0}: waits until its running tasks have ended; wflow stop {0} ends them now\n",
               campaign.string());
    std::fflush(stdout);
  }
  while (engine::store::is_held(campaign)) std::this_thread::sleep_for(kHandoverLook);
  for (const double until_s = steady_now_s() + kLastWords_s;
       holder && lives(holder->process) && steady_now_s() < until_s;)
    std::this_thread::sleep_for(kHandoverLook);
}

void record_start(const fs::path& campaign, const RunOptions& options) {
  const nlohmann::json json = {{"slots", options.slots},
                               {"local", options.local},
                               {"listen", options.listen},
                               {"keep_going", options.keep_going},
                               {"soft_fail_ok", options.soft_fail_ok},
                               {"detach", options.detach},
                               {"fence_s", options.fence_s}};
  try {
    write_file_durably(campaign / ".wflow" / kStartFile, json.dump() + "\n");
  } catch (const Error&) {
    // Without the file, a process that takes over uses its own command line.
  }
}

void take_start(const fs::path& campaign, RunOptions& options) {
  const fs::path file = campaign / ".wflow" / kStartFile;
  std::error_code none;
  if (!fs::exists(file, none)) return;
  const auto json = nlohmann::json::parse(read_file(file), nullptr, false);
  if (!json.is_object()) return;
  try {
    if (options.slots == 0) options.slots = json.value("slots", 0);
    if (options.fence_s == 0) options.fence_s = json.value("fence_s", 0.0);
    options.local = options.local || json.value("local", false);
    options.listen = options.listen || json.value("listen", false);
    options.keep_going = options.keep_going || json.value("keep_going", false);
    options.soft_fail_ok = options.soft_fail_ok || json.value("soft_fail_ok", false);
    options.detach = options.detach || json.value("detach", false);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data, fmt::format("{} does not read: {}", file.string(), error.what()));
  }
}

}  // namespace wflow::cli
