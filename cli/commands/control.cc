// SPDX-License-Identifier: Apache-2.0
// wflow retry, cancel, pause, unpause, drain, stop: requests to a running campaign.
#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/campaign/update.h"
#include "cli/commands/commands.h"
#include "cli/commands/run.h"
#include "engine/query/client.h"
#include "engine/query/selection.h"

namespace wflow::cli {

namespace {

namespace wire = engine::wire;

// Parts of one request: far below the limit of a message (engine/wire/messages.h).
constexpr std::size_t kPartsOfMessage = 1'000'000;

const std::vector<std::string> kRetried = {"failed", "hard_failed", "cancelled"};

struct ControlOptions {
  RunOptions run;
  SelectionOptions selection;
  bool kill = false;
  bool json = false;
};

void add_part(std::vector<wire::Part>& parts, specs::ArrayId array, engine::Range range) {
  const bool joins = !parts.empty() && parts.back().array == array && parts.back().last + 1 == range.first;
  joins ? void(parts.back().last = range.last) : parts.push_back({array, range.first, range.last});
}

// The coordinator applies step and exit code, so that a hundred million tasks need one answer. Conditions on
// single tasks are evaluated here, for tasks in these states.
wire::Selection selection_of(const specs::Plan& plan, const SelectionOptions& options,
                             const std::vector<std::string>& states) {
  wire::Selection selection;
  const bool one_step = options.tasks.size() == 1 && options.tasks.front().find('/') == std::string::npos;
  if (one_step && !options.step.empty()) stretches_of(plan, options);  // throws: the step is named twice
  selection.step = one_step ? options.tasks.front() : options.step;
  selection.by_exit_code = options.exit_code.has_value();
  selection.exit_code = options.exit_code.value_or(0);
  const bool parts = !options.tasks.empty() && !one_step;
  selection.chosen = chooses_single_tasks(options) || parts || !options.range.empty();
  if (!selection.chosen) {
    engine::arrays_of_step(plan, selection.step);  // throws with the names of the steps
    return selection;
  }
  if (!chooses_single_tasks(options)) {
    for (const Stretch& stretch : stretches_of(plan, options)) {
      for (specs::ArrayId array = stretch.first; array <= stretch.last; ++array)
        add_part(selection.parts, array, stretch.range);
    }
    return selection;
  }
  SelectionOptions chosen = options;
  chosen.states = options.failed || options.missing ? std::vector<std::string>{} : states;
  engine::Client client(plan);
  select_tasks(plan, client, chosen, [&](const TaskRow& row) {
    add_part(selection.parts, row.array, {row.element, row.element});
    return true;
  });
  return selection;
}

// Sends the request to the coordinator, in several messages for many tasks. Empty if no coordinator lives.
template <class Request, class Make>
std::optional<wire::Done> ask_in_parts(const specs::Plan& plan, const wire::Selection& selection, Make make) {
  wire::Done all;
  bool first = true;
  for (wire::Selection& part : in_messages(selection, kPartsOfMessage)) {
    const Request request = make(std::move(part));
    // Temporary clients: one that has read the record at rest would lock out this process's own coordinator.
    const auto done = engine::Client(plan).command(request);
    if (!done && first) return std::nullopt;
    if (!done) {
      throw Error(ExitCode::interrupted,
                  fmt::format("the coordinator ended when {} of these tasks were asked for; ask again",
                              text::format_count(all.count)));
    }
    all.count += done->count;
    all.running += done->running;
    first = false;
  }
  return all;
}

// Why there is nothing to run again: for example, the named tasks are done.
std::string why_nothing(const specs::Plan& plan, const SelectionOptions& options) {
  const bool named = !options.tasks.empty() || !options.step.empty() || !options.range.empty();
  if (options.missing) return "missing tasks are done; wflow redo --missing runs them and their chain again";
  if (!named || chooses_single_tasks(options) || options.exit_code) return "no such failure";
  engine::Client client(plan);
  std::uint64_t done = 0;
  for (const auto& [array, part] : done_parts(client, stretches_of(plan, options))) done += part.size();
  if (done == 0) return "no such failure";
  return fmt::format("{} {} done; wflow redo runs {} again", tasks_text(done), done == 1 ? "is" : "are",
                     done == 1 ? "it" : "them");
}

int retry(ControlOptions& options) {
  specs::Plan plan = read_plan_to_run(open_selection(options.selection));
  options.run.quiet = options.run.quiet || options.json;
  if (options.run.preview) {
    const std::uint64_t count =
        engine::Client(plan).retryable(selection_of(plan, options.selection, kRetried));
    fmt::print("{} would run again, with what follows; nothing was changed\n", tasks_text(count));
    return 0;
  }
  if (auto changed = offer_changes(plan, options.run)) plan = std::move(*changed);
  const wire::RetryRequest request{selection_of(plan, options.selection, kRetried)};
  const auto done = ask_in_parts<wire::RetryRequest>(
      plan, request.tasks, [](wire::Selection&& part) { return wire::RetryRequest{std::move(part)}; });
  const std::uint64_t count = done ? done->count : engine::Client(plan).retryable(request.tasks);
  if (options.json) fmt::print("{}\n", nlohmann::json{{"count", count}, {"live", done.has_value()}}.dump());
  if (count == 0) {
    if (!options.json) fmt::print("nothing to run again: {}\n", why_nothing(plan, options.selection));
    return 0;
  }
  if (!options.run.quiet) fmt::print("{} will run again, with what follows\n", tasks_text(count));
  if (done) return 0;
  options.run.retry = request;
  return coordinate(plan, options.run, true);
}

Error no_coordinator(const std::filesystem::path& campaign, const std::string& verb) {
  return Error(ExitCode::usage,
               fmt::format("nothing to {}: no coordinator runs {} (wflow status tells how it ended)", verb,
                           campaign.string()));
}

// "3 tasks cancelled (wflow retry runs them after all); 2 have started and go on: wflow cancel --kill ends
// them"
std::string cancelled_text(const wire::Done& done, bool kill) {
  std::vector<std::string> parts;
  if (done.count > 0) parts.push_back(tasks_text(done.count) + " cancelled; wflow retry runs them after all");
  if (!kill && done.running > 0) {
    const bool one = done.running == 1;
    parts.push_back(fmt::format("{} {} started and {} on; wflow cancel --kill ends {}",
                                tasks_text(done.running), one ? "has" : "have", one ? "goes" : "go",
                                one ? "it" : "them"));
  }
  if (parts.empty()) return "0 tasks cancelled: all of these have ended";
  return text::join(parts, "\n");
}

int preview_cancel(const specs::Plan& plan, const ControlOptions& options) {
  SelectionOptions open = options.selection;
  open.states = {"blocked", "ready", "delayed"};
  if (options.kill) open.states.emplace_back("running");
  engine::Client client(plan);
  std::uint64_t count = 0;
  select_tasks(plan, client, open, [&](const TaskRow&) { return ++count > 0; });
  fmt::print("{} would be cancelled; nothing was changed\n", tasks_text(count));
  return 0;
}

int cancel(ControlOptions& options) {
  const specs::Plan plan = read_plan(working_campaign(open_selection(options.selection)));
  const wire::Selection selection =
      selection_of(plan, options.selection, {"blocked", "ready", "delayed", "running"});
  if (options.run.preview) return preview_cancel(plan, options);
  const auto done = ask_in_parts<wire::CancelRequest>(plan, selection, [&](wire::Selection&& part) {
    return wire::CancelRequest{std::move(part), options.kill};
  });
  if (!done) {
    if (chooses_single_tasks(options.selection) ||
        !command_between_allocations(plan, wire::CancelRequest{selection, options.kill}))
      throw no_coordinator(plan.campaign(), "cancel");
    if (!options.json) fmt::print("cancelled\n");
    return 0;
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"count", done->count}, {"running", done->running}}.dump());
  } else {
    fmt::print("{}\n", cancelled_text(*done, options.kill));
  }
  return 0;
}

