// SPDX-License-Identifier: Apache-2.0
// `merlin` as a user calls it outside of tasks.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/adoption.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/fronts.h"
#include "cli/commands/run.h"
#include "engine/query/client.h"

namespace wflow::cli {

void become_wflow(std::vector<std::string> words) {
  words.insert(words.begin(), sibling_program("wflow"));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(argv[0], argv.data());
  throw system_error(errno, "cannot start " + words[0]);
}

void add_read_words(std::vector<std::string>& words, const specs::ReadOptions& read) {
  if (!read.samples_file.empty()) words.insert(words.end(), {"--samplesfile", read.samples_file});
  if (!read.generator.empty()) words.insert(words.end(), {"--pgen", read.generator});
  for (const std::string& argument : read.generator_arguments)
    words.insert(words.end(), {"--pargs", argument});
  if (read.variables.empty()) return;
  words.emplace_back("--vars");
  words.insert(words.end(), read.variables.begin(), read.variables.end());
}

namespace front {

int run(const MerlinRun& options) {
  std::vector<std::string> words = {"run", options.study, "--soft-fail-ok", "--as", "merlin"};
  if (options.local) words.emplace_back("--local");
  if (options.dry) words.emplace_back("--dry");
  if (!options.local && !options.dry) words.emplace_back("--detach");
  add_read_words(words, options.read);
  become_wflow(std::move(words));
}

int restart(const std::string& workspace, bool local) {
  if (maker_of(workspace)) {
    const Adopted adopted = adopt(workspace, {});
    remember_campaign(adopted.campaign);
    fmt::print("{} is a campaign now: {} done, {} failed, {} left\n", adopted.campaign.string(),
               text::format_count(adopted.done), text::format_count(adopted.failed),
               text::format_count(adopted.left));
  }
  const std::filesystem::path campaign = find_campaign(workspace);
  const bool failed = engine::Client(campaign).retryable({}) > 0;
  std::vector<std::string> words = {failed ? "retry" : "resume", campaign.string(), "--soft-fail-ok"};
  if (!local) words.emplace_back("--detach");
  become_wflow(std::move(words));
}

int monitor(const std::string& target) {
  const int code = follow(find_campaign(target), false, false);
  return code == static_cast<int>(ExitCode::tasks_failed) ? 0 : code;
}

int stop_workers(const std::string& target) {
  const std::filesystem::path campaign = working_campaign(find_campaign(target));
  const bool live = engine::Client(campaign).command(engine::wire::DrainRequest{}).has_value();
  fmt::print("{}\n", live
                         ? fmt::format("{} ends after what runs; go on with: wflow resume", campaign.string())
                         : fmt::format("no workers: nothing runs {}", campaign.string()));
  return 0;
}

int nothing(const std::string& command) {
  fmt::print(stderr, "merlin {}: {}\n", command, instead_of(command));
  return 0;
}

}  // namespace front

}  // namespace wflow::cli
