// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/workspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "specs/plan/plan.h"
#include "specs/plan/versions.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

constexpr int kFormatVersion = 1;

fs::path spec_directory(const fs::path& campaign) {
  return campaign / ".wflow" / "spec";
}

[[noreturn]] void throw_unreadable(const fs::path& file, const nlohmann::json::exception& error) {
  throw Error(ExitCode::data, fmt::format("{} does not read: {}", file.string(), error.what()));
}

// The database, messages and JSON files can hold only text.
void check_text(const char* what, const std::string& text) {
  if (is_utf8(text)) return;
  throw Error(ExitCode::usage,
              fmt::format("{} is not valid UTF-8: {}; a campaign needs names in UTF-8, so rename "
                          "it",
                          what, printable(text)));
}

void check_texts(const Study& study, const fs::path& campaign) {
  check_text("the path of the campaign", campaign.string());
  check_text("the path of the study", study.file.string());
  check_text("the current directory", study.options.directory.string());
  check_text("the path of the samples", study.options.samples_file);
  if (study.samples) check_text("the path of the samples", study.samples->design.file.string());
  for (const std::string& variable : study.options.variables) check_text("a variable", variable);
}

void write_options(const Study& study, const fs::path& directory, const fs::path& info) {
  nlohmann::json json = options_to_json(study.options);
  json["version"] = kFormatVersion;
  json["file"] = study.file.string();
  json["study_xxh3_128"] = hash_bytes(study.text);
  const auto tables = study.samples ? sample_files(study.samples->design) : std::vector<SampleFile>();
  for (const SampleFile& table : tables) {
    for (const fs::path& file : {directory / kSamplesFolder / table.copy, info / table.copy, table.file}) {
      std::error_code none;
      const bool is_copy = file != table.file || file.parent_path().filename() == info.filename();
      if (!is_copy || !fs::is_regular_file(file, none)) continue;
      json["tables_xxh3_128"][table.copy] = hash_file(file);
      break;
    }
  }
  write_file_durably(directory / "options.json", with_checksum(json.dump(2) + "\n"));
}

// The content of a file that write_options() wrote.
struct WrittenOptions {
  ReadOptions options;
  fs::path file;           // the study's
  std::string study_hash;  // hash of its copy; empty in older campaigns
};

WrittenOptions read_options(const fs::path& campaign, const fs::path& folder) {
  const fs::path path = folder / "options.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw Error(ExitCode::data,
                fmt::format("{} is no campaign directory (it has no {})", campaign.string(), path.string()));
  }
  const CheckedJson file = take_checksum(read_file(path));
  if (!file.whole) {
    throw Error(
        ExitCode::data,
        fmt::format("{} is damaged (its checksum does not match); put a copy of it back, or copy the study "
                    "and begin anew with wflow run",
                    path.string()));
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(file.text);
    if (json.at("version").get<int>() > kFormatVersion) {
      throw Error(ExitCode::version,
                  fmt::format("{} was made by a newer wflow; use that one", campaign.string()));
    }
    WrittenOptions written{options_from_json(json, path), json.at("file").get<std::string>(),
                           json.value("study_xxh3_128", "")};
    if (json.contains("tables_xxh3_128"))
      written.options.table_checksums = json.at("tables_xxh3_128").get<std::map<std::string, std::string>>();
    return written;
  } catch (const nlohmann::json::exception& error) {
    throw_unreadable(path, error);
  }
}

void copy_durably(const fs::path& from, const fs::path& to) {
  std::error_code same;
  if (fs::equivalent(from, to, same)) return;
  DurableFile file(to);
  std::error_code error;
  fs::copy_file(from, file.temporary(), error);
  if (error)
    throw system_error(error.value(), fmt::format("cannot copy {} to {}", from.string(), to.string()));
  file.publish();
}

