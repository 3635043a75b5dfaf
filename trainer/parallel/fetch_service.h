// SPDX-License-Identifier: Apache-2.0
// Reads bytes of other ranks while all of them compute. Any thread may fetch; the communication thread sends
// requests and answers beside its jobs; one more thread reads the bytes for other ranks' requests.
#pragma once

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
  // Fills `to` from this offset of the file; returns whether it succeeded.
  using Serve = std::function<bool(std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to)>;

  // A collective call. `serve` answers the other ranks until all ranks are in their destructors, and owns
  // what it needs. The communicator must outlive the service.
  FetchService(Communicator& communicator, Serve serve);

  // Fills all ranges from a file of that rank. Thread-safe. Error{system} if that rank could not read it.
  void fetch(int rank, std::uint64_t file, std::span<const RemoteRange> ranges);
  std::uint64_t fetched_bytes() const;

 private:
  class State;
  Communicator& communicator_;
  std::shared_ptr<State> state_;
};

}  // namespace wflow::trainer
