// SPDX-License-Identifier: Apache-2.0
// The only boundary to MPI. One thread makes every MPI call: Open MPI makes no progress by itself, so only a
// thread of our own hides a reduction behind the backward pass (research/training.md 1.4), and
// MPI_THREAD_FUNNELED is enough. While it waits it yields and then sleeps: on a full node it must not take
// the core from the computation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/parallel/rank_grid.h"
#include "trainer/parallel/wire.h"

namespace wflow::trainer {

class Communicator {
 public:
  // MPI_Init. A program that no MPI launcher has started is a world of one and makes no MPI call that needs
  // MPI_Init: Open MPI would start a daemon for it and keep files in TMPDIR.
  Communicator(int& argc, char**& argv);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // MPI_Finalize, which waits for the other ranks: not to be reached while an exception passes, see abort().
  ~Communicator();

  int rank() const;
  int size() const;
  int ranks_on_node() const;
  const RankGrid& grid() const;
  // How many nodes, or groups of ranks that act as such, sums are over.
  int groups() const;
  const std::string& library() const;  // "Open MPI v4.1.4"

  // Sums over the grid's data axis into everyone's `values`: the same bits on all of these ranks, and the
  // same at every run with as many ranks on as many nodes (rank_sums.h). Returns at once; the values must not
  // be touched until wait(), which throws what has gone wrong up to this ticket.
  using Ticket = std::uint64_t;
  Ticket start_all_reduce(std::span<float> values, const Wire& wire = {});
  void wait(Ticket ticket);
  void all_reduce(std::span<float> values, const Wire& wire = {}) { wait(start_all_reduce(values, wire)); }

  // Every rank's bytes, in order of rank, on every rank.
  std::vector<std::string> all_gather(const std::string& bytes);
  // Rank 0's bytes on every rank.
  void broadcast(std::string& bytes);
  void barrier();

  // Ends all ranks with this exit code. For the rank that fails.
  [[noreturn]] void abort(int exit_code);

  // Runs `job` on the communication thread, behind what was posted before, and returns when it has ended.
  void run(std::function<void()> job);
  // Something that goes on beside the jobs: called on the communication thread again and again, while it
  // idles and while a job waits for other ranks, until all ranks have come to their ends. Gives whether there
  // was anything to do. A collective call, once, of several ranks.
  void run_beside(std::function<bool()> background);
  // The background has something to do: it need not wait for the next look.
  void wake();

  // Seconds that wait() has blocked, and that reductions took on the communication thread.
  double exposed_seconds() const;
  double reduction_seconds() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace wflow::trainer
