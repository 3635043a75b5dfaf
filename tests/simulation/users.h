// SPDX-License-Identifier: Apache-2.0
// Clients of the coordinator: those that query and command, and unknown peers that send invalid messages.
#pragma once

#include <map>

#include "tests/simulation/surroundings.h"

namespace wflow::simulation {

class Users final : public Client {
 public:
  Users(Surroundings& around, Draw draw) : around_(around), draw_(draw) {}

  void ask();
  void pause(bool pause);
  void retry();
  void cancel(bool kill);
  void drain();
  // A message that no worker or client of this campaign would send.
  void send_strange();
  // Questions on connections that live, to this coordinator, without an answer.
  std::size_t unanswered(std::uint64_t listener) const;
  // A question was asked on it, and has no answer yet.
  bool waits_on(ConnectionId connection) const { return waiting_.contains(connection); }

  void connected(ConnectionId) override {}
  void connection_lost(ConnectionId connection) override;
  void receive(ConnectionId connection, wire::Message message) override;

 private:
  void send(wire::Message message);
  wire::Selection some_tasks();

  Surroundings& around_;
  Draw draw_;
  std::map<ConnectionId, std::uint64_t> waiting_;  // and the listener that was asked
};

}  // namespace wflow::simulation
