// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/campaigns.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/adoption.h"
#include "cli/campaign/update.h"
#include "engine/followups/followups.h"
#include "engine/store/store.h"
#include "specs/plan/versions.h"
#include "specs/plan/workspace.h"

namespace wflow::cli {

namespace fs = std::filesystem;

bool is_campaign(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / ".wflow" / "campaign.db", ignored);
}

namespace {

constexpr const char* kExecMark = "exec";

bool is_of_exec(const fs::path& campaign) {
  std::error_code ignored;
  return fs::exists(campaign / ".wflow" / kExecMark, ignored);
}

}  // namespace

void mark_as_exec(const fs::path& campaign) {
  write_file_durably(campaign / ".wflow" / kExecMark, "");
}

fs::path working_campaign(const fs::path& campaign) {
  const fs::path at = engine::running_campaign(campaign).value_or(campaign);
  return is_campaign(at) ? at : campaign;
}

namespace {

void gather(const fs::path& directory, int depth, std::vector<fs::path>& found) {
  std::error_code error;
  // A directory that this user can't read holds no campaign for this user.
  for (fs::directory_iterator at(directory, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    std::error_code gone;
    const fs::path& path = at->path();
    if (!at->is_directory(gone) || path.filename().string().starts_with('.')) continue;
    if (is_campaign(path)) {
      found.push_back(path);
    } else if (depth > 1) {
      gather(path, depth - 1, found);
    }
  }
}

// The path without symbolic links. Throws if it is gone or if this user may not read the directory.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error) throw system_error(error.value(), "cannot look at " + path.string());
  return real;
}

// Directory names end with the time, so that the greatest tail is the newest.
std::string time_of(const fs::path& campaign) {
  const std::string name = campaign.filename().string();
  return name.size() > 15 ? name.substr(name.size() - 15) : name;
}

// The age of the file of keys, which is written once, then the name: of two campaigns that began in one
// second, the second one has the greater name.
std::pair<fs::file_time_type, std::string> age_of(const fs::path& campaign) {
  std::error_code none;
  const fs::file_time_type made = fs::last_write_time(campaign / ".wflow" / "keys.json", none);
  return {none ? fs::file_time_type::min() : made, time_of(campaign)};
}

// True if the campaign belongs to another user: in a folder like /tmp, this user does not mean that one.
bool is_of_another(const fs::path& campaign) {
  struct stat status {};
  return ::stat((campaign / ".wflow").c_str(), &status) == 0 && status.st_uid != ::geteuid();
}

const fs::path& newest(const std::vector<fs::path>& campaigns) {
  return *std::max_element(campaigns.begin(), campaigns.end(),
                           [](const auto& a, const auto& b) { return age_of(a) < age_of(b); });
}

bool was_made_of(const fs::path& campaign, const fs::path& study) {
  try {
    const fs::path file = specs::study_file(campaign);
    std::error_code gone;
    return file == study || fs::equivalent(file, study, gone);
  } catch (const Error&) {
    return false;
  }
}

// Where the study's campaigns are: its OUTPUT_PATH, if it reads without options.
void gather_output(const fs::path& study, std::vector<fs::path>& found) {
  try {
    gather(specs::read_study(study, {}).study.output_path, 1, found);
  } catch (const Error&) {
    // Only the campaigns here and in the user's list remain as candidates.
  }
}

fs::path newest_of_study(const fs::path& study) {
  const fs::path file = absolute_path(study).lexically_normal();
  std::vector<fs::path> found = remembered_campaigns();
  gather(current_directory(), 2, found);
  gather_output(file, found);
  std::erase_if(found, [&](const fs::path& campaign) { return !was_made_of(campaign, file); });
  if (!found.empty()) return real_path(newest(found));
  throw Error(ExitCode::usage,
              fmt::format("no campaign of {} here, in its OUTPUT_PATH or among yours (wflow status "
                          "--all); start one with: wflow run {}",
                          study.string(), study.string()));
}

fs::path search(const std::string& name) {
  if (!name.empty() && is_campaign(name)) return real_path(name);
  if (std::error_code ignored; fs::is_regular_file(name, ignored)) return newest_of_study(name);
  if (name.empty()) {
    for (fs::path at = current_directory(); at != at.root_path(); at = at.parent_path()) {
      if (is_campaign(at)) return at;
    }
  }
  std::vector<fs::path> found;
  gather(current_directory(), 2, found);
  std::erase_if(found, [&](const fs::path& path) {
    return !path.filename().string().starts_with(name) || (name.empty() && is_of_another(path));
  });
  if (name.empty() && !std::ranges::all_of(found, is_of_exec)) std::erase_if(found, is_of_exec);
  if (found.empty()) {
    if (const auto maker = maker_of(name)) {
      throw Error(ExitCode::usage,
                  fmt::format("{} is a workspace of {}; make it a campaign with: wflow adopt {}", name,
                              name_of(*maker), name));
    }
    std::error_code ignored;
    if (!name.empty() && fs::is_directory(name, ignored)) engine::store::require_record(real_path(name));
    if (name.empty() && fs::exists(current_directory() / ".wflow" / "keys.json", ignored))
      engine::store::require_record(current_directory());
    throw Error(ExitCode::usage,
                name.empty()
                    ? "no campaign here; name its directory, or start one with: wflow run STUDY.yaml"
                    : fmt::format("no campaign directory '{}', and none here whose name begins so", name));
  }
  return newest(found);
}

}  // namespace

