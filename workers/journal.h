// SPDX-License-Identifier: Apache-2.0
// Results that the coordinator has not acknowledged yet, on disk: <campaign>/.wflow/workers/<worker>.journal. Written
// (without fsync: it must survive processes, not power cuts) before a finished child is reaped, so that a
// worker killed at any time leaves either the child to its guardian or the result here. The living worker's
// guardian holds an exclusive flock on the file: that is how a coordinator on this host knows it lives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/wire/messages.h"

namespace wflow::workers {

class Journal {
 public:
  // Creates the file and takes the lock.
  Journal(const std::filesystem::path& campaign, const std::string& worker);
  void append(const engine::wire::Results& results);
  void clear();  // everything in it has been acknowledged
  int descriptor() const { return fd_.get(); }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace wflow::workers
