// SPDX-License-Identifier: Apache-2.0
// One exchange of messages between ranks of a communicator, without waits: MpiThread polls it beside its
// jobs.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <vector>

#include "trainer/parallel/communicator.h"

namespace wflow::trainer {

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