int simple(const ControlOptions& options, const std::string& verb, const wire::Request& request,
           const char* said) {
  const std::filesystem::path campaign = working_campaign(find_campaign(options.run.campaign));
  if (!engine::Client(campaign).command(request)) {
    const bool ends = std::holds_alternative<wire::DrainRequest>(request) ||
                      std::holds_alternative<wire::StopRequest>(request);
    if (!ends || !command_between_allocations(read_plan_to_run(campaign), request))
      throw no_coordinator(campaign, verb);
  }
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"directory", campaign.string()}, {"asked", verb}}.dump());
  } else {
    fmt::print("{}\n", said);
  }
  return 0;
}

void add_simple(CLI::App& app, Command& chosen, const std::string& verb, const wire::Request& request,
                const char* description, const char* footer, const char* said) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub = app.add_subcommand(verb, description);
  sub->footer(footer);
  sub->add_option("campaign", options->run.campaign, kCampaign);
  sub->add_flag("--json", options->json, "as JSON");
  sub->callback([options, verb, request, said, &chosen] {
    chosen = [options, verb, request, said] { return simple(*options, verb, request, said); };
  });
}

}  // namespace

void add_retry(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub =
      app.add_subcommand("retry", "run failed tasks again, and what was skipped or ran without them");
  sub->footer(
      "While the campaign runs its coordinator does it; afterwards the campaign is continued, as by wflow "
      "resume.\n"
      "Examples:\n  wflow retry\n  wflow retry cosmoflow simulate/100-199,250\n  wflow retry "
      "--exit-code 137 -j 4\n  wflow retry --where \"omega_m > 0.3\"");
  add_chosen(*sub, options->selection);
  sub->add_option("--exit-code", options->selection.exit_code,
                  "whose last execution ended with this exit code");
  sub->add_flag("--json", options->json, "how many, as JSON");
  sub->add_flag("-n,--dry-run", options->run.preview, "say how many, and change nothing");
  add_common(*sub, options->run);
  sub->callback([options, &chosen] { chosen = [options] { return retry(*options); }; });
}

