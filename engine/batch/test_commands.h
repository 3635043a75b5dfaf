// SPDX-License-Identifier: Apache-2.0
// A scheduler's commands as small scripts, first on PATH; and its variables. All is as before at the end.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "base/file.h"
#include "specs/study/test_study.h"

namespace wflow::engine::batch {

class TestCommands {
 public:
  enum class Path : bool { first, alone };

  explicit TestCommands(Path path = Path::first) {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_END_TIME", "FLUX_URI", "PBS_JOBID", "LSB_JOBID"})
      unset(name);
    const char* before = std::getenv("PATH");
    set("PATH", path == Path::alone ? folder() : folder() + ":" + (before == nullptr ? "" : before));
  }
  TestCommands(const TestCommands&) = delete;
  TestCommands& operator=(const TestCommands&) = delete;
  ~TestCommands() {
    for (const auto& [name, value] : before_) {
      if (value) ::setenv(name.c_str(), value->c_str(), 1);
      if (!value) ::unsetenv(name.c_str());
    }
  }

  std::string folder() const { return folder_.path().string(); }
  std::string file(const std::string& name) const { return folder() + "/" + name; }
  std::string text(const std::string& name) const { return read_file(file(name)); }

  void add(const std::string& name, const std::string& script) const {
    write_file_durably(file(name), "#!/bin/sh\n" + script + "\n");
    ::chmod(file(name).c_str(), 0755);
  }

  void set(const std::string& name, const std::string& value) {
    keep(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  void unset(const std::string& name) {
    keep(name);
    ::unsetenv(name.c_str());
  }

 private:
  void keep(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    before_.emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }

  specs::TemporaryFolder folder_;
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace wflow::engine::batch
