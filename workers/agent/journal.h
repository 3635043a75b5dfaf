// SPDX-License-Identifier: Apache-2.0
// Results that the coordinator has not acknowledged yet, on disk: <campaign>/.wflow/workers/<worker>.journal.
// Written (without fsync: it must survive processes, not power cuts) before a finished child is reaped, so
// that a worker killed at any time leaves either the child to its guardian or the result here. The living
// worker's guardian holds an exclusive flock on the file: that is how a coordinator on this host knows it
// lives.
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
  // What is in it. A record that was cut by the death of its writer is cut off the file too, so that others
  // can be appended: for the guardian, whose agent has died.
  std::vector<engine::wire::Results> recover();
  void remove();  // it is empty and the worker ends
  std::uint64_t size() const { return size_; }
  int descriptor() const { return fd_.get(); }

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::uint64_t size_ = 0;
};

}  // namespace wflow::workers
