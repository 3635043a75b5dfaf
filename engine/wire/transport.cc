// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/transport.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <unordered_map>
#include <zmq.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/folders.h"
#include "base/process.h"
#include "base/resources.h"
#include "base/text.h"
#include "engine/wire/addresses.h"
#include "engine/wire/messages.h"

namespace wflow::engine::wire {

namespace {
constexpr const char* kEvents = "inproc://wflow.admission";
}  // namespace

// Counts connections to a coordinator's socket that have shown no key, and bounds their number: a connection
// costs libzmq some 40 KB before the first message of its peer.
//
// Connections without a message wait in order of arrival. If there are more than `most`, the oldest are shut
// down: a peer with a key needs milliseconds to send its first message.
class Admission {
 public:
  Admission(zmq::context_t& context, zmq::socket_t& socket, std::size_t most);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  zmq::socket_t& monitor() { return monitor_; }
  // Reads the events of connections. Cheap if there are none.
  void look();
  // A message with the campaign's key has come from the connection. Pass its body: the frame with the peer's
  // name does not identify the connection.
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

Admission::Admission(zmq::context_t& context, zmq::socket_t& socket, std::size_t most)
    : socket_(socket), monitor_(context, ZMQ_PAIR), most_(most) {
  monitor_.set(zmq::sockopt::linger, 0);
  // No bound: libzmq's own thread would wait for this one, and block all messages.
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

namespace {

constexpr int kQueuedMessages = 100'000;  // per peer; beyond it send() returns false
constexpr std::size_t kUnheard = 1024;    // connections without a message yet
constexpr int kBacklog = 4096;            // an allocation's workers come all at once
// TCP's own keep-alive takes hours to detect a lost node by default. Only the client's end asks
// for ZeroMQ's heartbeats: libzmq finds the timer of each by going through those of all connections
// (cancel_timer in its poller_base.cpp), so that those of 10,000 would keep a coordinator's thread busy.
constexpr int kHeartbeatMs = 5'000;
constexpr int kKeepAlive_s = 20, kKeepAliveAgain_s = 10, kKeepAlives = 3;
constexpr int kHeartbeatTimeoutMs = 20'000;
constexpr int kHandshakeMs = 20'000;
constexpr int kConnectMs = 5'000;  // an address that does not answer must not keep from trying the next one
constexpr int kLingerMs = 1'000;
constexpr double kGiveUp_s = 7;  // a name that cannot be resolved makes no event
constexpr int kMonitorEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED |
                               ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kZapAddress = "inproc://zeromq.zap.01";
constexpr int kClients = 20'000;  // per context, three sockets each
constexpr int kIoThreads = 1;
constexpr int kThreads = kIoThreads + 1;  // and the one that ends sockets

// The database needs descriptors, too, and so do the workers.
std::size_t most_unheard() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return kUnheard;
  return std::clamp<std::size_t>(files.rlim_cur / 4, 1, kUnheard);
}

Error socket_error(const zmq::error_t& error, const std::string& what) {
  return Error(ExitCode::system, fmt::format("{}: {}", what, error.what()));
}

// ZeroMQ aborts the process if it can't start its threads: test first whether the limits allow them.
zmq::context_t make_context(int sockets = ZMQ_MAX_SOCKETS_DFLT) {
  if (const int error = try_threads(kThreads); error != 0)
    throw system_error(error, "cannot start the threads of a connection; allow more processes (ulimit -u)");
  return zmq::context_t(kIoThreads, sockets);
}

void set_common(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxMessageBytes));
  socket.set(zmq::sockopt::sndhwm, kQueuedMessages);
  socket.set(zmq::sockopt::rcvhwm, kQueuedMessages);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::linger, kLingerMs);
}

#ifdef WFLOW_THREAD_SANITIZER
// The distribution's libzmq is not instrumented: its hand-over of a frame between threads looks like a race
// to the sanitizer, so the bytes are copied where it does not look.
__attribute__((no_sanitize("thread"))) std::string view(const zmq::message_t& frame) {
  std::string bytes(frame.size(), '\0');
  char* target = bytes.data();
  const volatile char* source = frame.data<char>();
  for (std::size_t i = 0; i < frame.size(); ++i) target[i] = source[i];
  return bytes;
}
#else
std::string_view view(const zmq::message_t& frame) {
  return {frame.data<char>(), frame.size()};
}
#endif

