// SPDX-License-Identifier: Apache-2.0
// Ranks that exchange messages, as networks see them that several ranks compute together: those of a
// communicator, or the parts of a sample (sample_parts.h), of which one rank may compute several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace wflow::trainer {

// Messages of an exchange, to and from ranks of the group. Two messages of one lane from one rank to another
// arrive in the order in which both sides name them. The bytes must not be touched until wait().
struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
  int lane = 0;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
  int lane = 0;
};

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends and receives. Returns at once. wait() throws if a message has another length than its receiver
  // expects.
  enum class ExchangeTicket : std::uint64_t {};
  virtual ExchangeTicket start_exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) = 0;
  virtual void wait(ExchangeTicket ticket) = 0;
  void exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) {
    wait(start_exchange(std::move(outgoing), std::move(incoming)));
  }

  // Sums over all ranks, in a fixed tree in order of rank, whatever the nodes are: the same bits on all
  // ranks. An exchange in which each rank sends all values to all others: for few numbers and few ranks.
  virtual void sum_by_rank(std::span<double> values);
};

// Every rank's values, as many on each, in order of rank, on every rank: for few numbers and few ranks.
template <class Number>
std::vector<Number> values_of_ranks(RankGroup& group, std::span<const Number> own) {
  std::vector<Number> all(own.size() * static_cast<std::size_t>(group.size()));
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::span<Number> from =
        std::span(all).subspan(static_cast<std::size_t>(rank) * own.size(), own.size());
    outgoing.push_back({rank, std::as_bytes(own)});
    incoming.push_back({rank, std::as_writable_bytes(from)});
  }
  group.exchange(std::move(outgoing), std::move(incoming));
  return all;
}

}  // namespace wflow::trainer
