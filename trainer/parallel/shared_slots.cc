// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/shared_slots.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace wflow::trainer {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostSlotBytes = 48U
                                       << 20;  // containers often have 64 MiB of shared memory and no more

constexpr std::size_t pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

SharedSlots::SharedSlots(MPI_Comm node, std::size_t most_slot_floats, Pause pause)
    : pause_(std::move(pause)) {
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_size(node, &ranks_);
  const auto ranks = static_cast<std::size_t>(ranks_);
  // Whole pages: a slot is then in the memory nearest to its rank, which touches it first.
  const std::size_t share = kMostSlotBytes / (kTurns * ranks) / kPage * kPage;
  const std::size_t slot_bytes = std::clamp(share, kPage, pages(most_slot_floats * sizeof(float)));
  const std::size_t header_bytes = pages(sizeof(Header) + kTurns * ranks * sizeof(std::uint64_t));
  const std::size_t all = kPage + header_bytes + kTurns * ranks * slot_bytes;
  MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
  void* base = nullptr;
  int sound = MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(all) : 0, 1, MPI_INFO_NULL, node,
                                      static_cast<void*>(&base), &window_) == MPI_SUCCESS;
  int all_sound = 0;
  MPI_Allreduce(&sound, &all_sound, 1, MPI_INT, MPI_MIN, node);
  MPI_Comm_set_errhandler(node, MPI_ERRORS_ARE_FATAL);
  if (all_sound == 0) return;
  MPI_Aint size = 0;
  int unit = 0;
  MPI_Win_shared_query(window_, 0, &size, &unit, static_cast<void*>(&base));
  // MPI may return memory that begins within a page. Whole pages are mapped, so the offset in the page is the
  // same in every process and all find the same next page.
  auto space = static_cast<std::size_t>(size);
  std::byte* first = static_cast<std::byte*>(std::align(kPage, all - kPage, base, space));
  header_ = reinterpret_cast<Header*>(first);
  if (rank == 0) std::construct_at(header_);
  slots_ = reinterpret_cast<float*>(first + header_bytes);
  slot_floats_ = slot_bytes / sizeof(float);
  MPI_Barrier(node);
}

SharedSlots::~SharedSlots() {
  if (available()) MPI_Win_free(&window_);
}

std::uint64_t& SharedSlots::number(std::size_t turn, int rank) const {
  auto* numbers = reinterpret_cast<std::uint64_t*>(header_ + 1);
  return numbers[turn * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank)];
}

void SharedSlots::barrier() {
  ++barriers_;
  const std::uint64_t last = barriers_ * static_cast<std::uint64_t>(ranks_);
  if (header_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == last) {
    header_->generation.store(barriers_, std::memory_order_release);
    return;
  }
  for (int tests = 1; header_->generation.load(std::memory_order_acquire) < barriers_; ++tests) pause_(tests);
}

}  // namespace wflow::trainer
