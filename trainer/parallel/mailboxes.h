// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks of a node through memory that they share: a ring of bytes for each pair of
// ranks. The ranks copy at memory speed also where the kernel keeps MPI from reading another process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/parallel/shared_slots.h"

namespace wflow::trainer {

// Written by one process, read by one other.
struct Ring {
  struct Header {
    alignas(64) std::atomic<std::uint64_t> written = 0;  // bytes, since the beginning
    alignas(64) std::atomic<std::uint64_t> read = 0;
  };
  Header* header = nullptr;
  std::span<std::byte> bytes;

  // Both return how many bytes they could move.
  std::size_t put(std::span<const std::byte> from) const;
  std::size_t take(std::span<std::byte> to) const;
};

class Mailboxes {
 public:
  // The ring to or from another rank. Messages pass one after the other, in the order of take_number().
  struct Lane {
    Ring ring;
    std::uint64_t numbers = 0;  // given out
    std::uint64_t turn = 0;     // number of the message that passes now
    std::uint64_t take_number() { return numbers++; }
  };

  // A collective call of `ranks`. `ranks_per_group`: number of ranks that act as a node; 0: all ranks of the
  // node.
  Mailboxes(MPI_Comm ranks, int ranks_per_group, Pause pause);
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;
  ~Mailboxes();

  // Null if that rank is on another node, or if the node has no memory for rings.
  Lane* to(int rank) { return lane(to_, rank); }
  Lane* from(int rank) { return lane(from_, rank); }

 private:
  static Lane* lane(std::vector<Lane>& lanes, int rank);

  MPI_Comm node_ = MPI_COMM_NULL;
  std::unique_ptr<SharedSlots> slots_;
  std::vector<Lane> to_;  // by rank; without a ring for other nodes
  std::vector<Lane> from_;
};

// A message on its way to another rank of the node, without waits.
class OutgoingMail {
 public:
  OutgoingMail(Mailboxes::Lane& lane, std::span<const std::byte> bytes)
      : lane_(&lane), number_(lane.take_number()), length_(bytes.size()), bytes_(bytes) {}
  bool poll();  // returns whether all of it has left

 private:
  Mailboxes::Lane* lane_;
  std::uint64_t number_;
  std::uint64_t length_;
  std::span<const std::byte> bytes_;
  std::size_t done_ = 0;  // bytes, of the length and then of the message
};

class IncomingMail {
 public:
  IncomingMail(Mailboxes::Lane& lane, std::span<std::byte> bytes)
      : lane_(&lane), number_(lane.take_number()), bytes_(bytes) {}
  bool poll();  // returns whether all of it has arrived
  // Bytes that the sender sent. If they are not as many as expected, they are dropped.
  std::uint64_t length() const { return length_; }

 private:
  Mailboxes::Lane* lane_;
  std::uint64_t number_;
  std::uint64_t length_ = 0;
  std::span<std::byte> bytes_;
  std::uint64_t done_ = 0;
};

}  // namespace wflow::trainer
