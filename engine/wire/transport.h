// SPDX-License-Identifier: Apache-2.0
// The only boundary to ZeroMQ. Every socket is CURVE-encrypted; the coordinator accepts the campaign's client
// key only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/wire/keys.h"
#include "engine/wire/messages.h"

namespace wflow::engine::wire {

// From where a coordinator can be reached. `host`: it opens no TCP port, unless this host has no Unix
// sockets; then one on the loopback interface.
enum class Listen : std::uint8_t { host, network };

// The coordinator's end: one ROUTER bound to a Unix socket in a folder of the user alone (addresses.h)
// and, where workers of other hosts are to come, to tcp://*:<free port>.
class ServerSocket {
 public:
  ServerSocket(const CampaignKeys& keys, Listen listen);
  ~ServerSocket();
  ServerSocket(const ServerSocket&) = delete;
  ServerSocket& operator=(const ServerSocket&) = delete;

  Endpoint endpoint() const;  // without epoch

  struct Received {
    std::string peer;  // routing id: answer to it with send()
    Message message;
  };
  // The next message, or nothing if none waits. Bytes that are no message are counted and dropped.
  std::optional<Received> receive();
  // False when the peer is gone or its queue is full. An answer that is too large goes out as a refusal.
  [[nodiscard]] bool send(const std::string& peer, const Message& message);
  // Without the messages that parse and claim what can't be: those are the machine's to count.
  RefusedView refused() const;

  // Waits until the socket or one of `fds` is readable, or the time is over. Only wait() and receive() accept
  // (or refuse) new peers: they need no thread for it, but a loop that calls neither accepts no connection.
  void wait(std::chrono::milliseconds timeout, std::span<const int> fds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Shared by many clients of one process: a thread for their connections. It outlives them.
class ClientContext {
 public:
  ClientContext();
  ~ClientContext();
  ClientContext(const ClientContext&) = delete;
  ClientContext& operator=(const ClientContext&) = delete;

 private:
  friend class ClientSocket;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A worker's or client's end: one DEALER. Prefers the local endpoint when it runs on the coordinator's host.
class ClientSocket {
 public:
  ClientSocket(const CampaignKeys& keys, const Endpoint& endpoint);  // with a context of its own
  ClientSocket(const CampaignKeys& keys, const Endpoint& endpoint, ClientContext& context);
  ~ClientSocket();
  ClientSocket(ClientSocket&&) noexcept;
  ClientSocket& operator=(ClientSocket&&) noexcept;

  std::optional<Message> receive();
  // False when the connection is lost or its queue is full. Error{usage} for a query that is too large.
  [[nodiscard]] bool send(const Message& message);
  // Waits until the socket or one of `fds` is readable, the connection is lost, or the time is over.
  void wait(std::chrono::milliseconds timeout, std::span<const int> fds);

  // The connection could not be made, was refused or has ended. It is never made again by itself: messages
  // under way may be gone, so the owner makes a new socket and begins with Hello.
  bool lost() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Sends one query to the campaign's coordinator; empty if none answers within `timeout`.
std::optional<Answer> ask(const std::filesystem::path& campaign, const Query& query,
                          std::chrono::milliseconds timeout);

}  // namespace wflow::engine::wire
