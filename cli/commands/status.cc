// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/commands/commands.h"
#include "cli/top/feed.h"
#include "cli/view/status.h"
#include "cli/view/terminal.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"

namespace wflow::cli {

namespace {

struct StatusOptions {
  std::string campaign;
  bool all = false;
  bool json = false;
  bool csv = false;
  bool brief = false;
  bool table = false;
  bool watches = false;
  std::string period;  // --watch, as written
};

constexpr double kWatch_s = 2;
constexpr double kLongestWatch_s = 86'400;

// One row per step, with the states in their own order.
void print_csv(const engine::CampaignStatus& status) {
  std::vector<std::string> headings = {"step", "kind", "arrays", "elements"};
  for (std::size_t i = 0; i < engine::kElementStates; ++i)
    headings.emplace_back(name_of(static_cast<engine::ElementState>(i)));
  headings.emplace_back("mean_s");
  Table table(headings);
  for (const engine::StepStatus& step : status.steps) {
    std::vector<Cell> cells = {
        {step.name}, {step.kind}, {std::to_string(step.arrays)}, {std::to_string(step.elements)}};
    for (const std::uint64_t count : step.counts) cells.push_back({std::to_string(count)});
    cells.push_back({text::from_real(step.mean_s)});
    table.add(std::move(cells));
  }
  table.print_csv();
}

// Where the campaign runs, and how to continue it.
std::vector<std::string> closing_lines(const engine::CampaignStatus& status) {
  std::vector<std::string> lines = {"", status.directory};
  const auto& after = status.followups;
  const bool left = std::any_of(after.begin(), after.end(), [](const auto& f) { return f.left(); });
  if (status.coordinator.empty() && !status.allocations.allocations.empty()) {
    lines.emplace_back("the coordinator of the next allocation goes on");
  } else if (status.coordinator.empty() && (status.state == engine::CampaignState::interrupted || left) &&
             !engine::running_campaign(status.directory)) {
    lines.push_back("continue with: wflow resume " + status.directory);
  }
  return lines;
}

// While the disk takes no writes, a coordinator answers the status alone, which says so. Other answers are
// left out then.
template <class Ask>
auto answer_or_nothing(const engine::CampaignStatus& status, Ask ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const Error& error) {
    if (status.state != engine::CampaignState::paused || error.code() != ExitCode::system) throw;
    return {};
  }
}

TrainingRows trainings_of(const specs::Plan& plan, const engine::CampaignStatus& status) {
  engine::Client client(plan);
  return answer_or_nothing(status, [&] { return training_rows(plan, client, status); });
}

std::vector<std::string> table_lines(const engine::CampaignStatus& status, const TrainingRows& trainings,
                                     const Terminal& terminal) {
  const specs::Plan plan = read_plan(status.directory);
  top::TopData data;
  data.status = status;
  engine::Client client(plan);
  data.workers = answer_or_nothing(status, [&] { return client.workers(); });
  constexpr std::uint32_t kRunningTasks = 5000;
  data.running = client.watch({0, 0, kRunningTasks}).running;
  data.needs = top::needs_of(plan);
  data.now_s = status.time_s;
  // The end of a worker that was killed together with its coordinator is unknown.
  for (engine::wire::WorkerView& worker : data.workers) {
    if (worker.ended_s <= 0 && worker.state == engine::wire::WorkerViewState::unknown)
      worker.ended_s = data.now_s;
  }
  return status_table(data, trainings, terminal);
}

// Also of workers that are gone: events name them.
top::WorkerNames names_of_workers(const engine::CampaignStatus& status) {
  top::WorkerNames names;
  const auto all = answer_or_nothing(status, [&] { return engine::Client(status.directory).workers(); });
  for (const auto& worker : all) names.add(worker.id);
  for (const auto& worker : status.workers) names.add(worker.id);
  return names;
}

std::vector<std::string> lines_of(const engine::CampaignStatus& status, const StatusOptions& options,
                                  const Terminal& terminal) {
  std::optional<specs::Plan> plan;
  if (!status.metrics.empty()) plan = read_plan(status.directory);
  const TrainingRows trainings = plan && !options.brief ? trainings_of(*plan, status) : TrainingRows();
  if (options.table) return table_lines(status, trainings, terminal);
  const engine::CampaignStatus shown = plan ? with_one_curve_each(*plan, status) : status;
  std::vector<std::string> lines = options.brief
                                       ? overview(shown, terminal)
                                       : status_lines(shown, trainings, names_of_workers(status), terminal);
  std::ranges::move(closing_lines(status), std::back_inserter(lines));
  return lines;
}

nlohmann::json json_of(const engine::CampaignStatus& status) {
  nlohmann::json json = engine::to_json(status);
  // The study is read only if a training has a metric to compare.
  json["trainings"] =
      to_json(status.metrics.empty() ? TrainingRows() : trainings_of(read_plan(status.directory), status));
  return json;
}

void show_once(const engine::CampaignStatus& status, const StatusOptions& options) {
  if (options.json) {
    fmt::print("{}\n", json_of(status).dump(2));
  } else if (options.csv) {
    print_csv(status);
  } else {
    for (const std::string& line : lines_of(status, options, standard_output())) fmt::print("{}\n", line);
  }
}

// ---- --watch

volatile std::sig_atomic_t watch_is_over = 0;

void end_watch(int) {
  watch_is_over = 1;
}

// Ctrl-C takes effect between two pictures: the last one stays whole, and the exit code is 0.
void catch_signals() {
  struct sigaction action {};
  action.sa_handler = end_watch;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

// On a terminal each picture replaces the last one; elsewhere each is a block of its own (--json: a line).
void show_again(const engine::CampaignStatus& status, const StatusOptions& options, bool first) {
  const Terminal terminal = standard_output();
  if (options.json) {
    fmt::print("{}\n", json_of(status).dump());
  } else if (!terminal.interactive) {
    if (!first) fmt::print("\n");
    fmt::print("{}\n", clock_time(status.time_s));
    for (const std::string& line : lines_of(status, options, terminal)) fmt::print("{}\n", line);
  } else {
    // The last column stays free: a line that fills it leaves the cursor in different places.
    Terminal narrower = terminal;
    narrower.width = std::max(terminal.width - 1, 1);
    std::vector<std::string> lines = lines_of(status, options, narrower);
    const auto most = static_cast<std::size_t>(std::max(terminal.height - 1, 1));
    if (lines.size() > most) lines.resize(most);
    std::string text = (first ? own_escape("2J") : "") + own_escape("H");
    for (const std::string& line : lines)
      text += shortened(narrower, line, narrower.width) + own_escape("K") + "\n";
    fmt::print("{}{}", text, own_escape("J"));
  }
  std::fflush(stdout);
}

// No coordinator holds the campaign, but the next one will, in an allocation that is queued.
bool waits_for_allocation(const engine::CampaignStatus& status) {
  const bool ended = engine::is_at_rest(status.state) && status.state != engine::CampaignState::interrupted;
  return !ended && status.coordinator.empty() && !status.allocations.allocations.empty();
}

int watch(const std::filesystem::path& campaign, const StatusOptions& options, double period_s) {
  catch_signals();
  for (bool first = true;; first = false) {
    // Checked before the picture, so that the last picture shows the end.
    const auto running = engine::running_campaign(campaign);
    std::filesystem::path shown = running.value_or(campaign);
    if (!is_campaign(shown))
      shown = campaign;  // a campaign that follows is announced before its directory exists
    const engine::CampaignStatus status = engine::campaign_status(shown);
    show_again(status, options, first);
    if (watch_is_over != 0 || (!running && !waits_for_allocation(status))) return 0;
    const double until_s = steady_now_s() + period_s;
    for (double left_s = period_s; left_s > 0 && watch_is_over == 0; left_s = until_s - steady_now_s()) {
      constexpr double kSlice_s = 0.1;  // delay of a signal that arrives just before the wait
      ::poll(nullptr, 0, static_cast<int>(std::ceil(1000 * std::min(left_s, kSlice_s))));
    }
    if (watch_is_over != 0) return 0;
  }
}

int status(StatusOptions options) {
  if (options.all) {
    const Format format = options.json ? Format::json : options.csv ? Format::csv : Format::people;
    print_campaigns(remembered_campaigns(), format, false);
    return 0;
  }
  if (!options.watches) {
    show_once(engine::campaign_status(find_campaign(options.campaign)), options);
    return 0;
  }
  double period_s = kWatch_s;
  if (!options.period.empty()) {
    // `wflow status --watch CAMPAIGN`: no number of seconds was given.
    const auto seconds = text::to_real(options.period);
    if (!seconds && options.campaign.empty()) {
      options.campaign = options.period;
    } else if (!seconds || *seconds <= 0 || *seconds > kLongestWatch_s) {
      throw Error(ExitCode::usage,
                  fmt::format("--watch takes a number of seconds above 0 and up to {}, not '{}'",
                              kLongestWatch_s, options.period));
    } else {
      period_s = *seconds;
    }
  }
  return watch(find_campaign(options.campaign), options, period_s);
}

}  // namespace

void add_status(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand("status", "what is done, what failed, what is left");
  command->footer(
      "Works while the campaign runs and after it has ended or was killed. Tasks that are assigned run on a "
      "worker "
      "or wait in its queue.\n"
      "Examples:\n  wflow status\n  wflow status campaigns/cosmoflow_20261121-160001 --json\n  wflow status "
      "--all\n  wflow status --table | mail -s campaign me@example.org\n  wflow status --watch 5");
  auto* campaign =
      command->add_option("campaign", options->campaign,
                          "its directory, or the beginning of its name (default: the newest here)");
  command->add_flag("--all", options->all, "one line for each of your campaigns, wherever they are")
      ->excludes(campaign);
  auto* json = command->add_flag("--json", options->json, "everything, as JSON");
  command->add_flag("--csv", options->csv, "a row a step (--all: a campaign), as comma-separated values")
      ->excludes(json);
  auto* brief = command->add_flag("--brief", options->brief, "one line a step");
  command->add_flag("--table", options->table, "one table a campaign, as for a mail")
      ->excludes(json)
      ->excludes(brief);
  auto* watch = command->add_option("--watch", options->period,
                                    "again every so many seconds (2), until the campaign ends or Ctrl-C");
  watch->expected(0, 1)->type_name("SECONDS");
  command->callback([options, watch, &chosen] {
    options->watches = watch->count() > 0;
    chosen = [options] { return status(*options); };
  });
}

}  // namespace wflow::cli
