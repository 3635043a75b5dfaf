// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "cli/view/display.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "engine/wire/keys.h"

namespace wflow::cli {

namespace {

constexpr std::chrono::milliseconds kLook{250};
constexpr std::chrono::milliseconds kBegin{20};

void leave_terminal(const std::filesystem::path& log_path) {
  ::setsid();
  const FileDescriptor nothing = open_file("/dev/null", O_RDONLY);
  const FileDescriptor log = open_file(log_path, O_WRONLY | O_CREAT | O_APPEND);
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(log.get(), STDOUT_FILENO);
  ::dup2(log.get(), STDERR_FILENO);
}

}  // namespace

bool detach(const std::filesystem::path& campaign) {
  const std::filesystem::path log = campaign / ".wflow" / "coordinator.log";
  std::fflush(stdout);
  const pid_t child = ::fork();  // before any thread exists
  if (child < 0) throw system_error(errno, "cannot start a process in the background");
  if (child == 0) {
    leave_terminal(log);
    return false;
  }
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      // The campaign may have ended already; any other exit code means that it could not begin.
      const int code = exit_status(status);
      if (code <= static_cast<int>(ExitCode::tasks_failed)) return true;
      const std::string said(text::trim(text::tail(read_file(log), 500)));
      throw Error(static_cast<ExitCode>(code),
                  fmt::format("the campaign ended at once: {}", text::split(said, '\n').back()));
    }
    const auto at = engine::running_campaign(campaign);
    const auto endpoint = engine::wire::read_endpoint(at.value_or(campaign));
    if (endpoint && endpoint->pid == child) return true;
    std::this_thread::sleep_for(kBegin);
  }
}

ExitCode whole_code(const engine::CampaignStatus& status) {
  ExitCode code = engine::end_code(status);
  for (const engine::FollowupView& followup : status.followups) {
    code = std::max(code, followup.left()       ? ExitCode::interrupted
                          : followup.failed > 0 ? ExitCode::tasks_failed
                                                : ExitCode::ok);
  }
  return code;
}

int follow(const std::filesystem::path& campaign, bool quiet, bool json) {
  std::signal(SIGPIPE, SIG_IGN);
  Display display(quiet || json, Display::Interrupt::ends_display);
  std::filesystem::path shown = campaign;
  std::optional<specs::Plan> plan;  // of `shown`, once it has metrics
  const auto status_of_shown = [&] {
    engine::CampaignStatus status = engine::campaign_status(shown);
    if (status.metrics.empty()) return status;
    if (!plan) plan = read_plan(shown);
    return with_one_curve_each(*plan, std::move(status));
  };
  while (const auto at = engine::running_campaign(campaign)) {
    if (*at != shown) {
      display.finish(status_of_shown());
      display = Display(quiet || json, Display::Interrupt::ends_display);
      shown = *at;
      plan.reset();
    }
    // A campaign that follows is announced before its directory exists.
    if (is_campaign(shown)) display.show(status_of_shown());
    std::this_thread::sleep_for(kLook);
  }
  if (is_campaign(shown)) display.finish(status_of_shown());
  const engine::CampaignStatus status = engine::campaign_status(campaign);
  if (json) {
    fmt::print("{}\n", engine::to_json(status).dump(2));
  } else if (!quiet) {
    fmt::print("\n{} in {}; campaign: {}\n", name_of(status.state), text::format_duration(status.elapsed_s),
               status.directory);
  }
  return static_cast<int>(whole_code(status));
}

void add_attach(CLI::App& app, Command& chosen) {
  const auto name = std::make_shared<std::string>();
  const auto quiet = std::make_shared<bool>(false);
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("attach", "show a running campaign until it ends");
  command->footer(
      "Ctrl-C ends only the showing. The exit code is the campaign's own, as of wflow run.\n"
      "Examples:\n  wflow run cosmoflow.yaml --detach; wflow attach\n  wflow attach -q && echo all is well");
  command->add_option("campaign", *name,
                      "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("-q,--quiet", *quiet, "only wait");
  command->add_flag("--json", *json, "only the status at the end, as JSON");
  command->callback([name, quiet, json, &chosen] {
    chosen = [name, quiet, json] {
      const specs::Plan plan = read_plan(find_campaign(*name));
      if (lives_in_allocations(plan, {})) return attach_in_allocations(plan, *quiet, *json);
      return follow(plan.campaign(), *quiet, *json);
    };
  });
}

}  // namespace wflow::cli