// Names the message that is too large: nothing checks the size of a study before.
[[noreturn]] void refuse_size(const char* who, std::size_t bytes) {
  throw Error(
      ExitCode::system,
      fmt::format(
          "a message to {} has {}, and at most {} can be sent: a step's command, its table of samples or "
          "what a task has reported is too long",
          who, text::format_bytes(bytes), text::format_bytes(kMaxMessageBytes)));
}

// The answer to a query may have any size; it must not end the coordinator.
std::string encode_for_peer(const Message& message) {
  std::string body = encode(message);
  if (!std::holds_alternative<Answer>(message)) {
    if (body.size() > kMaxMessageBytes) refuse_size("a worker", body.size());
    return body;
  }
  if (body.size() <= kMaxAnswerBytes) return body;
  return encode(refusal(fmt::format("the answer has {}, and at most {} are sent; ask for less",
                                    text::format_bytes(body.size()), text::format_bytes(kMaxAnswerBytes)),
                        ExitCode::system));
}

// Adds `fds` behind the first `own` items.
void add_fds(std::vector<zmq::pollitem_t>& items, std::size_t own, std::span<const int> fds) {
  items.resize(own);
  for (const int fd : fds) items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
}

// A signal that ends the wait early is no error: the caller's loop turns once more.
bool poll(std::vector<zmq::pollitem_t>& items, std::chrono::milliseconds timeout) {
  try {
    return zmq::poll(items, timeout) > 0;
  } catch (const zmq::error_t& error) {
    if (error.num() == EINTR) return false;
    throw socket_error(error, "cannot wait for messages");
  }
}

// Reads the frames that remain of a message with too many of them.
void skip_rest(zmq::socket_t& socket, const zmq::message_t& last) {
  bool more = last.more();
  while (more) {
    zmq::message_t frame;
    if (!socket.recv(frame, zmq::recv_flags::dontwait)) return;
    more = frame.more();
  }
}

}  // namespace

// ---- server

struct ServerSocket::Impl {
  Impl(const CampaignKeys& keys, Listen listen)
      : zap(context, ZMQ_REP), router(context, ZMQ_ROUTER), admission(context, router, most_unheard()) {
    std::array<std::uint8_t, 32> raw{};
    if (::zmq_z85_decode(raw.data(), keys.client.public_key.c_str()) == nullptr) {
      throw Error(ExitCode::data, "the campaign's client key is not a CURVE key");
    }
    accepted_key.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
    zap.set(zmq::sockopt::linger, 0);
    zap.bind(kZapAddress);  // before the router binds, or its first peers would be let in unchecked
    set_common(router);
    router.set(zmq::sockopt::tcp_keepalive, 1);
    router.set(zmq::sockopt::tcp_keepalive_idle, kKeepAlive_s);
    router.set(zmq::sockopt::tcp_keepalive_intvl, kKeepAliveAgain_s);
    router.set(zmq::sockopt::tcp_keepalive_cnt, kKeepAlives);
    router.set(zmq::sockopt::backlog, kBacklog);
    router.set(zmq::sockopt::router_mandatory, true);
    router.set(zmq::sockopt::router_handover, true);
    router.set(zmq::sockopt::curve_server, true);
    router.set(zmq::sockopt::curve_secretkey, keys.server.secret_key);
    router.set(zmq::sockopt::zap_domain, "wflow");
    endpoint.host = host_name();
    endpoint.pid = ::getpid();
    const bool local = bind_local(keys);
    if (listen == Listen::network) {
      bind_network(reachable_hosts(), "*");
    } else if (!local) {
      bind_network({kLoopback}, kLoopback);
    }
    items = {{router.handle(), 0, ZMQ_POLLIN, 0},
             {zap.handle(), 0, ZMQ_POLLIN, 0},
             {admission.monitor().handle(), 0, ZMQ_POLLIN, 0}};
  }

  ~Impl() {
    if (local_path.empty()) return;
    std::error_code ignored;
    std::filesystem::remove(local_path, ignored);
  }