fs::path find_campaign(const std::string& name) {
  fs::path campaign = search(name);
  specs::require_trusted(campaign);
  return campaign;
}

std::vector<fs::path> find_campaigns(const fs::path& directory) {
  std::vector<fs::path> found;
  gather(directory, 2, found);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return time_of(a) < time_of(b); });
  return found;
}

std::optional<fs::path> last_campaign_of(const specs::Study& study) {
  const std::string prefix = specs::campaign_directory(study, "T").filename().string();  // NAME_T
  std::optional<fs::path> last;
  std::error_code error;
  for (fs::directory_iterator at(study.output_path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool ours =
        name.starts_with(prefix.substr(0, prefix.size() - 1)) && name.size() == prefix.size() + 14;
    if (ours && (!last || name > last->filename().string()) && is_campaign(at->path())) last = at->path();
  }
  if (last && !was_made_of(*last, study.file)) last.reset();
  return last;
}

specs::Plan read_plan(const fs::path& campaign) {
  specs::require_trusted(campaign);  // for a campaign given by its path
  std::error_code none;
  if (!fs::is_symlink(campaign / ".wflow" / "spec", none))
    return specs::Plan(specs::read_campaign(campaign), campaign);
  const std::uint64_t version = recorded_version(campaign);
  if (version == specs::current_version(campaign))
    return specs::Plan(specs::read_campaign(campaign), campaign);
  return specs::Plan(specs::read_version(campaign, version), campaign);
}

specs::Plan read_plan_to_run(const fs::path& campaign) {
  specs::require_trusted(campaign);
  finish_update(campaign);
  return read_plan(campaign);
}

namespace {

std::optional<fs::path> state_directory() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? std::optional<fs::path>(value) : std::nullopt;
  };
  if (const auto state = set("XDG_STATE_HOME")) return *state / "wflow";
  if (const auto home = set("HOME")) return *home / ".local" / "state" / "wflow";
  return std::nullopt;
}

// The list, locked against other wflow processes during its lifetime. Throws Error if it can't be read or
// created.
class Registry {
 public:
  explicit Registry(const fs::path& directory) : file_(directory / "campaigns") {
    make_directories(directory);
    lock_ = open_file(directory / "lock", O_RDWR | O_CREAT, 0600);
    ::flock(lock_.get(), LOCK_EX);  // a file system without locks is accepted
    std::error_code ignored;
    if (!fs::exists(file_, ignored)) return;
    for (const std::string& line : text::split(read_file(file_), '\n')) {
      if (!line.empty()) campaigns_.emplace_back(line);
    }
  }

  const std::vector<fs::path>& campaigns() const { return campaigns_; }

  void replace(std::vector<fs::path> campaigns) {
    if (campaigns == campaigns_) return;
    std::string bytes;
    for (const fs::path& campaign : campaigns) bytes += campaign.string() + "\n";
    write_file_durably(file_, bytes, 0600);
    campaigns_ = std::move(campaigns);
  }

 private:
  fs::path file_;
  FileDescriptor lock_;
  std::vector<fs::path> campaigns_;
};

}  // namespace

void remember_campaign(const fs::path& campaign) {
  const auto directory = state_directory();
  if (!directory || campaign.string().find('\n') != std::string::npos) return;
  try {
    Registry registry(*directory);
    std::vector<fs::path> campaigns = registry.campaigns();
    if (std::find(campaigns.begin(), campaigns.end(), campaign) != campaigns.end()) return;
    campaigns.push_back(campaign);
    registry.replace(std::move(campaigns));
  } catch (const Error&) {
    // A home directory that is not writable must not prevent a run.
  }
}

std::vector<fs::path> remembered_campaigns() {
  const auto directory = state_directory();
  if (!directory) return {};
  std::vector<fs::path> campaigns;
  try {
    Registry registry(*directory);
    campaigns = registry.campaigns();
    std::erase_if(campaigns, [](const fs::path& path) { return !is_campaign(path); });
    registry.replace(campaigns);
  } catch (const Error&) {
    // Return what could be read.
  }
  return campaigns;
}

}  // namespace wflow::cli