// samples: generate: cmd: runs in merlin_info/, where Merlin puts its script and output.
void generate_samples(const Study& study, const fs::path& info) {
  const fs::path script = info / "cmd.sh";
  write_file_durably(script, "#!/bin/bash\n\n" + study.samples->generate_command + "\n", 0755);
  SpawnRequest request;
  request.argv = {study.batch.shell.find(' ') == std::string::npos ? study.batch.shell : "/bin/bash",
                  script.string()};
  request.directory = study.options.directory.string();
  const CommandResult result = run_command(request);
  write_file_durably(info / "cmd.out", result.out);
  write_file_durably(info / "cmd.err", result.err);
  std::error_code ignored;
  const bool there = fs::exists(study.samples->design.file, ignored);
  if (there && result.status == 0) return;
  if (there && study.merlin) {  // Merlin only checks that the file exists
    log::write(
        LogLevel::warning,
        fmt::format("samples: generate: cmd: ended with exit code {}; {} is there and is used; its output "
                    "is in {}",
                    result.status, study.samples->design.file.string(), (info / "cmd.err").string()));
    return;
  }
  const std::string said(text::trim(text::tail(result.err, 400)));
  throw Error(
      ExitCode::data,
      fmt::format("samples: generate: cmd: {}; its output is in {}{}",
                  result.status != 0 ? fmt::format("ended with exit code {}", result.status)
                                     : fmt::format("did not write {}", study.samples->design.file.string()),
                  (info / "cmd.err").string(), said.empty() ? "" : ":\n" + said));
}

}  // namespace

fs::path campaign_directory(const Study& study, std::string_view timestamp) {
  std::string name = study.name.empty() ? "study" : study.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return study.output_path / fmt::format("{}_{}", name, timestamp.empty() ? kNoTimestamp : timestamp);
}

void require_trusted(const fs::path& campaign) {
  require_trusted_folder(campaign / ".wflow", "they could change what wflow runs as you");
}

Plan create_campaign(const Plan& plan) {
  const Study& study = plan.study();
  const fs::path& campaign = plan.campaign();
  require_trusted(campaign);
  const fs::path info = campaign / "merlin_info";
  const fs::path spec = spec_directory(campaign);
  std::error_code ignored;
  if (fs::exists(spec / "options.json", ignored)) {
    throw Error(ExitCode::usage,
                fmt::format("{} is a campaign already; continue it with wflow resume", campaign.string()));
  }
  check_texts(study, campaign);
  make_own_directories(info);
  // A command that generates samples may read these files.
  const std::string stem = study.file.stem().string();
  write_file_durably(info / (stem + ".orig.yaml"), study.text);
  write_file_durably(info / (stem + ".partial.yaml"), yaml::emit(study.partial));
  for (const GitDependency& git : study.git) clone_dependency(git);
  if (study.samples) {
    const fs::path& file = study.samples->design.file;
    if (!study.samples->generate_command.empty() && !fs::exists(file, ignored)) generate_samples(study, info);
    for (const SampleFile& table : sample_files(study.samples->design))
      copy_durably(table.file, info / table.copy);
  }
  record_study(study, campaign);
  Plan result(read_campaign(campaign), campaign);
  write_copies(result.study(), campaign);
  return result;
}

bool generates_samples(const Study& campaigns, const Study& now) {
  if (!now.samples || now.samples->generate_command.empty()) return false;
  return now.samples->design.count == 0 || !campaigns.samples ||
         campaigns.samples->generate_command != now.samples->generate_command;
}

fs::path generate_samples_anew(const Study& now, const fs::path& campaign) {
  const fs::path& file = now.samples->design.file;
  // The first version's copy is in merlin_info/, where the command may write.
  if (const Study current = read_campaign(campaign); current.samples) {
    for (const SampleFile& table : sample_files(current.samples->design)) {
      const fs::path copy = spec_directory(campaign) / kSamplesFolder / table.copy;
      std::error_code none;
      if (fs::exists(copy, none)) continue;
      make_directories(copy.parent_path());
      copy_durably(table.file, copy);
    }
  }
  fs::path before = file;
  before += ".before";
  std::error_code error;
  fs::rename(file, before, error);
  if (error) before.clear();
  if (error && error != std::errc::no_such_file_or_directory)
    throw system_error(error.value(), fmt::format("cannot move {}", file.string()));
  try {
    generate_samples(now, campaign / "merlin_info");
  } catch (const Error&) {
    undo_generated_samples(now, before);
    throw;
  }
  return before;
}

void undo_generated_samples(const Study& now, const fs::path& before) {
  std::error_code none;
  if (before.empty()) {
    fs::remove(now.samples->design.file, none);
  } else {
    fs::rename(before, now.samples->design.file, none);
  }
}

void write_copies(const Study& study, const fs::path& campaign) {
  const fs::path info = campaign / "merlin_info";
  const std::string stem = study.file.stem().string();
  make_directories(info);
  write_file_durably(info / (stem + ".orig.yaml"), study.text);
  write_file_durably(info / (stem + ".partial.yaml"), yaml::emit(study.partial));
  write_file_durably(info / (stem + ".expanded.yaml"), yaml::emit(expanded_copy(study)));
}

