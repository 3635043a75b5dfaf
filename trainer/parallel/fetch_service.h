// SPDX-License-Identifier: Apache-2.0
// Bytes that lie with another rank, read while all of them compute: any thread asks, the communication thread
// sends requests and answers beside its jobs, a thread of its own reads what others ask for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

// A part of a file that another rank holds.
struct RemoteRange {
  std::uint64_t offset = 0;
  std::span<std::uint8_t> to;
};

class FetchService {
 public:
  // How long a rank may give no answer at all to this one. Its communication thread and its reader answer
  // while it computes, validates or waits, so that a slow epoch delays no answer. What delays one is a queue
  // of large answers for many ranks, or a slow local disk: minutes at worst. Beyond that the process is
  // frozen or its node hangs.
  static constexpr std::chrono::seconds kSilenceLimit{600};

  // Fills `to` from this place of the file; gives whether it could.
  using Serve = std::function<bool(std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to)>;

  // A collective call. `serve` answers the other ranks until all of them have come to their ends, and keeps
  // what it needs. The communicator must live longer.
  FetchService(Communicator& communicator, Serve serve, std::chrono::seconds silence_limit = kSilenceLimit);

  // Fills all ranges from a file of that rank. Thread-safe. Error{system} where it could not be read there,
  // and where that rank has answered nothing for the limit. Time in which this process itself is stopped does
  // not count, as a scheduler may suspend and continue all ranks.
  void fetch(int rank, std::uint64_t file, std::span<const RemoteRange> ranges);
  std::uint64_t fetched_bytes() const;

 private:
  class State;
  Communicator& communicator_;
  std::shared_ptr<State> state_;
};

}  // namespace wflow::trainer
