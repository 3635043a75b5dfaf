// SPDX-License-Identifier: Apache-2.0
// Connections between clients (agents, users) and coordinators: ordered messages in both directions, delays,
// partitions that hold them up, breaks that lose what is under way.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/wire/messages.h"
#include "tests/simulation/faults.h"
#include "tests/simulation/timeline.h"

namespace wflow::simulation {

namespace wire = engine::wire;
using ConnectionId = std::uint64_t;

// An end of connections. While its process is frozen, it keeps messages itself.
class Client {
 public:
  virtual void connected(ConnectionId connection) = 0;
  virtual void connection_lost(ConnectionId connection) = 0;
  virtual void receive(ConnectionId connection, wire::Message message) = 0;

 protected:
  ~Client() = default;
};
class Server {
 public:
  virtual void receive(ConnectionId connection, wire::Message message) = 0;

 protected:
  ~Server() = default;
};

struct NetworkOptions {
  double delay_low_s = 1e-4, delay_high_s = 2e-3;  // between hosts
  double local_low_s = 2e-5, local_high_s = 3e-4;  // within one
};

class Network {
 public:
  Network(Timeline& timeline, Draw draw, FaultCounts& faults, NetworkOptions options)
      : timeline_(timeline), draw_(draw), faults_(faults), options_(options) {}

  // A process that listens, until it is closed. Gives the name of its address.
  std::uint64_t listen(Server& server, const std::string& host);
  // Its process has ended. `reset`: its host lives and tells the other ends so.
  void close_server(std::uint64_t address, bool reset);

  // Ends with connected() or connection_lost().
  ConnectionId connect(Client& client, const std::string& host, std::uint64_t address);
  // The client's process has ended, or connects anew.
  void close(ConnectionId connection);
  // The client's host has crashed, and the server gets no message of it.
  void vanish(ConnectionId connection);
  void send_to_server(ConnectionId connection, wire::Message message);
  // False: it can't be delivered, and the sender knows.
  [[nodiscard]] bool send_to_client(ConnectionId connection, wire::Message message);
  // Both ends learn of it in a while; what is under way is lost.
  void break_connection(ConnectionId connection);
  std::vector<ConnectionId> connections() const;

  // Messages of this direction wait.
  void block(const std::string& from, const std::string& to) { blocked_.insert({from, to}); }
  void unblock(const std::string& from, const std::string& to);
  bool blocked(const std::string& from, const std::string& to) const { return blocked_.contains({from, to}); }
  // Sends to this client are refused, as by a full queue.
  void refuse_sends(ConnectionId connection, bool refuse);
  void set_delays(double low_s, double high_s);

 private:
  struct Direction {
    double last_s = 0;  // arrival of the last message; the next one comes later
    std::deque<wire::Message> waiting;
  };
  struct Connection {
    Client* client = nullptr;  // null: it has closed, or knows that it is lost
    std::uint64_t address = 0;
    std::string client_host, server_host;
    bool broken = false;  // nothing arrives any more
    bool server_knows = false;
    bool refuses = false;
    Direction to_server, to_client;
  };

  double delay_s(const Connection& connection);
  void carry(ConnectionId id, bool to_server, wire::Message message);
  void arrive(ConnectionId id, bool to_server, wire::Message message);
  void deliver(ConnectionId id, bool to_server, wire::Message message);
  bool held(const Connection& connection, bool to_server) const;
  void flush(ConnectionId id, bool to_server);
  void lose(ConnectionId id, double client_after_s, double server_after_s);
  void open(ConnectionId id, double delay_s);

  Timeline& timeline_;
  Draw draw_;
  FaultCounts& faults_;
  NetworkOptions options_;
  struct Listener {
    Server* server;
    std::string host;
  };
  std::map<std::uint64_t, Listener> listeners_;
  std::map<ConnectionId, Connection> connections_;
  std::set<std::pair<std::string, std::string>> blocked_;
  std::uint64_t next_ = 0;
};

}  // namespace wflow::simulation
