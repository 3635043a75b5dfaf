// SPDX-License-Identifier: Apache-2.0
// Counts who connects to a coordinator's socket and shows no key, and keeps their number bounded: a
// connection costs libzmq some 40 KB before its peer has said anything. For transport.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <zmq.hpp>

namespace wflow::engine::wire {

// Connections from which nothing has come wait in the order in which they came. When there are more than
// `most`, the oldest are shut down: a peer with a key needs milliseconds to say its first message.
class Admission {
 public:
  Admission(zmq::context_t& context, zmq::socket_t& socket, std::size_t most);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  zmq::socket_t& monitor() { return monitor_; }
  // Takes what has happened to connections. Cheap where nothing has.
  void look();
  // A message with the campaign's key has come from the connection. Its body: the frame that names the peer
  // does not tell of its connection.
  void heard(zmq::message_t& message);
  // Connections that ended before anything came.
  std::uint64_t ended_unheard() const { return ended_unheard_; }

 private:
  void accepted(int fd);
  bool forget(int fd);

  zmq::socket_t& socket_;
  zmq::socket_t monitor_;
  std::size_t most_;
  std::list<int> waiting_;  // descriptors, the oldest first
  std::unordered_map<int, std::list<int>::iterator> places_;
  std::uint64_t ended_unheard_ = 0;
};

}  // namespace wflow::engine::wire
