// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/registry.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

std::optional<fs::path> state_directory() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value == '/' ? std::optional<fs::path>(value) : std::nullopt;
  };
  if (const auto state = set("XDG_STATE_HOME")) return *state / "wflow";
  if (const auto home = set("HOME")) return *home / ".local" / "state" / "wflow";
  return std::nullopt;
}

// The list, held against other wflow processes while it lives. Throws Error where it can't be read or made.
class Registry {
 public:
  explicit Registry(const fs::path& directory) : file_(directory / "campaigns") {
    make_directories(directory);
    lock_ = open_file(directory / "lock", O_RDWR | O_CREAT, 0600);
    ::flock(lock_.get(), LOCK_EX);  // without it, where the file system has none
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
    // A home that can't be written to is no reason not to run.
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
    // Then what could be read is all there is.
  }
  return campaigns;
}

}  // namespace wflow::cli