void record_study(const Study& study, const fs::path& campaign) {
  check_texts(study, campaign);
  make_private_folder(campaign / ".wflow");
  VersionInfo first;
  first.number = 1;
  first.command = "run";
  write_version(study, campaign, first, false);
  // Last: a directory with this link is a complete campaign.
  make_current(campaign, first.number);
}

void write_study_files(const Study& study, const fs::path& folder, const fs::path& info) {
  check_texts(study, folder);
  write_file_durably(folder / "study.yaml", study.text);
  write_options(study, folder, info);
}

namespace {

fs::path without_slash(const fs::path& campaign) {
  const fs::path path = absolute_path(campaign).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

std::string text_of(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none) ? read_file(file) : std::string();
}

// The copy of the study; if it is damaged, the copy for users, provided that it has the same text.
fs::path whole_copy(const fs::path& campaign, const fs::path& folder, const WrittenOptions& written) {
  fs::path copy = folder / "study.yaml";
  if (written.study_hash.empty() || hash_bytes(text_of(copy)) == written.study_hash) return copy;
  const fs::path other = campaign / "merlin_info" / (written.file.stem().string() + ".orig.yaml");
  if (hash_bytes(text_of(other)) == written.study_hash) return other;
  throw Error(
      ExitCode::data,
      fmt::format("the campaign's copy of its study, {}, is damaged or was changed (its checksum does not "
                  "match); put the text that the campaign began with back in its place",
                  copy.string()));
}

Study read_folder(const fs::path& campaign, const fs::path& folder) {
  WrittenOptions written = read_options(campaign, folder);
  written.options.campaign = campaign;
  written.options.version_folder = folder;
  return read_study_copy(whole_copy(campaign, folder, written), written.file, written.options).study;
}

}  // namespace

Study read_campaign(const fs::path& campaign) {
  const fs::path path = without_slash(campaign);
  require_trusted(path);
  return read_folder(path, spec_directory(path));
}

std::vector<std::string> version_damage(const fs::path& campaign, std::uint64_t number) {
  const fs::path path = without_slash(campaign);
  const fs::path folder = version_directory(path, number);
  std::vector<std::string> damage;
  try {
    const WrittenOptions written = read_options(path, folder);
    const fs::path copy = folder / "study.yaml";
    if (!written.study_hash.empty() && hash_bytes(text_of(copy)) != written.study_hash)
      damage.push_back(fmt::format("{} is not the study that was taken in: its checksum does not match",
                                   copy.lexically_relative(path).string()));
    for (const auto& [name, hash] : written.options.table_checksums) {
      fs::path table = folder / kSamplesFolder / name;
      std::error_code none;
      if (number == 1 && !fs::exists(table, none)) table = path / "merlin_info" / name;
      const std::string shown = table.lexically_relative(path).string();
      if (!fs::exists(table, none)) {
        damage.push_back(fmt::format("{}, the table of samples, is missing", shown));
      } else if (hash_file(table) != hash) {
        damage.push_back(fmt::format(
            "{} is not the table of samples that was taken in: its checksum does not match", shown));
      }
    }
  } catch (const Error& error) {
    damage.emplace_back(error.what());
  }
  return damage;
}

Study read_version(const fs::path& campaign, std::uint64_t number) {
  const fs::path path = without_slash(campaign);
  require_trusted(path);
  return read_folder(path, version_directory(path, number));
}

ReadOptions update_options(const fs::path& campaign, std::uint64_t version) {
  const fs::path path = without_slash(campaign);
  const fs::path folder = version > 0 ? version_directory(path, version) : spec_directory(path);
  ReadOptions options = read_options(path, folder).options;
  options.campaign = path;
  options.version_folder = folder;
  options.fresh_samples = true;
  options.parameters.clear();
  // Existing directories keep their layout.
  if (const Study study = read_folder(path, folder); study.samples)
    options.layout_samples = study.samples->layout_count();
  return options;
}

fs::path study_file(const fs::path& campaign) {
  return read_options(absolute_path(campaign), spec_directory(absolute_path(campaign))).file;
}

fs::path study_copy(const fs::path& campaign) {
  return spec_directory(campaign) / "study.yaml";
}

StudyAndWarnings read_study_copy(const fs::path& copy, const fs::path& file, const ReadOptions& options) {
  return read_study_text(read_file(copy), file, copy.string(), options);
}

