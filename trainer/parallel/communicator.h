// SPDX-License-Identifier: Apache-2.0
// The only boundary to MPI. One thread makes every MPI call: Open MPI makes no progress by itself, so a
// reduction overlaps with the backward pass only on a thread of its own; MPI_THREAD_FUNNELED is enough. The
// thread yields and then sleeps while it waits: on a full node it must not take the core from the
// computation.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "trainer/parallel/rank_group.h"

namespace wflow::trainer {

// Number format of a sum's values in messages between nodes.
struct Wire {
  bool half = false;         // bfloat16, rounded by round_to_half() in rank_sums.cc; float32 within a node
  std::uint64_t seed = 0;    // seed of the rounding, different at every step
  std::size_t position = 0;  // index of the first value in the array that `seed` belongs to
  std::size_t exact = 0;     // values at lower positions stay float32

  // The same for a part that begins `by` values later.
  Wire at(std::size_t by) const { return {half, seed, position + by, exact}; }
};

// The part of an array that one rank owns: the values at positions [begin, end).
struct OwnedPart {
  int rank = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};
// In order, without overlap. Values at other positions belong to all ranks.
using OwnedParts = std::vector<OwnedPart>;

// The values at positions [begin, end) of an array, for several of them.
using ValueParts = std::vector<std::pair<std::size_t, std::size_t>>;

class MpiThread;

// An error that every rank throws at the same place: no rank is left waiting, and only rank 0 prints it.
class CommonError : public Error {
 public:
  using Error::Error;
};

// The ranks of the world, or of a group. Every group has ranks from 0 on, and operations, tickets and errors
// of its own. Jobs of all groups of a process run one after the other on one thread: ranks with several
// groups in common call their operations in the same order. Exchanges have no such order.
class Communicator final : public RankGroup {
 public:
  // MPI_Init. A program that no MPI launcher has started is a world of one and makes no MPI call that needs
  // MPI_Init: Open MPI would start a daemon for it and keep files in TMPDIR.
  Communicator(int& argc, char**& argv);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Calls MPI_Finalize if it is the last communicator of the process, which waits for the other ranks. On an
  // exception, call abort() instead. A group's resources live as long as the world.
  ~Communicator() override;

  // Collective calls of all ranks of this communicator. The group of those with the same colour, from 0 on,
  // in order of `key` and then of rank.
  std::unique_ptr<Communicator> split(int colour, int key = 0);
  // The group of these ranks, in this order; null on the others. All pass the same list.
  std::unique_ptr<Communicator> group(std::span<const int> ranks);

  int rank() const override;
  int size() const override;
  int ranks_on_node() const;
  // A group of `size` ranks of which only this one exists, to measure its work. The others seem to be like
  // it: they send back the first bytes that it sends them, then zeros, and all_gather() repeats its bytes for
  // each rank. A sum leaves its numbers as they are.
  std::unique_ptr<Communicator> without_others(int rank, int size) const;
  // Number of nodes, or of groups of ranks that act as nodes, in a sum. A collective call.
  int groups();
  const std::string& library() const;  // "Open MPI v4.1.4"

  // Sums over all ranks into `values` of every rank: the same bits on all ranks, and the same at every run
  // with as many ranks on as many nodes (rank_sums.h). Returns at once; the values must not be touched until
  // wait(), which throws the error of any operation up to this ticket.
  using Ticket = std::uint64_t;
  Ticket start_all_reduce(std::span<float> values, const Wire& wire = {});
  void wait(Ticket ticket);
  void all_reduce(std::span<float> values, const Wire& wire = {}) { wait(start_all_reduce(values, wire)); }

  // The same sums for values of which `parts`, in order and without overlap, are often 0 as a whole. Where a
  // part is 0 on all ranks, it is not sent; which these are, the ranks tell each other first.
  Ticket start_sparse_all_reduce(std::span<float> values, ValueParts parts, const Wire& wire = {});

  // The same sums, but each rank gets only those at the positions that it owns or that belong to all. The
  // other values are undefined afterwards. `done` is called on the communication thread then.
  Ticket start_reduce_scatter(std::span<float> values, OwnedParts parts, const Wire& wire = {},
                              std::function<void()> done = {});
  // Every rank gets the values that the others own. Returns at once, like a sum.
  Ticket start_gather(std::span<float> values, OwnedParts parts);

  // An exchange starts before the jobs that wait, and goes on while a job waits for other ranks: a sum of
  // gradients does not delay it.
  ExchangeTicket start_exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) override;
  void wait(ExchangeTicket ticket) override;

  void sum_by_rank(std::span<double> values) override;

  // Sums over all ranks, of numbers that are 0 on all but one: exact in any order.
  void add_up(std::span<double> values);

  // Every rank's bytes, in order of rank, on every rank.
  std::vector<std::string> all_gather(const std::string& bytes);
  // Rank 0's bytes on every rank.
  void broadcast(std::string& bytes);
  void barrier();

  // Ends all ranks of the world with this exit code. To be called by the rank that fails.
  [[noreturn]] void abort(int exit_code);

  // Runs `job` on the communication thread after the jobs posted before, and returns when it has ended.
  void run(std::function<void()> job);
  // Sets a background function. The communication thread calls it again and again, while it idles and while a
  // job waits for other ranks, until all ranks are in their destructors. It returns whether there was
  // anything to do. A collective call of several ranks, to be made once.
  void run_beside(std::function<bool()> background);
  // Makes the communication thread call the background function at once.
  void wake();

  // Seconds that wait() has blocked, and that reductions and gathers took on the communication thread.
  double exposed_seconds() const;
  double reduction_seconds() const;
  // Values that sums have had since the start: those that are not sent do not count.
  std::uint64_t summed_values() const;

 private:
  class Group;
  Communicator(std::shared_ptr<Group> group, std::shared_ptr<MpiThread> thread);

  // The thread ends first, while the group still exists; it releases what belongs to MPI.
  std::shared_ptr<Group> group_;
  std::shared_ptr<MpiThread> thread_;
};

// Every rank's values, in order of rank, on every rank.
template <class Number>
std::vector<Number> gather_values(Communicator& communicator, const std::vector<Number>& own) {
  std::string bytes(own.size() * sizeof(Number), '\0');
  if (!own.empty()) std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<Number> all;
  for (const std::string& part : communicator.all_gather(bytes)) {
    const std::size_t old = all.size();
    all.resize(old + part.size() / sizeof(Number));
    if (!part.empty()) std::memcpy(all.data() + old, part.data(), part.size());
  }
  return all;
}

// The largest of the ranks' numbers, on every rank.
inline double most_of(Communicator& communicator, double own) {
  const std::vector<double> all = gather_values(communicator, std::vector<double>{own});
  return *std::max_element(all.begin(), all.end());
}

// The sums over all ranks of whole numbers, on every rank: exact, so that they do not depend on the number of
// ranks.
template <std::integral Number>
std::vector<Number> sum_values(Communicator& communicator, const std::vector<Number>& own) {
  std::vector<Number> sums(own.size(), 0);
  const std::vector<Number> all = gather_values(communicator, own);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return sums;
}

}  // namespace wflow::trainer
