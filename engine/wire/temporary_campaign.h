// SPDX-License-Identifier: Apache-2.0
// A campaign directory that goes when the test ends.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace wflow::engine::wire {

class TemporaryCampaign {
 public:
  TemporaryCampaign() {
    std::string name = (std::filesystem::temp_directory_path() / "wflow-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
    std::filesystem::create_directories(path_ / ".wflow" / "workers");
    std::filesystem::permissions(path_ / ".wflow", std::filesystem::perms::owner_all);
  }
  TemporaryCampaign(const TemporaryCampaign&) = delete;
  TemporaryCampaign& operator=(const TemporaryCampaign&) = delete;
  ~TemporaryCampaign() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace wflow::engine::wire
