// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mailboxes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace wflow::trainer {
namespace {

// A ring that is shorter than its message makes both ranks wait for each other.
constexpr std::size_t kSlotBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastRingBytes = 4096;  // smaller ones would be slower than messages
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

}  // namespace

std::size_t Ring::put(std::span<const std::byte> from) const {
  const std::uint64_t written = header->written.load(std::memory_order_relaxed);
  const std::uint64_t read = header->read.load(std::memory_order_acquire);
  const std::size_t count = std::min<std::size_t>(from.size(), bytes.size() - (written - read));
  const std::size_t at = written % bytes.size();
  const std::size_t first = std::min(count, bytes.size() - at);
  std::copy_n(from.begin(), first, bytes.begin() + static_cast<std::ptrdiff_t>(at));
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), count - first, bytes.begin());
  header->written.store(written + count, std::memory_order_release);
  return count;
}

std::size_t Ring::take(std::span<std::byte> to) const {
  const std::uint64_t read = header->read.load(std::memory_order_relaxed);
  const std::uint64_t written = header->written.load(std::memory_order_acquire);
  const std::size_t count = std::min<std::size_t>(to.size(), written - read);
  const std::size_t at = read % bytes.size();
  const std::size_t first = std::min(count, bytes.size() - at);
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), first, to.begin());
  std::copy_n(bytes.begin(), count - first, to.begin() + static_cast<std::ptrdiff_t>(first));
  header->read.store(read + count, std::memory_order_release);
  return count;
}

Mailboxes::Mailboxes(MPI_Comm ranks, int ranks_per_group, Pause pause) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  to_.resize(static_cast<std::size_t>(size));
  from_.resize(static_cast<std::size_t>(size));
  node_ = node_of(ranks, ranks_per_group);
  int own = 0;
  int members = 1;
  MPI_Comm_rank(node_, &own);
  MPI_Comm_size(node_, &members);
  if (members == 1) return;
  slots_ = std::make_unique<SharedSlots>(node_, kSlotBytes / sizeof(float), std::move(pause));
  // The ring from a to b is in one of the two slots of a.
  const auto in_slot = (static_cast<std::size_t>(members) + SharedSlots::kTurns - 1) / SharedSlots::kTurns;
  const std::size_t room = slots_->slot_floats() * sizeof(float) / in_slot;
  const std::size_t ring_bytes = room / alignof(Ring::Header) * alignof(Ring::Header);
  if (!slots_->available() || ring_bytes < kLeastRingBytes) return;
  const auto ring = [&](int a, int b) {
    const auto number = static_cast<std::size_t>(b);
    std::byte* begin = reinterpret_cast<std::byte*>(slots_->slot(number % SharedSlots::kTurns, a)) +
                       number / SharedSlots::kTurns * ring_bytes;
    return Ring{reinterpret_cast<Ring::Header*>(begin),
                {begin + sizeof(Ring::Header), ring_bytes - sizeof(Ring::Header)}};
  };
  std::vector<int> in_ranks(static_cast<std::size_t>(members));
  MPI_Allgather(&rank, 1, MPI_INT, in_ranks.data(), 1, MPI_INT, node_);
  for (int other = 0; other < members; ++other) {
    if (other == own) continue;
    const auto place = static_cast<std::size_t>(in_ranks[static_cast<std::size_t>(other)]);
    to_[place].ring = ring(own, other);
    from_[place].ring = ring(other, own);
    std::construct_at(to_[place].ring.header);
  }
  MPI_Barrier(node_);  // until all rings exist
}

Mailboxes::~Mailboxes() {
  slots_.reset();
  MPI_Comm_free(&node_);
}

Mailboxes::Lane* Mailboxes::lane(std::vector<Lane>& lanes, int rank) {
  Lane& found = lanes[static_cast<std::size_t>(rank)];
  return found.ring.header == nullptr ? nullptr : &found;
}

bool OutgoingMail::poll() {
  if (lane_->turn != number_) return false;
  if (done_ < kLengthBytes) {
    const auto length = std::as_bytes(std::span(&length_, 1));
    done_ += lane_->ring.put(length.subspan(done_));
    if (done_ < kLengthBytes) return false;
  }
  done_ += lane_->ring.put(bytes_.subspan(done_ - kLengthBytes));
  if (done_ < kLengthBytes + bytes_.size()) return false;
  ++lane_->turn;
  return true;
}

bool IncomingMail::poll() {
  if (lane_->turn != number_) return false;
  if (done_ < kLengthBytes) {
    const auto length = std::as_writable_bytes(std::span(&length_, 1));
    done_ += lane_->ring.take(length.subspan(done_));
    if (done_ < kLengthBytes) return false;
  }
  const std::uint64_t at = done_ - kLengthBytes;
  if (length_ == bytes_.size()) {
    done_ += lane_->ring.take(bytes_.subspan(at));
  } else {
    std::array<std::byte, 4096> dropped;
    done_ +=
        lane_->ring.take(std::span(dropped).first(std::min<std::uint64_t>(dropped.size(), length_ - at)));
  }
  if (done_ < kLengthBytes + length_) return false;
  ++lane_->turn;
  return true;
}

}  // namespace wflow::trainer
