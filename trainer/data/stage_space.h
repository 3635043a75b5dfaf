// SPDX-License-Identifier: Apache-2.0
// Where staged samples are kept on a node: files without a name, in memory or on a disk, with their space
// reserved before anything is read. The end of the processes frees them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "trainer/config.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// The folder of the files without `stage: {local: FOLDER}`: $TMPDIR, else /tmp.
std::filesystem::path default_stage_folder();

class StageSpace {
 public:
  explicit StageSpace(const TrainConfig& config);

  // Error{system} if there is no space. `what`: "the 3 MiB of shard 7".
  FileDescriptor file(std::uint64_t bytes, const std::string& what) const;
  // A collective call, before anything is read: CommonError{system} if a host has too little space for the
  // bytes that its ranks need. `what`: "shards"; `advice`: what to do instead, one for memory and one for
  // files.
  struct Advice {
    std::string memory;
    std::string files;
  };
  void check(Communicator& communicator, std::uint64_t own_bytes, const std::string& what,
             const Advice& advice) const;

 private:
  std::uint64_t free_bytes() const;

  Stage stage_;
  std::filesystem::path folder_;
};

// Exit code and message of an error; empty without one.
template <typename Function>
std::string failure_of(Function function) {
  try {
    function();
    return {};
  } catch (const Error& error) {
    return static_cast<char>(error.code()) + std::string(error.what());
  }
}
// A collective call: if a rank has failed, all ranks throw the error of the first one.
void agree(Communicator& communicator, const std::string& failure);

}  // namespace wflow::trainer
