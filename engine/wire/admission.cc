// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/admission.h"

#include <sys/socket.h>
#include <zmq.h>

#include <cstring>

namespace wflow::engine::wire {

namespace {
constexpr const char* kEvents = "inproc://wflow.admission";
}

Admission::Admission(zmq::context_t& context, zmq::socket_t& socket, std::size_t most)
    : socket_(socket), monitor_(context, ZMQ_PAIR), most_(most) {
  monitor_.set(zmq::sockopt::linger, 0);
  // No bound: libzmq's own thread would wait for this one, with everybody's messages.
  monitor_.set(zmq::sockopt::rcvhwm, 0);
  if (::zmq_socket_monitor(socket.handle(), kEvents, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) != 0)
    throw zmq::error_t();
  monitor_.connect(kEvents);
}

Admission::~Admission() {
  ::zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

void Admission::look() {
  zmq::message_t frame;
  while (monitor_.recv(frame, zmq::recv_flags::dontwait)) {
    std::uint16_t event = 0;
    std::int32_t fd = -1;
    if (!frame.more() || frame.size() < sizeof event + sizeof fd) continue;  // the address comes behind it
    std::memcpy(&event, frame.data(), sizeof event);
    std::memcpy(&fd, frame.data<char>() + sizeof event, sizeof fd);
    if (event == ZMQ_EVENT_ACCEPTED) {
      accepted(fd);
    } else if (event == ZMQ_EVENT_DISCONNECTED && forget(fd)) {
      ++ended_unheard_;
    }
  }
}

void Admission::accepted(int fd) {
  forget(fd);
  places_[fd] = waiting_.insert(waiting_.end(), fd);
  // libzmq sees its end and closes it. If the number has come to mean another connection in this moment, that
  // one is made again by its peer.
  if (waiting_.size() > most_) {
    ::shutdown(waiting_.front(), SHUT_RDWR);
    forget(waiting_.front());
    ++ended_unheard_;
  }
}

bool Admission::forget(int fd) {
  const auto at = places_.find(fd);
  if (at == places_.end()) return false;
  waiting_.erase(at->second);
  places_.erase(at);
  return true;
}

void Admission::heard(zmq::message_t& message) {
  if (!waiting_.empty()) forget(::zmq_msg_get(message.handle(), ZMQ_SRCFD));
}

}  // namespace wflow::engine::wire
