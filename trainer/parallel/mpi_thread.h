// SPDX-License-Identifier: Apache-2.0
// The thread that makes every MPI call, for all communicators of the process. It runs jobs in the order of
// the calls, and exchanges beside them: an exchange starts at once and goes on while a job waits for other
// ranks.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

class MpiThread {
 public:
  using Ticket = std::uint64_t;

  // The work of one communicator. Errors of one communicator do not appear in the waits of another.
  struct Line {
    Ticket posted = 0;
    Ticket done = 0;
    std::map<Ticket, std::exception_ptr> failures;
    Ticket started = 0;  // exchanges
    std::set<Ticket> running;
    std::map<Ticket, std::exception_ptr> failed;
    double exposed_seconds = 0;  // that its waits have blocked
  };

  // MPI_Init, if an MPI launcher has started the process.
  MpiThread(int& argc, char**& argv);
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;
  // MPI_Finalize.
  ~MpiThread();

  bool launched() const { return launched_; }
  const std::string& library() const { return library_; }

  // Runs `job` after the jobs posted before, of any line.
  Ticket post(Line& line, std::function<void()> job);
  // Throws the error of any job of the line up to this ticket.
  void wait(Line& line, Ticket ticket);
  void run(Line& line, std::function<void()> job) { wait(line, post(line, std::move(job))); }
  // Calls `poll` until it returns true, beside the jobs. It must not wait.
  Ticket start_beside(Line& line, std::function<bool()> poll);
  void wait_beside(Line& line, Ticket ticket);

  void run_beside(Line& line, std::function<bool()> background);
  void wake();
  // Calls this on the thread before MPI_Finalize, in the order of the calls. For jobs.
  void at_end(std::function<void()> release) { at_end_.push_back(std::move(release)); }
  [[noreturn]] void abort(int exit_code);

  // For jobs: in every wait for other ranks, between two tests. Yields the core.
  void pause(int tests);
  void complete(std::span<MPI_Request> requests);
  void barrier(MPI_Comm ranks);

 private:
  struct Exchange {
    Line* line = nullptr;
    Ticket ticket = 0;
    std::function<bool()> poll;
  };
  struct Job {
    Line* line = nullptr;
    std::function<void()> body;
  };

  void live(int& argc, char**& argv);
  void do_job(std::unique_lock<std::mutex>& lock);
  void wait_for_job(std::unique_lock<std::mutex>& lock);
  bool advance_exchanges();
  void finish(const Exchange& exchange, const std::exception_ptr& failure);
  void abort_if_asked();

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<Exchange> arrived_;          // exchanges that the thread has not seen yet
  std::atomic<bool> has_arrived_ = false;  // the same without the lock
  std::vector<Exchange> exchanges_;        // used by the thread only, as all members up to at_end_
  std::function<bool()> background_;
  std::vector<std::function<void()>> at_end_;
  const bool launched_;
  std::string library_;
  bool started_ = false;
  bool stopping_ = false;
  bool woken_ = false;
  std::atomic<bool> abort_asked_ = false;
  std::atomic<int> abort_code_ = 1;
};

// One exchange of messages between ranks of a communicator, without waits: MpiThread polls it beside its
// jobs.
class NeighbourExchange {
 public:
  // `ranks` returns errors instead of ending the process. MPI_COMM_NULL: this rank alone.
  NeighbourExchange(MPI_Comm ranks, int rank, std::vector<Outgoing> outgoing, std::vector<Incoming> incoming)
      : ranks_(ranks), rank_(rank), outgoing_(std::move(outgoing)), incoming_(std::move(incoming)) {}

  // Starts at the first call. Returns whether all messages have left and arrived; throws Error if a message
  // has another length than its receiver expects.
  bool poll();

 private:
  struct Expected {
    int from = 0;
    std::size_t bytes = 0;
  };
  void start();
  void copy_to_self();
  bool finished();
  [[noreturn]] static void refuse_length(const Expected& expected, std::ptrdiff_t arrived);

  MPI_Comm ranks_;
  int rank_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  bool started_ = false;
  std::vector<MPI_Request> requests_;  // the messages that arrive, then those that leave
  std::vector<Expected> expected_;
};

}  // namespace wflow::trainer
