// SPDX-License-Identifier: Apache-2.0
// Completion in shells. Their scripts hold no words: they call `wflow complete WORD...` at every tab, so that
// they never become stale and also complete campaigns and steps.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/task_words.h"
#include "cli/commands/commands.h"
#include "cli/commands/fronts.h"
#include "engine/schedule/states.h"

namespace wflow::cli {

namespace {

constexpr std::size_t kMaxTasks = 200;

constexpr const char* kBash = R"sh(# wflow completion for bash; load it with: source <(wflow completion bash)
_wflow() {
  local IFS=$'\n'
  COMPREPLY=($(wflow complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
  if [ ${#COMPREPLY[@]} -eq 1 ] && [ "${COMPREPLY[0]: -1}" = / ]; then compopt -o nospace; fi
}
complete -o default -F _wflow wflow
)sh";

constexpr const char* kZsh = R"sh(#compdef wflow
# wflow completion for zsh; load it with: source <(wflow completion zsh)
_wflow() {
  local -a found
  local value about
  while IFS=$'\t' read -r value about; do
    found+=("${value//:/\\:}:$about")
  done < <(wflow complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( ${#found} )); then _describe wflow found; else _files; fi
}
compdef _wflow wflow
)sh";

constexpr const char* kFish = R"sh(# wflow completion for fish; load it with: wflow completion fish | source
function __wflow_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (wflow complete $words[2..-1] 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c wflow -f -a '(__wflow_complete)'
)sh";

struct Candidate {
  std::string word;
  std::string about;
};
using Candidates = std::vector<Candidate>;

Candidates campaigns() {
  Candidates result;
  for (const auto& path : find_campaigns(current_directory()))
    result.push_back({short_name(path), "campaign"});
  return result;
}

Candidates steps(const std::filesystem::path& campaign) {
  const specs::Plan plan = read_plan(campaign);
  Candidates result;
  for (const auto& step : plan.steps())
    result.push_back({step.name, fmt::format("{} tasks", step.arrays * step.elements)});
  return result;
}

Candidates tasks(const std::filesystem::path& campaign) {
  const specs::Plan plan = read_plan(campaign);
  Candidates result;
  for (specs::ArrayId array = 0; array < std::min<std::size_t>(plan.array_count(), kMaxTasks); ++array) {
    const auto& step = plan.steps()[plan.step_of(array)];
    result.push_back({plan.array_name(array) + (step.elements > 1 ? "/" : ""), "task"});
  }
  return result;
}

Candidates states() {
  Candidates result;
  for (std::size_t i = 0; i < engine::kElementStates; ++i)
    result.push_back({std::string(name_of(static_cast<engine::ElementState>(i))), "state"});
  return result;
}

Candidates commands(const CLI::App& app) {
  Candidates result;
  for (const CLI::App* command : commands_of(app))
    result.push_back({command->get_name(), command->get_description()});
  return result;
}

bool any_begins(const Candidates& candidates, const std::string& word) {
  return std::any_of(candidates.begin(), candidates.end(),
                     [&](const Candidate& candidate) { return candidate.word.starts_with(word); });
}

// Candidates for the first word: commands of Merlin and Maestro only if no command of wflow begins so.
Candidates first_words(const CLI::App& app, const std::string& begun) {
  Candidates result = commands(app);
  if (any_begins(result, begun)) return result;
  for (const OtherWord& other : other_words())
    result.push_back({std::string(other.word), std::string(other.instead)});
  return result;
}

Candidates options(const CLI::App& command) {
  Candidates result;
  for (const CLI::Option* option : options_of(command)) {
    for (const std::string& name : option->get_lnames())
      result.push_back({"--" + name, option->get_description()});
  }
  return result;
}

// The candidates for a positional or the value of an option; none for a file or free text.
Candidates values(const CLI::App& app, const std::string& name, const TaskWords& given) {
  if (name == "campaign" || name == "campaign-or-file") return campaigns();
  if (name == "campaign-and-tasks") {
    Candidates result = given.empty() ? campaigns() : Candidates();
    for (Candidate& task : tasks(meant_by(given).campaign)) result.push_back(std::move(task));
    return result;
  }
  if (name == "step" || name == "keep") return steps(meant_by(given).campaign);
  if (name == "state") return states();
  if (name == "shell") return {{"bash", ""}, {"zsh", ""}, {"fish", ""}};
  if (name == "command") {
    Candidates result = commands(app);
    result.push_back({"exit-codes", "what the exit codes mean"});
    return result;
  }
  if (name == "template") {
    Candidates result;
    for (const Template& entry : templates())
      result.push_back({std::string(entry.name), std::string(entry.about)});
    return result;
  }
  return {};
}

const CLI::Option* option_named(const CLI::App& command, const std::string& word) {
  if (!word.starts_with('-')) return nullptr;
  return command.get_option_no_throw(word);
}

Candidates candidates(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string& last = words.back();
  if (words.size() == 1) return last.starts_with('-') ? options(app) : first_words(app, last);
  const auto known = commands_of(app);
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const auto* c) { return c->get_name() == words.front(); });
  if (found == known.end()) return {};
  const CLI::App& command = **found;
  if (last.starts_with('-')) return options(command);
  std::vector<std::string> given;  // positionals before the last word
  const CLI::Option* open = nullptr;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const bool is_value = open != nullptr;
    open = option_named(command, words[i]);
    if (open != nullptr && open->get_type_size() == 0) open = nullptr;
    if (!is_value && !words[i].starts_with('-')) given.push_back(words[i]);
  }
  if (open != nullptr)
    return values(app, open->get_lnames().empty() ? "" : open->get_lnames().front(), given);
  const auto positionals = positionals_of(command);
  const bool repeats = !positionals.empty() && positionals.back()->get_items_expected_max() > 1;
  if (given.size() >= positionals.size() && !repeats) return {};
  return values(app, positionals[std::min(given.size(), positionals.size() - 1)]->get_name(), given);
}

}  // namespace

bool complete(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "complete") return false;
  std::vector<std::string> words(argv + 2, argv + argc);
  if (words.empty()) words.emplace_back();
  try {
    for (const Candidate& candidate : candidates(app, words)) {
      if (candidate.word.starts_with(words.back())) fmt::print("{}\t{}\n", candidate.word, candidate.about);
    }
  } catch (const Error&) {
    // Without a campaign there is nothing to complete, and an error would only disturb the command line.
  }
  return true;
}

void add_completion(CLI::App& app, Command& chosen) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "completion of commands, campaigns and steps for a shell");
  command->footer(
      "Prints a script for the shell.\n"
      "Examples:\n  source <(wflow completion bash)      # in ~/.bashrc\n  source <(wflow completion zsh)    "
      "   # in "
      "~/.zshrc\n  wflow completion fish | source       # in ~/.config/fish/config.fish");
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  command->callback([shell, &chosen] {
    chosen = [shell] {
      const char* script = *shell == "bash"   ? kBash
                           : *shell == "zsh"  ? kZsh
                           : *shell == "fish" ? kFish
                                              : nullptr;
      if (script == nullptr)
        throw Error(ExitCode::usage,
                    fmt::format("no completion for '{}'; there are bash, zsh and fish", *shell));
      fmt::print("{}", script);
      return 0;
    };
  });
}

}  // namespace wflow::cli
