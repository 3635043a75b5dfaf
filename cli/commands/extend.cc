// SPDX-License-Identifier: Apache-2.0
// `wflow extend`: adds samples to a campaign, after the existing ones.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/update.h"
#include "cli/commands/commands.h"
#include "cli/commands/handover.h"
#include "cli/commands/run.h"
#include "specs/study/changes.h"

namespace wflow::cli {

namespace {

struct ExtendOptions {
  RunOptions run;
  specs::Growth growth;
  std::vector<std::string> ranges;
  std::string count;  // 400, or +200
  UpdateFlags flags;
  bool plan = false;
};

void read_ranges(ExtendOptions& options) {
  for (const std::string& range : options.ranges) {
    const auto at = range.find('=');
    if (at == std::string::npos || at == 0)
      throw Error(ExitCode::usage, fmt::format("--range {}: write NAME=LOW:HIGH", range));
    options.growth.ranges.emplace_back(range.substr(0, at), range.substr(at + 1));
  }
}

std::uint64_t count_of(const specs::Plan& plan, const std::string& written) {
  const bool more = written.starts_with('+');
  const auto number = text::to_integer(written.substr(more ? 1 : 0));
  if (!number || *number < 1 || *number > 1'000'000'000)
    throw Error(ExitCode::usage,
                fmt::format("--count {}: write the samples in all (400), or how many more (+200)", written));
  const std::uint64_t had = plan.study().samples ? plan.study().samples->design.count : 0;
  return static_cast<std::uint64_t>(*number) + (more ? had : 0);
}

void show(const Update& update) {
  const specs::SampleDesign& had = update.from.study().samples->design;
  const specs::SampleDesign& has = update.to.study().samples->design;
  const bool latin = has.kind == specs::DesignKind::latin_hypercube;
  fmt::print("{}: {} samples become {}{}\n", update.from.study().name, text::format_count(had.count),
             text::format_count(has.count),
             latin ? ", together a Latin hypercube again (nested design)" : "");
  for (const std::string& line : engine::lines_of(update.changes)) fmt::print("  {}\n", line);
  for (const std::string& line : lines_of_replaced(update, false)) fmt::print("  {}\n", line);
}

int extend(ExtendOptions options) {
  read_ranges(options);
  const std::filesystem::path campaign = find_campaign(options.run.campaign);
  const specs::Plan plan = options.plan ? read_plan(campaign) : read_plan_to_run(campaign);
  const bool live = is_coordinated(plan);
  if (!live && !options.plan) settle(plan, options.run);
  if (!options.count.empty()) options.growth.count = count_of(plan, options.count);
  Update update = propose_growth(plan, options.growth);
  if (!options.run.silent()) show(update);
  if (options.plan) return 0;
  if (live) {
    if (!may_go_on(options.flags, options.run, live, "add these samples?")) {
      fmt::print("nothing was changed\n");
      return 0;
    }
    update = propose_growth(take_turn(plan, options.run), options.growth);
  }
  UpdateOptions how;
  how.why = options.flags.why;
  how.command = "extend";
  take(update, how);
  return coordinate(update.to, options.run, true);
}

}  // namespace

void add_extend(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExtendOptions>();
  CLI::App* command = app.add_subcommand("extend", "more samples for a campaign, and go on with it");
  command->footer(
      "The samples that are there keep their values, directories and shards, and none moves between training "
      "and\n"
      "test. Sobol, Halton and uniform designs go on by their numbers; a Latin hypercube grows to a multiple "
      "of its\n"
      "count, and is one again. Training begins anew, or with the last model: `init_from: last` in the "
      "train: block.\n"
      "Examples:\n  wflow extend --count 800\n  wflow extend --count +400\n  wflow extend "
      "campaigns/heat_20261121-160001 --samples "
      "table.csv\n"
      "  wflow extend --append more.csv -m 'the corner at small omega'\n"
      "  wflow extend --count 800 --range omega_m=0.2:0.4     # the further 400 from a smaller box");
  command->add_option("campaign", options->run.campaign,
                      "its directory, or the beginning of its name (default: the newest here)");
  auto* count = command->add_option("--count", options->count, "samples in all; +200: so many more");
  auto* samples = command->add_option("--samples", options->growth.samples,
                                      "a table that begins with the campaign's samples, and has more");
  auto* append = command->add_option("--append", options->growth.append, "a table of further samples alone");
  count->excludes(samples)->excludes(append);
  samples->excludes(append);
  command
      ->add_option(
          "--range", options->ranges,
          "with --count: the further samples have this column in LOW:HIGH (NAME=LOW:HIGH; repeatable)")
      ->needs(count);
  command->add_option("-m,--message", options->flags.why, "why, for wflow history");
  command->add_flag("--yes", options->flags.yes,
                    "where the campaign runs: drain it and go on, without asking");
  command->add_flag("--plan,-n,--dry-run", options->plan, "say what would run, and change nothing");
  command->add_flag("--json", options->run.json, "only the status at the end, as JSON");
  add_common(*command, options->run);
  command->callback([options, count, samples, append, &chosen] {
    if (count->count() + samples->count() + append->count() == 0)
      throw CLI::RequiredError("one of --count, --samples and --append");
    chosen = [options] { return extend(*options); };
  });
}

}  // namespace wflow::cli
