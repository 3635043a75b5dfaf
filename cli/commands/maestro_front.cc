// SPDX-License-Identifier: Apache-2.0
// Maestro's command line, for users (wflow install-shims).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/fronts.h"

namespace wflow::cli {

namespace {

struct MaestroOptions {
  std::vector<std::string> targets;
  specs::ReadOptions read;
  std::string output;
  int throttle = 0;
  bool dry = false, foreground = false, yes = false, no = false, hashed = false;
  std::vector<std::string> unused;  // options that have no effect here
};

int run(MaestroOptions& options) {
  if (options.hashed)
    throw Error(ExitCode::usage,
                "maestro --hashws: wflow names the directories of tasks after their labels only");
  std::vector<std::string> words = {"run", options.targets.front(), "--as", "maestro"};
  if (options.dry || options.no) {
    words.emplace_back("--dry");
  } else if (!options.foreground) {
    words.emplace_back("--detach");
  }
  if (options.throttle > 0) words.insert(words.end(), {"--slots", std::to_string(options.throttle)});
  if (!options.output.empty()) options.read.variables.push_back("OUTPUT_PATH=" + options.output);
  for (const std::string& name : options.unused)
    fmt::print(stderr, "maestro run: {} has no effect here\n", name);
  add_read_words(words, options.read);
  become_wflow(std::move(words));
}

// `maestro run -o DIR` makes a campaign in DIR, and a user of Maestro's names DIR: its newest campaign.
std::string campaign_at(const std::string& directory) {
  std::error_code none;
  if (is_campaign(directory) || !std::filesystem::is_directory(directory, none)) return directory;
  const auto campaigns = find_campaigns(directory);
  return campaigns.empty() ? directory : campaigns.back().string();
}

// `wflow words... DIRECTORY` for each; the exit code is the worst.
int for_each(const std::vector<std::string>& directories, std::vector<std::string> words) {
  if (directories.size() == 1) {
    words.push_back(campaign_at(directories.front()));
    become_wflow(std::move(words));
  }
  words.insert(words.begin(), sibling_program("wflow"));
  int worst = 0;
  for (const std::string& directory : directories) {
    SpawnRequest request;
    request.argv = words;
    request.argv.push_back(campaign_at(directory));
    const CommandResult result = run_command(request);
    fmt::print("{}", result.out);
    fmt::print(stderr, "{}", result.err);
    worst = std::max(worst, result.status);
  }
  return worst;
}

void add_all(const AddCommand& add_command, MaestroOptions& options) {
  const auto add = [&](const char* name, const char* target, const Command& action) {
    CLI::App* command = add_command(name, action);
    command->add_option(target, options.targets)->required();
    return command;
  };
  CLI::App* study = add("run", "specification", [&options] { return run(options); });
  study->add_option("-p,--pgen", options.read.generator);
  study->add_option("--pargs", options.read.generator_arguments)->take_all();
  study->add_option("-o,--out", options.output);
  study->add_option("-t,--throttle", options.throttle);
  study->add_flag("-d,--dry,--dryrun", options.dry);
  study->add_flag("-y,--autoyes", options.yes);
  study->add_flag("-n,--autono", options.no);
  study->add_flag("--hashws", options.hashed);
  study->add_flag("--fg", options.foreground);
  const auto ignore = [&](const char* names, const char* shown) {
    study->add_option_function<std::string>(
        names, [&options, shown](const std::string&) { options.unused.emplace_back(shown); });
  };
  ignore("-a,--attempts", "--attempts");
  ignore("-r,--rlimit", "--rlimit");
  ignore("-s,--sleeptime", "--sleeptime");
  study->add_flag_callback("--usetmp", [&options] { options.unused.emplace_back("--usetmp"); });
  CLI::App* shown = add("status", "directory", [&options] { return for_each(options.targets, {"status"}); });
  shown->add_option_function<std::string>("--layout", [](const std::string&) {});
  shown->add_flag("--disable-theme");
  shown->add_flag("--disable-pager");
  add("cancel", "directory", [&options] {
    return for_each(options.targets, {"cancel", "--kill"});
  })->add_flag("-y,--autoyes");
  add("update", "directory", [] { return answer_other_word("update"), 0; })->allow_extras();
}

// Options before the command, and those with one dash and several letters.
std::vector<std::string> plain(const std::vector<std::string>& words) {
  std::vector<std::string> left;
  bool command = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool takes_value =
        words[i] == "-l" || words[i] == "--logpath" || words[i] == "-d" || words[i] == "--debug_lvl";
    if (!command && takes_value) {
      ++i;
    } else if (!command && (words[i] == "-c" || words[i] == "--logstdout")) {
      continue;
    } else {
      command = command || !words[i].starts_with('-');
      left.push_back(words[i] == "-fg" ? "--fg" : words[i]);
    }
  }
  return left;
}

}  // namespace

std::optional<int> run_maestro(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "maestro") return std::nullopt;
  MaestroOptions options;
  return run_front("maestro", plain({argv + 2, argv + argc}),
                   [&](const AddCommand& add) { add_all(add, options); });
}

}  // namespace wflow::cli