  void bind_network(const std::vector<std::string>& hosts, const std::string& interface) {
    router.bind("tcp://" + interface + ":*");
    const std::string bound = router.get(zmq::sockopt::last_endpoint);
    for (const std::string& host : hosts) {
      const std::string address = "tcp://" + host + bound.substr(bound.rfind(':'));
      endpoint.remote.empty() ? void(endpoint.remote = address) : endpoint.others.push_back(address);
    }
  }

  // False without Unix sockets: workers of this host then connect by TCP.
  bool bind_local(const CampaignKeys& keys) {
    const auto folder = socket_folder();
    if (!folder) return false;
    remove_old_sockets(*folder);
    const auto path = new_socket(*folder, keys.token);
    try {
      router.bind("ipc://" + path.string());
    } catch (const zmq::error_t&) {
      return false;
    }
    ::chmod(path.c_str(), 0600);
    local_path = path;
    endpoint.local = "ipc://" + path.string();
    return true;
  }

  // Answers libzmq's questions whether a peer may come in (rfc.zeromq.org/spec/27).
  void authenticate() {
    while (true) {
      std::vector<zmq::message_t> frames;
      do {
        if (!zap.recv(frames.emplace_back(), zmq::recv_flags::dontwait)) return;
      } while (frames.back().more());
      const bool welcome =
          frames.size() == 7 && view(frames[5]) == "CURVE" && view(frames[6]) == accepted_key;
      if (!welcome) ++other_keys;
      const std::string request_id = frames.size() > 1 ? std::string(view(frames[1])) : "";
      const std::array<std::string, 6> answer = {
          "1.0", request_id, welcome ? "200" : "400", welcome ? "OK" : "not a key of this campaign", "", ""};
      for (std::size_t i = 0; i < answer.size(); ++i) {
        zap.send(zmq::buffer(answer[i]),
                 i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
      }
    }
  }

  std::optional<Received> receive() {
    while (true) {
      zmq::message_t peer;
      zmq::message_t body;
      if (!router.recv(peer, zmq::recv_flags::dontwait)) return std::nullopt;
      if (!peer.more() || !router.recv(body, zmq::recv_flags::dontwait)) {
        ++malformed;
        continue;
      }
      admission.heard(body);
      const bool surplus = body.more();
      skip_rest(router, body);
      if (!surplus) {
        if (auto message = decode(view(body))) return Received{std::string(view(peer)), std::move(*message)};
      }
      ++malformed;
    }
  }

  zmq::context_t context = make_context();
  zmq::socket_t zap;
  zmq::socket_t router;
  Admission admission;
  std::string accepted_key;
  Endpoint endpoint;
  std::filesystem::path local_path;
  std::vector<zmq::pollitem_t> items;
  std::uint64_t malformed = 0;
  std::uint64_t other_keys = 0;
};

ServerSocket::ServerSocket(const CampaignKeys& keys, Listen listen) {
  try {
    impl_ = std::make_unique<Impl>(keys, listen);
  } catch (const zmq::error_t& error) {
    throw socket_error(error, "cannot open the coordinator's socket");
  }
}

ServerSocket::~ServerSocket() = default;

Endpoint ServerSocket::endpoint() const {
  return impl_->endpoint;
}

RefusedView ServerSocket::refused() const {
  return {std::max(impl_->admission.ended_unheard(), impl_->other_keys), impl_->other_keys, impl_->malformed};
}

std::optional<ServerSocket::Received> ServerSocket::receive() {
  try {
    impl_->authenticate();
    impl_->admission.look();
    return impl_->receive();
  } catch (const zmq::error_t& error) {
    throw socket_error(error, "cannot receive from workers");
  }
}

bool ServerSocket::send(const std::string& peer, const Message& message) {
  const std::string body = encode_for_peer(message);
  try {
    const auto first =
        impl_->router.send(zmq::buffer(peer), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    if (!first) return false;
    return impl_->router.send(zmq::buffer(body), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return false;
    throw socket_error(error, "cannot send to a worker");
  }
}

void ServerSocket::wait(std::chrono::milliseconds timeout, std::span<const int> fds) {
  add_fds(impl_->items, 3, fds);
  const auto end = std::chrono::steady_clock::now() + timeout;
  auto left = timeout;
  // Being asked for a peer's admission is no message: go on waiting.
  while (poll(impl_->items, left)) {
    if (impl_->items[1].revents != 0) impl_->authenticate();
    if (impl_->items[2].revents != 0) impl_->admission.look();
    const bool other =
        std::any_of(impl_->items.begin() + 3, impl_->items.end(), [](auto& i) { return i.revents != 0; });
    if (impl_->items[0].revents != 0 || other) return;
    left = std::max(std::chrono::milliseconds(0), std::chrono::duration_cast<std::chrono::milliseconds>(
                                                      end - std::chrono::steady_clock::now()));
  }
}

// ---- client

struct ClientContext::Impl {
  zmq::context_t context = make_context(3 * kClients);
  std::uint64_t clients = 0;  // so far
};

ClientContext::ClientContext() : impl_(std::make_unique<Impl>()) {}
ClientContext::~ClientContext() = default;

struct ClientSocket::Impl {
  Impl(const CampaignKeys& keys, const Endpoint& endpoint)
      : Impl(std::make_unique<zmq::context_t>(make_context()), nullptr, 0, keys, endpoint) {}

  Impl(std::unique_ptr<zmq::context_t> alone, zmq::context_t* shared, std::uint64_t number,
       const CampaignKeys& keys, const Endpoint& endpoint)
      : own(std::move(alone)),
        dealer(shared ? *shared : *own, ZMQ_DEALER),
        monitor(shared ? *shared : *own, ZMQ_PAIR) {
    const std::string events = fmt::format("inproc://wflow.monitor.{}", number);
    set_common(dealer);
    dealer.set(zmq::sockopt::heartbeat_ivl, kHeartbeatMs);
    dealer.set(zmq::sockopt::heartbeat_timeout, kHeartbeatTimeoutMs);
    dealer.set(zmq::sockopt::reconnect_ivl, -1);
    dealer.set(zmq::sockopt::connect_timeout, kConnectMs);
    dealer.set(zmq::sockopt::curve_serverkey, keys.server.public_key);
    dealer.set(zmq::sockopt::curve_publickey, keys.client.public_key);
    dealer.set(zmq::sockopt::curve_secretkey, keys.client.secret_key);
    monitor.set(zmq::sockopt::linger, 0);
    if (::zmq_socket_monitor(dealer.handle(), events.c_str(), kMonitorEvents) != 0) throw zmq::error_t();
    monitor.connect(events);
    dealer.connect(address_of(endpoint));
    items = {{dealer.handle(), 0, ZMQ_POLLIN, 0}, {monitor.handle(), 0, ZMQ_POLLIN, 0}};
  }

  ~Impl() {
    see_monitor();
    if (lost) dealer.set(zmq::sockopt::linger, 0);
    ::zmq_socket_monitor(dealer.handle(), nullptr, 0);
  }

  static std::string address_of(const Endpoint& endpoint) {
    constexpr std::string_view kIpc = "ipc://";
    if (endpoint.host != host_name() || !endpoint.local.starts_with(kIpc)) return endpoint.remote;
    // A folder that is not the user's alone may hold another user's socket.
    const std::filesystem::path path = endpoint.local.substr(kIpc.size());
    const bool usable = ::access(path.c_str(), R_OK | W_OK) == 0 && is_private_folder(path.parent_path());
    return usable || endpoint.remote.empty() ? endpoint.local : endpoint.remote;
  }

  // Every event that is monitored but one means the end of the one connection.
  void see_monitor() {
    zmq::message_t frame;
    while (monitor.recv(frame, zmq::recv_flags::dontwait)) {
      std::uint16_t event = 0;
      if (frame.more() && frame.size() >= sizeof(event)) {
        std::memcpy(&event, frame.data(), sizeof(event));
        event == ZMQ_EVENT_CONNECTED ? connected = true : lost = true;
      }
    }
    if (!connected && !lost) lost = steady_now_s() - began_s > kGiveUp_s;
  }

  std::chrono::milliseconds left_to_connect() const {
    return std::chrono::milliseconds(
        static_cast<int>(1000 * std::max(0.0, began_s + kGiveUp_s - steady_now_s())) + 1);
  }

  std::optional<Message> receive() {
    see_monitor();
    while (true) {
      zmq::message_t body;
      if (!dealer.recv(body, zmq::recv_flags::dontwait)) return std::nullopt;
      const bool surplus = body.more();
      skip_rest(dealer, body);
      if (surplus) continue;
      if (auto message = decode(view(body))) return message;
    }
  }

  std::unique_ptr<zmq::context_t> own;
  zmq::socket_t dealer;
  zmq::socket_t monitor;
  std::vector<zmq::pollitem_t> items;
  bool quiet = false;  // nothing had come when wait() looked: receive() need not ask again
  bool connected = false;
  bool lost = false;
  double began_s = steady_now_s();
};

ClientSocket::ClientSocket(const CampaignKeys& keys, const Endpoint& endpoint, ClientContext& context) {
  try {
    impl_ =
        std::make_unique<Impl>(nullptr, &context.impl_->context, ++context.impl_->clients, keys, endpoint);
  } catch (const zmq::error_t& error) {
    throw socket_error(error, fmt::format("cannot connect to the coordinator at {}", endpoint.remote));
  }
}

ClientSocket::ClientSocket(const CampaignKeys& keys, const Endpoint& endpoint) {
  try {
    impl_ = std::make_unique<Impl>(keys, endpoint);
  } catch (const zmq::error_t& error) {
    throw socket_error(error, fmt::format("cannot connect to the coordinator at {}", endpoint.remote));
  }
}

ClientSocket::~ClientSocket() = default;
ClientSocket::ClientSocket(ClientSocket&&) noexcept = default;
ClientSocket& ClientSocket::operator=(ClientSocket&&) noexcept = default;

bool ClientSocket::lost() const {
  if (!impl_->connected) impl_->see_monitor();
  return impl_->lost;
}

std::optional<Message> ClientSocket::receive() {
  if (impl_->quiet) return std::nullopt;
  try {
    return impl_->receive();
  } catch (const zmq::error_t& error) {
    throw socket_error(error, "cannot receive from the coordinator");
  }
}

bool ClientSocket::send(const Message& message) {
  if (impl_->lost) return false;
  const std::string body = encode(message);
  if (body.size() > kMaxMessageBytes && std::holds_alternative<Query>(message)) {
    throw Error(ExitCode::usage,
                fmt::format("the request has {}, and at most {} can be sent; ask for less",
                            text::format_bytes(body.size()), text::format_bytes(kMaxMessageBytes)));
  }
  if (body.size() > kMaxMessageBytes) refuse_size("the coordinator", body.size());
  try {
    return impl_->dealer.send(zmq::buffer(body), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t& error) {
    throw socket_error(error, "cannot send to the coordinator");
  }
}

void ClientSocket::wait(std::chrono::milliseconds timeout, std::span<const int> fds) {
  add_fds(impl_->items, 2, fds);
  if (!impl_->connected) timeout = std::min(timeout, impl_->left_to_connect());
  poll(impl_->items, timeout);
  if (impl_->items[1].revents != 0) impl_->see_monitor();
  impl_->quiet = impl_->items[0].revents == 0;
}

namespace {

std::optional<Answer> ask_at(const CampaignKeys& keys, const Endpoint& endpoint, const Query& query,
                             std::chrono::steady_clock::time_point end) {
  ClientSocket socket(keys, endpoint);
  if (!socket.send(query)) return std::nullopt;
  for (bool lost = false;;) {
    while (auto message = socket.receive()) {
      if (auto* answer = std::get_if<Answer>(&*message)) return std::move(*answer);
    }
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (lost || left.count() <= 0) return std::nullopt;
    // A coordinator that answers and ends: what came before the end of the line is looked for once more.
    lost = socket.lost();
    if (lost) left = std::chrono::milliseconds(0);
    socket.wait(left, {});
  }
}

}  // namespace

std::optional<Answer> ask(const std::filesystem::path& campaign, const Query& query,
                          std::chrono::milliseconds timeout) {
  const auto endpoint = read_endpoint(campaign);
  if (!endpoint || is_out_of_reach(*endpoint)) return std::nullopt;
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (std::size_t number = 0; number <= endpoint->others.size(); ++number) {
    if (auto answer = ask_at(read_keys(campaign), attempt(*endpoint, number), query, end)) return answer;
  }
  return std::nullopt;
}

}  // namespace wflow::engine::wire

#ifdef WFLOW_THREAD_SANITIZER
// The distribution's libzmq is not instrumented: its hand-over between threads looks like races. Read by the
// sanitizer.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:libzmq.so\ncalled_from_lib:libzmq.so\n";
}
#endif
