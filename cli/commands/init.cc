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
#include "cli/import/import.h"
#include "cli/view/terminal.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "study.yaml";

struct InitOptions {
  std::string name;
  std::string directory;
  std::string from;
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

void refuse_to_replace(const fs::path& file) {
  std::error_code ignored;
  if (fs::exists(file, ignored))
    throw Error(ExitCode::usage,
                fmt::format("{} exists already; wflow init replaces nothing", file.string()));
}

void print_next_steps(const std::string& files, const fs::path& study) {
  fmt::print("{}: now\n  wflow plan {}\n  wflow run {}\n", files, study.string(), study.string());
}

fs::path study_in(const std::string& directory) {
  const fs::path file = (fs::path(directory.empty() ? "." : directory) / kFile).lexically_normal();
  make_directories(file.parent_path().empty() ? fs::path(".") : file.parent_path());
  refuse_to_replace(file);
  return file;
}

int write_template(const InitOptions& options) {
  const Template& chosen = template_named(options.name);
  const fs::path file = study_in(options.directory);
  write_file_durably(file, chosen.text);
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"template", chosen.name}, {"file", file.string()}}.dump());
  } else {
    print_next_steps(file.string(), file);
  }
  return 0;
}

struct ImportOptions {
  std::string format;  // "merlin", "maestro" or empty: by the file's content
  std::string file;
  std::string directory;
  bool json = false;
};

// Commands run in the directory that the user is in, wherever the study lies; a study's $(SPECROOT) is where
// the file lay.
ImportedStudy imported_from(const ImportOptions& options) {
  const std::string text = read_file(options.file);
  const bool study = !options.format.empty() || is_study(text);
  const fs::path folder = fs::path(options.file).parent_path();
  const fs::path from = absolute_path(study && !folder.empty() ? folder : fs::path("."));
  const bool same = absolute_path(options.directory.empty() ? "." : options.directory) == from;
  const ImportSource source = {.name = fs::path(options.file).filename().string(),
                               .text = text,
                               .folder = same ? std::string("$(SPECROOT)") : from.string()};
  return study ? import_their_study(source, options.format) : import_study(source);
}

int write_imported(const ImportOptions& options) {
  const ImportedStudy imported = imported_from(options);
  const fs::path file = study_in(options.directory);
  nlohmann::json made = {{"from", options.file}, {"kind", imported.kind}, {"file", file.string()}};
  std::string files = file.string();
  if (!imported.table_name.empty()) {
    const fs::path table = file.parent_path() / imported.table_name;
    refuse_to_replace(table);
    write_file_durably(table, imported.table);
    made["samples"] = table.string();
    files += " and " + table.string();
  }
  write_file_durably(file, imported.study);
  if (options.json) {
    fmt::print("{}\n", made.dump());
  } else {
    print_next_steps(files, file);
  }
  return 0;
}

int init(const InitOptions& options) {
  if (options.from.empty()) return options.name.empty() ? list(options.json) : write_template(options);
  if (options.from == "merlin" || options.from == "maestro") {
    if (options.name.empty())
      throw Error(ExitCode::usage, fmt::format("name the study: wflow init --from {} FILE", options.from));
    return write_imported({options.from, options.name, options.directory, options.json});
  }
  if (!options.directory.empty())
    throw Error(ExitCode::usage,
                fmt::format("'{}' and '{}': with --from there is no template, only a directory", options.name,
                            options.directory));
  return write_imported({"", options.from, options.name, options.json});
}

}  // namespace

void add_init(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", "write a study to begin with");
  command->footer(
      "Without a template: lists them. Each is a study.yaml with comments that runs as it is; nothing is "
      "replaced.\n"
      "--from FILE makes a study of a file with one command a line (words that differ become columns of a "
      "table), of a script of a Slurm array, or of a study of Merlin or Maestro (--from merlin FILE says "
      "which). "
      "The latter also run as they are: wflow run FILE.\n"
      "Examples:\n  wflow init\n  wflow init hello && wflow run study.yaml\n  wflow init cosmoflow "
      "universes\n  wflow init --from commands.txt\n  wflow init --from array.sh\n  wflow init --from merlin "
      "feature_demo.yaml demo");
  command->add_option("template", options->name, "which (default: list them)");
  command->add_option("directory", options->directory, "where to put study.yaml (default: here)");
  command
      ->add_option(
          "--from", options->from,
          "make a study of this list of commands, script of a Slurm array, or study of Merlin or Maestro")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "as JSON");
  command->callback([options, &chosen] { chosen = [options] { return init(*options); }; });
}

}  // namespace wflow::cli
