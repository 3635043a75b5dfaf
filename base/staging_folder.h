// SPDX-License-Identifier: Apache-2.0
// Folders for what is not whole yet, beside other processes that make the same.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/file.h"

namespace wflow {

// A new folder `parent`/`prefix`-XXXXXX for this process alone. It holds a lock file; the kernel gives the lock
// up when the process ends, however it ends. The constructor removes folders of the same prefix whose process has
// ended, the destructor removes this one.
class StagingFolder {
 public:
  // `parent` exists. Error{system}.
  StagingFolder(const std::filesystem::path& parent, std::string_view prefix);
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  ~StagingFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

}  // namespace wflow