nlohmann::json options_to_json(const ReadOptions& options) {
  nlohmann::json json = {{"directory", options.directory.string()},
                         {"variables", options.variables},
                         {"samples_file", options.samples_file},
                         {"strict", options.strict},
                         {"timestamp", options.timestamp}};
  json["split_version"] = options.split_version;
  if (options.layout_samples > 0) json["layout_samples"] = options.layout_samples;
  if (options.local) json["local"] = true;
  if (!options.grown.empty()) json["grown"] = options.grown;
  if (options.leaf_status) json["leaf_status"] = true;
  if (options.uses_by_prefix) json["uses_by_prefix"] = true;
  if (options.dialect) json["dialect"] = name_of(*options.dialect);
  if (options.command) json["command"] = name_of(*options.command);
  if (!options.generator.empty()) {
    json["generator"] = options.generator;
    json["generator_arguments"] = options.generator_arguments;
    json["parameters"] = options.parameters;
  }
  if (options.iteration.number > 1) {
    json["iteration"] = {{"number", options.iteration.number},
                         {"previous", options.iteration.previous.string()},
                         {"first", options.iteration.first.string()}};
  }
  return json;
}

ReadOptions options_from_json(const nlohmann::json& json, const fs::path& where) {
  ReadOptions options;
  try {
    options.directory = json.at("directory").get<std::string>();
    options.variables = json.at("variables").get<std::vector<std::string>>();
    options.samples_file = json.at("samples_file").get<std::string>();
    options.strict = json.at("strict").get<bool>();
    options.timestamp = json.at("timestamp").get<std::string>();
    options.layout_samples = json.value("layout_samples", std::uint64_t{0});
    options.split_version = json.value("split_version", 1);
    options.local = json.value("local", false);
    options.grown = json.value("grown", std::vector<std::uint64_t>{});
    options.leaf_status = json.value("leaf_status", false);
    options.uses_by_prefix = json.value("uses_by_prefix", false);
    options.dialect = dialect_named(json.value("dialect", ""));
    options.command = dialect_named(json.value("command", ""));
    if (json.contains("generator")) {
      options.generator = json.at("generator").get<std::string>();
      options.generator_arguments = json.at("generator_arguments").get<std::vector<std::string>>();
      options.parameters = json.at("parameters").get<std::string>();
    }
    if (const auto at = json.find("iteration"); at != json.end()) {
      options.iteration.number = at->at("number").get<int>();
      options.iteration.previous = at->at("previous").get<std::string>();
      options.iteration.first = at->at("first").get<std::string>();
    }
  } catch (const nlohmann::json::exception& error) {
    throw_unreadable(where, error);
  }
  return options;
}

namespace {

// A private directory beside the target, removed with its content.
class CloneDirectory {
 public:
  explicit CloneDirectory(const fs::path& target) {
    std::string name = (target.parent_path() / ("." + target.filename().string() + ".clone-XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr)
      throw system_error(errno, "cannot make a directory beside " + target.string());
    path_ = name;
  }
  CloneDirectory(const CloneDirectory&) = delete;
  CloneDirectory& operator=(const CloneDirectory&) = delete;
  ~CloneDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void run_git(const GitDependency& git, std::vector<std::string> argv) {
  SpawnRequest request;
  request.argv = std::move(argv);
  const CommandResult result = run_command(request);
  if (result.status == 0) return;
  throw Error(ExitCode::system, fmt::format("the dependency '{}' can't be cloned from {}: {}", git.name,
                                            git.url, text::trim(text::tail(result.err, 400))));
}

}  // namespace

void clone_dependency(const GitDependency& git) {
  const fs::path target = fs::path(git.path) / git.name;
  std::error_code error;
  if (fs::exists(target, error)) return;
  make_directories(target.parent_path());
  const CloneDirectory directory(target);
  // Below the private directory, so that git chooses the access rights.
  const fs::path repository = directory.path() / "repository";
  run_git(git, {"git", "clone", "--quiet", "--", git.url, repository.string()});
  if (!git.tag.empty())
    run_git(git, {"git", "-C", repository.string(), "checkout", "--quiet", git.tag, "--"});
  fs::rename(repository, target, error);
  // Another campaign that started at the same time may have been first: its clone is equivalent.
  const bool other_was_first = error == std::errc::directory_not_empty || error == std::errc::file_exists;
  if (error && !other_was_first)
    throw system_error(error.value(), fmt::format("cannot make {}", target.string()));
}

}  // namespace wflow::specs
