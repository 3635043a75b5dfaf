// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/network.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace wflow::simulation {

namespace {

// A peer whose host is gone answers nothing: its other end gives up after so long.
constexpr double kGiveUpAtLeast_s = 2;
constexpr double kGiveUpAtMost_s = 20;
constexpr double kReset_s = 0.05;  // at most, for news of a break
constexpr double kTryAgain_s = 0.2;

}  // namespace

std::uint64_t Network::listen(Server& server, const std::string& host) {
  listeners_[++next_] = {&server, host};
  return next_;
}

void Network::close_server(std::uint64_t address, bool reset) {
  listeners_.erase(address);
  for (auto& [id, connection] : connections_) {
    if (connection.address != address || connection.broken) continue;
    connection.broken = true;
    connection.server_knows = true;
    lose(id, reset ? draw_.between(0, kReset_s) : draw_.between(kGiveUpAtLeast_s, kGiveUpAtMost_s), -1);
  }
}

ConnectionId Network::connect(Client& client, const std::string& host, std::uint64_t address) {
  const ConnectionId id = ++next_;
  Connection& connection = connections_[id];
  connection.client = &client;
  connection.address = address;
  connection.client_host = host;
  const auto listener = listeners_.find(address);
  connection.server_host = listener != listeners_.end() ? listener->second.host : host;
  open(id, delay_s(connection));
  return id;
}

void Network::open(ConnectionId id, double delay_s) {
  timeline_.after(delay_s, [this, id] {
    const auto at = connections_.find(id);
    if (at == connections_.end() || at->second.client == nullptr) return;
    Connection& connection = at->second;
    if (blocked(connection.client_host, connection.server_host) ||
        blocked(connection.server_host, connection.client_host)) {
      open(id, kTryAgain_s);
      return;
    }
    if (connection.broken || !listeners_.contains(connection.address)) {
      Client* const client = std::exchange(connection.client, nullptr);
      connections_.erase(at);
      client->connection_lost(id);
      return;
    }
    connection.client->connected(id);
  });
}

void Network::close(ConnectionId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  at->second.client = nullptr;
  // Sent messages still arrive, as with a socket that lingers; the server then learns of the end.
  const double behind_s = std::max(at->second.to_server.last_s, timeline_.now_s());
  timeline_.at(behind_s + draw_.between(0, kReset_s), [this, id] { connections_.erase(id); });
}

void Network::vanish(ConnectionId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  at->second.client = nullptr;
  at->second.broken = true;
  timeline_.after(draw_.between(kGiveUpAtLeast_s, kGiveUpAtMost_s), [this, id] { connections_.erase(id); });
}

double Network::delay_s(const Connection& connection) {
  return connection.client_host == connection.server_host
             ? draw_.logarithmic(options_.local_low_s, options_.local_high_s)
             : draw_.logarithmic(options_.delay_low_s, options_.delay_high_s);
}

void Network::send_to_server(ConnectionId id, wire::Message message) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || at->second.broken) {
    faults_.count(Fault::message_lost);
    return;
  }
  carry(id, true, std::move(message));
}

bool Network::send_to_client(ConnectionId id, wire::Message message) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || at->second.server_knows || at->second.refuses) return false;
  if (at->second.broken) {
    faults_.count(Fault::message_lost);
    return true;
  }
  carry(id, false, std::move(message));
  return true;
}

void Network::carry(ConnectionId id, bool to_server, wire::Message message) {
  Connection& connection = connections_.at(id);
  Direction& direction = to_server ? connection.to_server : connection.to_client;
  direction.last_s = std::max(direction.last_s, timeline_.now_s() + delay_s(connection));
  timeline_.at(direction.last_s, [this, id, to_server, message = std::move(message)]() mutable {
    arrive(id, to_server, std::move(message));
  });
}

bool Network::held(const Connection& connection, bool to_server) const {
  return to_server ? blocked(connection.client_host, connection.server_host)
                   : blocked(connection.server_host, connection.client_host);
}

void Network::arrive(ConnectionId id, bool to_server, wire::Message message) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || at->second.broken) {
    faults_.count(Fault::message_lost);
    return;
  }
  Connection& connection = at->second;
  Direction& direction = to_server ? connection.to_server : connection.to_client;
  if (held(connection, to_server) || !direction.waiting.empty()) {
    direction.waiting.push_back(std::move(message));
    return;
  }
  deliver(id, to_server, std::move(message));
}

void Network::deliver(ConnectionId id, bool to_server, wire::Message message) {
  Connection& connection = connections_.at(id);
  if (!to_server) {
    if (connection.client != nullptr) connection.client->receive(id, std::move(message));
    return;
  }
  const auto listener = listeners_.find(connection.address);
  if (listener != listeners_.end()) listener->second.server->receive(id, std::move(message));
}

void Network::unblock(const std::string& from, const std::string& to) {
  blocked_.erase({from, to});
  for (auto& [id, connection] : connections_) {
    const bool to_server = connection.client_host == from && connection.server_host == to;
    const bool to_client = connection.server_host == from && connection.client_host == to;
    if (!to_server && !to_client) continue;
    timeline_.after(delay_s(connection), [this, id = id, to_server] { flush(id, to_server); });
  }
}

// Delivers waiting messages in order; messages that arrive meanwhile queue behind them.
void Network::flush(ConnectionId id, bool to_server) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || at->second.broken || held(at->second, to_server)) return;
  std::deque<wire::Message>& waiting = (to_server ? at->second.to_server : at->second.to_client).waiting;
  while (!waiting.empty()) {
    wire::Message message = std::move(waiting.front());
    waiting.pop_front();
    deliver(id, to_server, std::move(message));
  }
}

void Network::break_connection(ConnectionId id) {
  const auto at = connections_.find(id);
  if (at == connections_.end() || at->second.broken) return;
  at->second.broken = true;
  faults_.count(Fault::connection_broken);
  lose(id, draw_.between(0, kReset_s),
       draw_.chance(0.5) ? draw_.between(0, kReset_s) : draw_.between(0, kGiveUpAtMost_s));
}

void Network::lose(ConnectionId id, double client_after_s, double server_after_s) {
  timeline_.after(client_after_s, [this, id] {
    const auto at = connections_.find(id);
    if (at == connections_.end() || at->second.client == nullptr) return;
    std::exchange(at->second.client, nullptr)->connection_lost(id);
  });
  if (server_after_s < 0) return;
  timeline_.after(server_after_s, [this, id] {
    const auto at = connections_.find(id);
    if (at != connections_.end()) at->second.server_knows = true;
  });
}

std::vector<ConnectionId> Network::connections() const {
  std::vector<ConnectionId> ids;
  for (const auto& [id, connection] : connections_) {
    if (connection.client != nullptr && !connection.broken) ids.push_back(id);
  }
  return ids;
}

void Network::refuse_sends(ConnectionId id, bool refuse) {
  const auto at = connections_.find(id);
  if (at != connections_.end()) at->second.refuses = refuse;
}

void Network::set_delays(double low_s, double high_s) {
  options_.delay_low_s = low_s;
  options_.delay_high_s = high_s;
}

}  // namespace wflow::simulation
