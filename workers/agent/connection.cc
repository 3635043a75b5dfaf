// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/connection.h"

#include <poll.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {

bool same(const wire::Endpoint& a, const wire::Endpoint& b) {
  return a.local == b.local && a.remote == b.remote && a.host == b.host && a.pid == b.pid &&
         a.epoch == b.epoch;
}

}  // namespace

Connection::Connection(const std::filesystem::path& campaign, wire::CampaignKeys keys, Time now)
    : campaign_(campaign), keys_(std::move(keys)), last_heard_(now), connected_(now), next_renewal_(now) {}

bool Connection::renew(Time now) {
  const bool alive = socket_ && !socket_->lost();
  const bool heard = alive && now - std::max(last_heard_, connected_) <= 3 * heartbeat_;
  if (heard) return false;
  if (!alive) welcome_ = false;
  if (now < next_renewal_) return false;
  next_renewal_ = now + kRetry;
  const auto endpoint = wire::read_endpoint(campaign_);
  // A coordinator that is there but silent (stopped, or its machine overloaded) is waited for.
  if (!endpoint || (alive && same(*endpoint, endpoint_))) return false;
  try {
    socket_.emplace(keys_, *endpoint);
  } catch (const Error&) {
    // A host name that cannot be resolved for the moment.
    socket_.reset();
    return false;
  }
  endpoint_ = *endpoint;
  connected_ = now;
  welcome_ = false;
  return true;
}

std::optional<wire::Message> Connection::receive(Time now) {
  if (!socket_) return std::nullopt;
  auto message = socket_->receive();
  if (message) last_heard_ = now;
  return message;
}

bool Connection::send(const wire::Message& message) {
  return socket_ && socket_->send(message);
}

void Connection::wait(std::chrono::milliseconds timeout, std::span<const int> fds) {
  if (socket_) {
    socket_->wait(timeout, fds);
    return;
  }
  std::vector<pollfd> polls;
  for (const int fd : fds) polls.push_back({fd, POLLIN, 0});
  ::poll(polls.data(), polls.size(), static_cast<int>(timeout.count()));
}

}  // namespace wflow::workers
