// SPDX-License-Identifier: Apache-2.0
// Reads bytes of other ranks while all of them compute. Any thread may fetch; the communication thread sends
// requests and answers beside its jobs; one more thread reads the bytes for other ranks' requests.
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
  // The longest time without any answer of a rank to this one. Its communication thread and its reader answer
  // while it computes, validates or waits, so that a slow epoch delays no answer. A queue of large answers
  // for many ranks or a slow local disk may delay one by minutes. Beyond that the process is frozen or its
  // node hangs.
  static constexpr std::chrono::seconds kSilenceLimit{600};

  // Fills `to` from this offset of the file; returns whether it succeeded.
  using Serve = std::function<bool(std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to)>;

  // A collective call. `serve` answers the other ranks until all ranks are in their destructors, and owns
  // what it needs. The communicator must outlive the service.
  FetchService(Communicator& communicator, Serve serve, std::chrono::seconds silence_limit = kSilenceLimit);

  // Fills all ranges from a file of that rank. Thread-safe. Error{system} if that rank could not read it, or
  // has answered nothing for the limit. Time in which this process itself is stopped does not count, as a
  // scheduler may suspend and continue all ranks.
  void fetch(int rank, std::uint64_t file, std::span<const RemoteRange> ranges);
  std::uint64_t fetched_bytes() const;

 private:
  class State;
  Communicator& communicator_;
  std::shared_ptr<State> state_;
};

}  // namespace wflow::trainer