void add_cancel(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ControlOptions>();
  CLI::App* sub = app.add_subcommand("cancel", "give up tasks that have not started");
  sub->footer(
      "What runs may finish (--kill: is ended); what waits for a cancelled task is skipped or cancelled with "
      "it.\n"
      "Examples:\n  wflow cancel\n  wflow cancel cosmoflow simulate/500:\n  wflow cancel "
      "--kill\n  "
      "wflow cancel --kill --where \"state = running and duration > 600\"");
  add_chosen(*sub, options->selection);
  sub->add_flag("--kill", options->kill, "end running tasks too");
  sub->add_flag("-n,--dry-run", options->run.preview, "say how many, and change nothing");
  sub->add_flag("--json", options->json, "how many, as JSON");
  sub->callback([options, &chosen] { chosen = [options] { return cancel(*options); }; });
}

void add_control(CLI::App& app, Command& chosen) {
  add_simple(app, chosen, "pause", wire::PauseRequest{true}, "start no new tasks until unpause",
             "Workers stay; what runs goes on.\nExamples:\n  wflow pause",
             "paused; go on with: wflow unpause");
  add_simple(app, chosen, "unpause", wire::PauseRequest{false}, "go on after pause",
             "Examples:\n  wflow unpause", "the campaign goes on");
  add_simple(app, chosen, "drain", wire::DrainRequest{}, "let running tasks finish, then end; as Ctrl-C once",
             "Training writes a checkpoint first.\nExamples:\n  wflow drain      # later: wflow resume",
             "draining; continue later with: wflow resume");
  add_simple(app, chosen, "stop", wire::StopRequest{}, "end now; as Ctrl-C twice",
             "What runs is ended and will run again.\nExamples:\n  wflow stop       # later: wflow resume",
             "stopping; continue later with: wflow resume");
}

}  // namespace wflow::cli
