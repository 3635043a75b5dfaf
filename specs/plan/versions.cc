// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/versions.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/process.h"
#include "base/text.h"
#include "specs/plan/workspace.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

constexpr const char* kAbout = "about.json";

fs::path studies(const fs::path& campaign) {
  return campaign / ".wflow" / "studies";
}

fs::path link_of(const fs::path& campaign) {
  return campaign / ".wflow" / "spec";
}

std::string user_name() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(::geteuid());
}

void copy_samples(const Study& study, const fs::path& folder) {
  if (!study.samples) return;
  for (const SampleFile& table : sample_files(study.samples->design)) {
    make_directories(folder / kSamplesFolder);
    DurableFile file(folder / kSamplesFolder / table.copy);
    std::error_code error;
    fs::copy_file(table.file, file.temporary(), error);
    if (error)
      throw system_error(error.value(),
                         fmt::format("cannot copy {} to {}", table.file.string(), folder.string()));
    file.publish();
  }
}

VersionInfo read_info(const fs::path& campaign, std::uint64_t number) {
  VersionInfo info;
  info.number = number;
  const auto json =
      nlohmann::json::parse(read_file(version_directory(campaign, number) / kAbout), nullptr, false);
  if (!json.is_object()) return info;
  info.time_s = json.value("time", 0.0);
  info.user = json.value("user", "");
  info.host = json.value("host", "");
  info.why = json.value("why", "");
  info.command = json.value("command", "");
  info.changes = json.value("changes", std::vector<std::string>());
  return info;
}

}  // namespace

fs::path version_directory(const fs::path& campaign, std::uint64_t number) {
  return studies(campaign) / std::to_string(number);
}

bool has_version(const fs::path& campaign, std::uint64_t number) {
  std::error_code none;
  return fs::is_directory(version_directory(campaign, number), none);
}

std::uint64_t current_version(const fs::path& campaign) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link_of(campaign), error);
  const auto number = error ? std::nullopt : text::to_integer(target.filename().string());
  if (!number || *number < 1) {
    throw Error(ExitCode::data, fmt::format("{} is no campaign directory (it has no {})", campaign.string(),
                                            link_of(campaign).string()));
  }
  return static_cast<std::uint64_t>(*number);
}

std::vector<VersionInfo> versions(const fs::path& campaign, std::uint64_t last) {
  std::vector<VersionInfo> all;
  for (std::uint64_t number = 1; number <= last; ++number) {
    if (has_version(campaign, number)) all.push_back(read_info(campaign, number));
  }
  return all;
}

void write_version(const Study& study, const fs::path& campaign, VersionInfo info, bool with_samples) {
  const fs::path folder = version_directory(campaign, info.number);
  const fs::path part = studies(campaign) / fmt::format(".{}.new", info.number);
  std::error_code none;
  fs::remove_all(part, none);  // left by an update that was killed
  fs::remove_all(folder, none);
  make_directories(part);
  if (with_samples) copy_samples(study, part);
  write_study_files(study, part, campaign / "merlin_info");
  const nlohmann::ordered_json about = {
      {"number", info.number},   {"time", unix_now_s()}, {"user", user_name()},    {"host", host_name()},
      {"command", info.command}, {"why", info.why},      {"changes", info.changes}};
  write_file_durably(part / kAbout,
                     about.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  sync_directory(part);
  std::error_code error;
  fs::rename(part, folder, error);
  if (error) throw system_error(error.value(), fmt::format("cannot make {}", folder.string()));
  sync_directory(studies(campaign));
}

void remove_version(const fs::path& campaign, std::uint64_t number) {
  // Moves it away first: the rest after a kill must not look like a version.
  const fs::path gone = studies(campaign) / fmt::format(".{}.gone", number);
  std::error_code none;
  fs::remove_all(gone, none);
  fs::rename(version_directory(campaign, number), gone, none);
  fs::remove_all(gone, none);
}

void make_current(const fs::path& campaign, std::uint64_t number) {
  const fs::path link = link_of(campaign);
  const fs::path part = campaign / ".wflow" / ".spec.new";
  std::error_code error;
  fs::remove(part, error);
  fs::create_symlink(fs::path("studies") / std::to_string(number), part, error);
  if (!error) fs::rename(part, link, error);
  if (error) throw system_error(error.value(), fmt::format("cannot make {}", link.string()));
  sync_directory(link.parent_path());
}

}  // namespace wflow::specs
