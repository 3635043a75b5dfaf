// SPDX-License-Identifier: Apache-2.0
// One exchange of messages between ranks of a communicator, without waits: MpiThread polls it beside its
// jobs. Messages within a node pass through mailboxes, the others through MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/communicator.h"
#include "trainer/parallel/mailboxes.h"

namespace wflow::trainer {

class NeighbourExchange {
 public:
  // `ranks` returns errors instead of ending the process. MPI_COMM_NULL: this rank alone. `mailboxes` may be
  // null.
  NeighbourExchange(MPI_Comm ranks, int rank, Mailboxes* mailboxes, std::vector<Outgoing> outgoing,
                    std::vector<Incoming> incoming)
      : ranks_(ranks),
        rank_(rank),
        mailboxes_(mailboxes),
        outgoing_(std::move(outgoing)),
        incoming_(std::move(incoming)) {}

  // Starts at the first call. Returns whether all messages have left and arrived; throws Error if a message
  // has another length than its receiver expects.
  bool poll();

 private:
  struct Expected {
    int from = 0;
    std::size_t bytes = 0;
  };
  struct ExpectedMail {
    Expected expected;
    IncomingMail mail;
  };
  void start();
  void copy_to_self();
  void send(const Outgoing& message);
  void receive(const Incoming& message);
  void poll_mail();
  void poll_messages();
  void compare_length(const Expected& expected, std::uint64_t arrived);
  void note_length(const Expected& expected, const std::string& arrived);

  MPI_Comm ranks_;
  int rank_;
  Mailboxes* mailboxes_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  bool started_ = false;
  std::vector<MPI_Request> requests_;  // the messages that arrive, then those that leave
  std::vector<Expected> expected_;
  std::vector<OutgoingMail> leaving_;
  std::vector<ExpectedMail> arriving_;
  std::string failure_;  // the first wrong length; thrown at the end, so that later messages keep their order
};

}  // namespace wflow::trainer
