// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/templates.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "study.yaml";

struct InitOptions {
  std::string name;
  std::string directory = ".";
  bool json = false;
};

int list(bool json) {
  if (json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const Template& entry : templates()) rows.push_back({{"name", entry.name}, {"about", entry.about}});
    fmt::print("{}\n", rows.dump(2));
    return 0;
  }
  Table table({"template", "what it shows"});
  for (const Template& entry : templates())
    table.add({{std::string(entry.name)}, {std::string(entry.about)}});
  table.print(standard_output());
  return 0;
}

const Template& template_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Template& entry : templates()) {
    if (entry.name == name) return entry;
    names.emplace_back(entry.name);
  }
  throw Error(ExitCode::usage, fmt::format("there is no template '{}'{} (wflow init lists them)", name,
                                           text::suggestion(name, names)));
}

int init(const InitOptions& options) {
  if (options.name.empty()) return list(options.json);
  const Template& chosen = template_named(options.name);
  const fs::path file = (fs::path(options.directory) / kFile).lexically_normal();
  make_directories(fs::path(options.directory));
  std::error_code ignored;
  if (fs::exists(file, ignored))
    throw Error(ExitCode::usage,
                fmt::format("{} exists already; wflow init replaces nothing", file.string()));
  write_file_durably(file, chosen.text);
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"template", chosen.name}, {"file", file.string()}}.dump());
  } else {
    fmt::print("{}: now\n  wflow plan {}\n  wflow run {}\n", file.string(), file.string(), file.string());
  }
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", "write a study to begin with");
  command->footer(
      "Without a template: lists them. Each is a study.yaml with comments that runs as it is; nothing is "
      "replaced.\n"
      "Examples:\n  wflow init\n  wflow init hello && wflow run study.yaml\n  wflow init cosmoflow "
      "universes");
  command->add_option("template", options->name, "which (default: list them)");
  command->add_option("directory", options->directory, "where to put study.yaml (default: here)");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return init(*options); }; });
}

}  // namespace wflow::cli
