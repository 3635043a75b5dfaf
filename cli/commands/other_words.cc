// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/fronts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace wflow::cli {

namespace {

constexpr std::array<OtherWord, 15> kWords = {{
    {"conductor", "not needed: wflow run coordinates, and wflow run --detach does so in the background"},
    {"config", "not needed: wflow has no broker and no results backend, so there is nothing to configure"},
    {"database",
     "wflow tasks, wflow workers and wflow ls show what is recorded, wflow rm removes a campaign"},
    {"detailed-status", "wflow tasks lists single tasks (--state failed, --step NAME, --json)"},
    {"example", "wflow init lists templates, wflow init NAME writes one"},
    {"info", "wflow doctor checks this machine, wflow --version prints the version"},
    {"monitor", "wflow attach shows a running campaign and returns when it ends"},
    {"purge", "wflow cancel gives up the tasks that have not started; there is no queue outside a campaign"},
    {"query-workers", "wflow workers lists a campaign's workers"},
    {"queue-info",
     "wflow status counts what waits and runs in each step, wflow tasks --state ready lists it"},
    {"restart", "wflow resume goes on with a campaign, wflow retry runs what failed again"},
    {"run-workers",
     "not needed: wflow run starts the workers of this machine; elsewhere: wflow worker --campaign DIR"},
    {"server", "not needed: a campaign has no server but the wflow run that coordinates it"},
    {"stop-workers", "wflow drain ends a campaign after the tasks that run, wflow stop ends it now"},
    {"update",
     "not needed: stop a campaign with wflow drain, then wflow resume takes other options (-j, "
     "--time-limit)"},
}};

}  // namespace

std::span<const OtherWord> other_words() {
  return kWords;
}

std::string_view instead_of(std::string_view word) {
  const auto* const found =
      std::find_if(kWords.begin(), kWords.end(), [&](const auto& known) { return known.word == word; });
  return found == kWords.end() ? std::string_view() : found->instead;
}

void answer_other_word(const std::string& word) {
  const std::string_view instead = instead_of(word);
  if (instead.empty()) return;
  throw Error(ExitCode::usage, fmt::format("{} is no command of wflow: {}", word, instead));
}

}  // namespace wflow::cli
