// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a node share: a slot for each rank, and a barrier of atomics without messages.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace wflow::trainer {

// Called between two tests of a wait; `tests` counts them. Runs the background function and yields the
// core.
using Pause = std::function<void(int tests)>;

// Waits until all requests are complete.
inline void complete(std::span<MPI_Request> requests, const Pause& pause) {
  for (int tests = 1;; ++tests) {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return;
    pause(tests);
  }
}

class SharedSlots {
 public:
  // Two pieces in turn have separate slots: a rank may begin the next while another reads this one.
  static constexpr std::size_t kTurns = 2;

  // A collective call of `node`, which must outlive this object. If the node has no memory for it,
  // available() is false on all of its ranks.
  SharedSlots(MPI_Comm node, std::size_t most_slot_floats, Pause pause);
  SharedSlots(const SharedSlots&) = delete;
  SharedSlots& operator=(const SharedSlots&) = delete;
  ~SharedSlots();

  bool available() const { return header_ != nullptr; }
  std::size_t slot_floats() const { return slot_floats_; }

  float* slot(std::size_t turn, int rank) const {
    return slots_ + (turn * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank)) * slot_floats_;
  }
  // One number of each rank, and the first rank's summary of them.
  struct Lengths {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
  };
  std::uint64_t& number(std::size_t turn, int rank) const;
  Lengths& verdict(std::size_t turn) const { return header_->verdicts[turn]; }

  // Returns when all ranks have called it; every rank then sees what the others wrote before.
  void barrier();

 private:
  struct Header {
    alignas(64) std::atomic<std::uint64_t> arrived = 0;
    alignas(64) std::atomic<std::uint64_t> generation = 0;
    alignas(64) std::array<Lengths, kTurns> verdicts;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // required between processes

  MPI_Win window_ = MPI_WIN_NULL;
  int ranks_ = 1;
  std::size_t slot_floats_ = 0;
  Pause pause_;
  Header* header_ = nullptr;
  float* slots_ = nullptr;
  std::uint64_t barriers_ = 0;
};

}  // namespace wflow::trainer
