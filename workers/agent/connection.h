// SPDX-License-Identifier: Apache-2.0
// The worker's line to the coordinator, which may go, move to another host and come back.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

#include "engine/wire/keys.h"
#include "engine/wire/transport.h"

namespace wflow::workers {

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr std::chrono::seconds kRetry{1};

  Connection(const std::filesystem::path& campaign, engine::wire::CampaignKeys keys, Time now);

  // Where the line is lost, or silent and the campaign's endpoint file names another coordinator: makes a new
  // one, at most once a second. True when it did: the caller says Hello.
  bool renew(Time now);
  Time next_renewal() const { return next_renewal_; }

  std::optional<engine::wire::Message> receive(Time now);
  bool send(const engine::wire::Message& message);
  void wait(std::chrono::milliseconds timeout, std::span<const int> fds);

  void set_heartbeat(Duration heartbeat) { heartbeat_ = heartbeat; }
  void set_welcome() { welcome_ = true; }
  bool welcome() const { return welcome_ && socket_ && !socket_->lost(); }  // results may be sent
  bool silent(Time now) const { return now - last_heard_ > 3 * heartbeat_; }
  Time last_heard() const { return last_heard_; }

 private:
  std::filesystem::path campaign_;
  engine::wire::CampaignKeys keys_;
  std::optional<engine::wire::ClientSocket> socket_;
  engine::wire::Endpoint endpoint_;
  Duration heartbeat_ = std::chrono::seconds(1);
  Time last_heard_;
  Time connected_;
  Time next_renewal_;
  bool welcome_ = false;
};

}  // namespace wflow::workers
