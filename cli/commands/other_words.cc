// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/fronts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"

namespace wflow::cli {

namespace {

constexpr auto kWords = std::to_array<OtherWord>({
    {"cancel-all", "wflow cancel gives up what has not started, wflow stop ends all that runs"},
    {"check", "wflow validate checks a study, wflow doctor checks this machine or a campaign"},
    {"clean-all", "wflow rm removes a campaign, wflow clean STEP the raw outputs of a step"},
    {"compare", "wflow diff shows what has changed in a study, wflow report compares trainings"},
    {"conductor", "not needed: wflow run coordinates, and wflow run --detach does so in the background"},
    {"config", "not needed: wflow has no broker and no results backend, so there is nothing to configure"},
    {"continue", "wflow resume goes on with a campaign"},
    {"database",
     "wflow tasks, wflow workers and wflow ls show what is recorded, wflow rm removes a campaign"},
    {"delete", "wflow rm removes a campaign"},
    {"detailed-status", "wflow tasks lists single tasks (STEP, --failed, --json)"},
    {"example", "wflow init lists templates, wflow init NAME writes one"},
    {"info", "wflow doctor checks this machine, wflow --version prints the version"},
    {"jobs", "wflow tasks lists tasks, wflow allocations the jobs of a batch scheduler"},
    {"kill", "wflow stop ends a campaign now, wflow cancel STEP/3 --kill ends one task"},
    {"lint", "wflow validate checks a study"},
    {"list", "wflow ls lists the campaigns here, wflow tasks the tasks of one"},
    {"log", "wflow logs STEP/3 shows what a task printed, wflow history the versions of a study"},
    {"monitor", "wflow attach shows a running campaign and returns when it ends"},
    {"ps", "wflow status shows what runs, wflow tasks --state running lists it"},
    {"purge", "wflow cancel gives up the tasks that have not started; there is no queue outside a campaign"},
    {"query-workers", "wflow workers lists a campaign's workers"},
    {"queue", "wflow status shows what waits and runs, wflow tasks --state running lists it"},
    {"queue-info",
     "wflow status counts what waits and runs in each step, wflow tasks --state ready lists it"},
    {"remove", "wflow rm removes a campaign"},
    {"restart", "wflow resume goes on with a campaign, wflow retry runs what failed again"},
    {"run-workers",
     "not needed: wflow run starts the workers of this machine; elsewhere: wflow worker --campaign DIR"},
    {"scancel", "wflow cancel STEP/3 gives up a task, with --kill also one that runs"},
    {"server", "not needed: a campaign has no server but the wflow run that coordinates it"},
    {"shell", "wflow rerun STEP/3 --shell opens a shell with the environment of a task"},
    {"squeue", "wflow status shows what waits and runs, wflow tasks --state running lists it"},
    {"start", "wflow run begins a campaign, wflow resume goes on with one"},
    {"stop-workers", "wflow drain ends a campaign after the tasks that run, wflow stop ends it now"},
    {"submit", "wflow run submits the allocations that a study asks for (docs/cluster.md)"},
    {"summary", "wflow status shows each step, wflow report writes a page"},
    {"touch", "wflow resume --update --touch takes a change in that does not matter: nothing runs again"},
    {"update",
     "wflow resume --update takes the changed study into a campaign; wflow resume takes other options (-j, "
     "--time-limit)"},
});

// Options of Snakemake, make, Nextflow, sbatch and Merlin.
constexpr auto kOptions = std::to_array<OtherWord>({
    {"--array", "tasks have numbers: STEP/1-5,7"},
    {"--cluster", "the study's batch: block names the scheduler (docs/cluster.md)"},
    {"--executor", "the study's batch: block names the scheduler (docs/cluster.md)"},
    {"--force", "wflow redo STEP runs tasks again that are done, wflow run --new begins a new campaign"},
    {"--forceall", "wflow run --new begins a new campaign"},
    {"--forcerun", "wflow redo STEP runs tasks again that are done"},
    {"--latency-wait", "not needed: workers report the ends of their tasks"},
    {"--profile", "the study's batch: block names the scheduler (docs/cluster.md)"},
    {"--rerun-incomplete", "not needed: wflow resume runs what has not ended"},
    {"--resume", "wflow resume goes on with a campaign"},
    {"--snakefile", "name the study: wflow run STUDY.yaml"},
    {"--summary", "wflow status shows each step"},
    {"--unlock", "not needed: the lock of a campaign ends with its coordinator"},
    {"--wait", "wflow attach waits for the end of a campaign; on: of a study runs a command then"},
    {"-B", "wflow run --new begins a new campaign"},
    {"-F", "wflow run --new begins a new campaign"},
    {"-R", "wflow redo STEP runs tasks again that are done"},
    {"-resume", "wflow resume goes on with a campaign"},
    {"-s", "name the study: wflow run STUDY.yaml"},
});

// An option that CLI11 did not expect, without its value.
std::string option_among(const std::vector<std::string>& words) {
  const auto option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with('-'); });
  return option == words.end() ? std::string() : option->substr(0, option->find('='));
}

}  // namespace

std::span<const OtherWord> other_words() {
  return kWords;
}

std::string_view instead_of(std::string_view word) {
  const auto* const found =
      std::find_if(kWords.begin(), kWords.end(), [&](const auto& known) { return known.word == word; });
  return found == kWords.end() ? std::string_view() : found->instead;
}

void refuse_words(const CLI::App& command, const std::vector<std::string>& words) {
  const std::string name = command.get_parent() == nullptr ? "wflow" : "wflow " + command.get_name();
  const std::string option = option_among(words);
  if (option.empty()) {
    throw Error(ExitCode::usage, fmt::format("{} does not expect '{}' (arguments and examples: {} --help)",
                                             name, text::join(words, " "), name));
  }
  const auto other = std::ranges::find(kOptions, option, &OtherWord::word);
  if (other != kOptions.end())
    throw Error(ExitCode::usage, fmt::format("{} has no option {}: {}", name, option, other->instead));
  std::vector<std::string> names;
  for (const CLI::Option* known : options_of(command)) {
    for (const std::string& word : known->get_lnames()) names.push_back("--" + word);
  }
  throw Error(ExitCode::usage, fmt::format("{} has no option {}{} (all options: {} --help)", name, option,
                                           text::suggestion(option, names), name));
}

void answer_other_word(const std::string& word) {
  const std::string_view instead = instead_of(word);
  if (instead.empty()) return;
  throw Error(ExitCode::usage, fmt::format("{} is no command of wflow: {}", word, instead));
}

}  // namespace wflow::cli
