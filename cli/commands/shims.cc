// SPDX-License-Identifier: Apache-2.0
// wflow install-shims: programs `merlin` and `maestro` that are wflow, for scripts that call them.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands/commands.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kNames = {"merlin", "maestro"};
// A later call replaces only files with this line.
constexpr const char* kOurs = "# Written by wflow install-shims.";

std::string text_of(const char* name) {
  return fmt::format("#!/bin/sh\n{}\nexec {} {} \"$@\"\n", kOurs, text::shell_quote(sibling_program("wflow")),
                     name);
}

void require_ours(const fs::path& file) {
  std::error_code none;
  if (!fs::exists(fs::symlink_status(file, none))) return;
  if (fs::is_regular_file(file, none) && read_file(file).find(kOurs) != std::string::npos) return;
  throw Error(ExitCode::usage,
              fmt::format("{} is there and wflow did not write it; name another directory", file.string()));
}

int install(const std::string& directory, bool json) {
  const fs::path target = absolute_path(directory).lexically_normal();
  for (const char* name : kNames) require_ours(target / name);
  make_directories(target);
  for (const char* name : kNames) write_file_durably(target / name, text_of(name), 0755);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"directory", target.string()}, {"programs", kNames}}.dump());
    return 0;
  }
  fmt::print("merlin and maestro in {} are wflow now; remove them with rm\n", target.string());
  for (const char* name : kNames) {
    const auto found = find_program(name);
    std::error_code none;
    if (found && fs::equivalent(*found, target / name, none)) continue;
    fmt::print("your shell does not find them first yet: export PATH={}:\"$PATH\"\n",
               text::shell_quote(target.string()));
    break;
  }
  return 0;
}

}  // namespace

void add_install_shims(CLI::App& app, Command& chosen) {
  const auto directory = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "install-shims", "write programs merlin and maestro that call wflow, for old scripts");
  command->footer(
      "They take the command lines of Merlin and Maestro; docs/coming-from-merlin.md says what becomes of "
      "each. "
      "Under the name merlin the exit code is 0 after soft failures, as Merlin has it.\n"
      "Examples:\n  wflow install-shims ~/wflow-shims && export PATH=~/wflow-shims:$PATH");
  command->add_option("directory", *directory, "where; made if it is not there")->required();
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "what was written, as JSON");
  command->callback(
      [directory, json, &chosen] { chosen = [directory, json] { return install(*directory, *json); }; });
}

}  // namespace wflow::cli
