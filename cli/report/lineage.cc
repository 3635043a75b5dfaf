// SPDX-License-Identifier: Apache-2.0
// The provenance: versions of the study, history, outputs, programs and machines.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/report/report.h"
#include "specs/plan/workspace.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kListed = 100;

// The variables of the campaign's environment that show which programs it ran; none holds a secret.
constexpr std::array<std::string_view, 10> kVariables = {
    "LOADEDMODULES=",   "CONDA_DEFAULT_ENV=", "CONDA_PREFIX=",         "VIRTUAL_ENV=",        "PATH=",
    "LD_LIBRARY_PATH=", "OMP_NUM_THREADS=",   "CUDA_VISIBLE_DEVICES=", "SLURM_CLUSTER_NAME=", "LANG="};

std::vector<std::pair<std::string, std::string>> environment_of(const std::filesystem::path& campaign) {
  std::vector<std::pair<std::string, std::string>> found;
  std::string all;
  try {
    all = read_file(campaign / ".wflow" / "environment");
  } catch (const Error&) {
    return found;
  }
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    const std::string_view entry = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    for (const std::string_view name : kVariables)
      if (entry.starts_with(name))
        found.emplace_back(name.substr(0, name.size() - 1), entry.substr(name.size()));
  }
  return found;
}

void add_versions(const ReportData& data, Page& page) {
  PageTable table{{"version", "taken in", "by", "why", "changes"}, {true, false, false, false, false}, {}};
  for (const specs::VersionInfo& version : data.versions) {
    std::string changes;
    for (const std::string& change : version.changes) changes += (changes.empty() ? "" : "; ") + change;
    table.rows.push_back({std::to_string(version.number), date_text(version.time_s),
                          fmt::format("{} on {} ({})", version.user, version.host, version.command),
                          version.why, changes});
  }
  if (table.rows.empty()) return;
  page.heading("Versions of the study");
  page.table(table);
}

void add_artifacts(const ReportData& data, Page& page) {
  if (data.status.artifacts.empty()) return;
  PageTable table{{"step", "kind", "file"}, {}, {}};
  for (const engine::ArtifactView& artifact : data.status.artifacts) {
    if (table.rows.size() == kListed) break;
    const std::filesystem::path path =
        std::filesystem::path(artifact.path).lexically_relative(data.plan.campaign());
    table.rows.push_back({artifact.step, artifact.kind, path.empty() ? artifact.path : path.string()});
  }
  page.heading("What was made");
  page.table(table);
}

void add_history(const ReportData& data, Page& page) {
  PageTable table{{"time", "kind", "event"}, {}, {}};
  for (const engine::HistoryView& row : data.status.history)
    table.rows.push_back({date_text(row.time_s), row.kind, row.text});
  if (table.rows.empty()) return;
  page.heading("History");
  page.table(table);
}

void add_followups(const ReportData& data, Page& page) {
  PageTable table{{"kind", "iteration", "state", "directory"}, {}, {}};
  for (const engine::FollowupView& followup : data.status.followups) {
    if (table.rows.size() == kListed) break;
    table.rows.push_back({followup.kind, std::to_string(followup.iteration), engine::state_text(followup),
                          followup.directory});
  }
  if (table.rows.empty()) return;
  page.heading("Campaigns that follow on this one");
  page.table(table);
}

void add_machines(const ReportData& data, Page& page) {
  // Number of workers, most cores of one.
  std::map<std::string, std::pair<std::uint64_t, std::int32_t>> hosts;
  for (const engine::wire::WorkerView& worker : data.workers) {
    auto& [count, cores] = hosts[worker.host];
    ++count;
    cores = std::max(cores, worker.cores);
  }
  if (hosts.empty()) return;
  PageTable table{{"node", "workers", "cores of a worker"}, {false, true, true}, {}};
  for (const auto& [host, facts] : hosts) {
    if (table.rows.size() == kListed) break;
    table.rows.push_back({host, text::format_count(facts.first), std::to_string(facts.second)});
  }
  page.heading("Nodes");
  page.table(table);
}

}  // namespace

void write_lineage(const ReportData& data, const ReportOptions& options, Page& page) {
  page.section("lineage", "Lineage and versions");
  utsname system{};
  ::uname(&system);
  std::vector<std::pair<std::string, std::string>> facts = {
      {"wflow", fmt::format("{} made this report", kVersion)},
      {"tasks", fmt::format("{} in {}", text::format_count(data.status.elements()),
                            counted(data.plan.steps().size(), "step"))},
      {"study", fmt::format("version {}", data.versions.empty() ? 1 : data.versions.back().number)}};
  for (const DataSet& set : data.data_sets)
    facts.emplace_back("data set " + set.step,
                       fmt::format("checksum {}, by {}", set.summary.value("hash", ""),
                                   set.summary.value("created_by", "")));
  if (!options.share) {
    facts.emplace_back("directory", data.plan.campaign().string());
    facts.emplace_back("system", fmt::format("{} {} on {} ({})", system.sysname, system.release,
                                             system.nodename, system.machine));
  }
  page.facts(facts);
  add_versions(data, page);
  add_artifacts(data, page);
  add_followups(data, page);
  add_machines(data, page);
  add_history(data, page);
  if (options.share) {
    page.paragraph(
        "This copy is made for sharing: paths, names of machines and users, the environment and the study's "
        "text are left out.");
    return;
  }
  if (const auto variables = environment_of(data.plan.campaign()); !variables.empty()) {
    page.heading("Environment");
    page.facts(variables);
  }
  try {
    page.details("The study as it was given", read_file(specs::study_file(data.plan.campaign())));
  } catch (const Error& error) {
    page.note(fmt::format("The study's file can't be read: {}", error.what()));
  }
}

}  // namespace wflow::cli::report
