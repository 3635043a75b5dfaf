// SPDX-License-Identifier: Apache-2.0
// `wflow schema`: the JSON Schema of studies, and where editors look for it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"
#include "cli/import/import.h"
#include "specs/study/study.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSchemaFile = "wflow.schema.json";

struct SchemaOptions {
  bool tables = false;
  bool vscode = false;
  bool modeline = false;
  std::vector<std::string> studies;
};

// The studies that are named, or else study.yaml and those in this folder.
std::vector<std::string> studies_of(const SchemaOptions& options) {
  if (!options.studies.empty()) return options.studies;
  std::vector<std::string> names = {"study.yaml"};
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    const bool yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    if (yaml && name != names.front() && entry.is_regular_file() && is_study(read_file(entry.path())))
      names.push_back(name);
  }
  std::sort(names.begin() + 1, names.end());
  return names;
}

// The settings with the studies of this schema added; null if they are there. Throws OrderedJson::exception
// for what is no object.
OrderedJson with_schema(OrderedJson settings, const std::string& schema,
                        const std::vector<std::string>& studies) {
  OrderedJson& files = settings["yaml.schemas"][schema];
  if (files.is_string()) files = OrderedJson::array({files});
  bool changed = false;
  for (const std::string& study : studies) {
    if (std::find(files.begin(), files.end(), study) != files.end()) continue;
    files.push_back(study);
    changed = true;
  }
  return changed ? settings : OrderedJson();
}

// Merges with the settings of the user. Settings with comments would lose them, so they stay as they are.
int write_vscode(const SchemaOptions& options) {
  const fs::path folder = ".vscode";
  const fs::path settings = folder / "settings.json";
  const std::string schema = "./" + (folder / kSchemaFile).string();
  const std::vector<std::string> studies = studies_of(options);
  make_directories(folder);
  write_file_durably(folder / kSchemaFile, specs::study_schema());
  std::error_code ignored;
  const std::string present = fs::exists(settings, ignored) ? read_file(settings) : "{}";
  try {
    const OrderedJson merged = with_schema(OrderedJson::parse(present), schema, studies);
    if (merged.is_null()) {
      fmt::print("{} already names {}\n", settings.string(), schema);
      return 0;
    }
    write_file_durably(settings, merged.dump(2) + "\n");
  } catch (const OrderedJson::exception&) {
    const OrderedJson entry = {{schema, studies}};
    fmt::print(
        "{} has comments or is not an object, so that it stays as it is: add to it\n"
        "  \"yaml.schemas\": {}\n",
        settings.string(), entry.dump());
    return 0;
  }
  fmt::print("{}: {} for {}; it needs the extension redhat.vscode-yaml\n", settings.string(), schema,
             fmt::join(studies, ", "));
  return 0;
}

// The line of the YAML language server in front of each study, and the schema beside it.
int write_modelines(const SchemaOptions& options) {
  const std::string begin = "# yaml-language-server:";
  for (const std::string& name : options.studies) {
    const fs::path study = name;
    const std::string text = read_file(study);
    write_file_durably(study.parent_path() / kSchemaFile, specs::study_schema());
    if (text.starts_with(begin)) {
      fmt::print("{} has the line already\n", name);
      continue;
    }
    write_file_durably(study, fmt::format("{} $schema={}\n{}", begin, kSchemaFile, text));
    fmt::print("{}: its first line names {}\n", name, kSchemaFile);
  }
  return 0;
}

int schema(const SchemaOptions& options) {
  if (options.vscode) return write_vscode(options);
  if (options.modeline) {
    if (options.studies.empty())
      throw Error(ExitCode::usage, "name the studies that get the line: wflow schema --modeline study.yaml");
    return write_modelines(options);
  }
  if (!options.studies.empty())
    throw Error(ExitCode::usage,
                fmt::format("'{}': files go with --vscode or --modeline", options.studies.front()));
  fmt::print("{}", options.tables ? specs::key_tables() : specs::study_schema());
  return 0;
}

}  // namespace

void add_schema(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("schema", "print the JSON Schema of the study file, for editors");
  command->footer(
      "VS Code: --vscode writes .vscode/wflow.schema.json here and names it in .vscode/settings.json. Your "
      "settings stay; with comments in them, the line to add is printed.\n"
      "Any editor with the YAML language server: --modeline writes wflow.schema.json beside each study, and "
      "# yaml-language-server: $schema=wflow.schema.json as its first line.\n"
      "Examples:\n  wflow schema > wflow.schema.json\n  wflow schema --vscode\n  wflow schema --modeline "
      "study.yaml\n  wflow schema --tables");
  const auto options = std::make_shared<SchemaOptions>();
  CLI::Option* tables = command->add_flag("--tables", options->tables,
                                          "print the keys of all blocks as Markdown tables instead");
  CLI::Option* vscode =
      command->add_flag("--vscode", options->vscode, "write it where VS Code looks, for the studies here");
  command
      ->add_flag("--modeline", options->modeline,
                 "write it beside the studies, and name it in their first lines")
      ->excludes(vscode)
      ->excludes(tables);
  vscode->excludes(tables);
  command->add_option("studies", options->studies,
                      "with --vscode (default: study.yaml and the studies in this folder) or --modeline");
  command->callback([options, &chosen] { chosen = [options] { return schema(*options); }; });
}

}  // namespace wflow::cli
