// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace wflow::ppx {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{100};    // whether the program has ended before it was connected to
constexpr milliseconds kPatience{2000};    // for the end of a program that has closed its socket, or must end
constexpr std::size_t kMostAddress = 100;  // of sockaddr_un's 108 bytes
constexpr int kShellSignal = 128;
constexpr const char* kMonitor = "inproc://monitor";

[[noreturn]] void fail(const std::string& sentence) {
  throw std::runtime_error(sentence);
}

[[noreturn]] void fail_system(const std::string& what) {
  fail(what + ": " + std::strerror(errno));
}

// In the child: only what may be called between fork and exec.
[[noreturn]] void become(const char* command, const char* directory) {
  ::setpgid(0, 0);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, 0);
  if (*directory != '\0' && ::chdir(directory) != 0) {
    constexpr char kText[] = "cannot enter the directory of the plugin: block\n";
    [[maybe_unused]] const ssize_t written = ::write(2, kText, sizeof kText - 1);
    ::_exit(1);
  }
  ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(127);
}

// In a child: a member of the program's process group that kills it when this process has gone, whatever
// ended it. A simulator would wait for the next message for ever.
[[noreturn]] void guard(pid_t group, int read_end, int write_end) {
  if (::setpgid(0, group) != 0) ::_exit(1);
  std::signal(SIGTERM, SIG_IGN);
  ::close(write_end);
  char byte = 0;
  while (::read(read_end, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);
  ::_exit(1);
}

}  // namespace

void Program::CloseSocket::operator()(void* socket) const {
  ::zmq_close(socket);
}

void Program::EndContext::operator()(void* context) const {
  ::zmq_ctx_term(context);
}

Program::Program(const std::string& command, const std::string& directory) {
  make_folder();
  const std::string address = "ipc://" + folder_ + "/socket";
  try {
    ::setenv("WFLOW_PPX_ADDRESS", address.c_str(), 1);
    start(command, directory);
    connect(address);
  } catch (...) {
    end();
    throw;
  }
}

Program::~Program() {
  end();
}

void Program::end() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGTERM);
    for (const auto until = Clock::now() + kPatience; !ended() && Clock::now() < until;)
      std::this_thread::sleep_for(milliseconds(1));
    ::kill(-pid_, SIGKILL);  // also what it has started
    if (!ended_) ::waitpid(pid_, &status_, 0);
  }
  if (lifeline_ >= 0) ::close(lifeline_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
  remove_folder();
}

void Program::make_folder() {
  const char* given = std::getenv("TMPDIR");
  const std::string last = "/wflow-ppx-XXXXXX";
  std::string text = given == nullptr ? "" : given;
  if (text.empty() || text.size() + last.size() + std::strlen("/socket") > kMostAddress) text = "/tmp";
  text += last;
  if (::mkdtemp(text.data()) == nullptr) fail_system("cannot make " + text);
  folder_ = text;
}

void Program::remove_folder() {
  if (folder_.empty()) return;
  ::unlink((folder_ + "/socket").c_str());
  ::rmdir(folder_.c_str());
  folder_.clear();
}

void Program::connected() {
  is_connected_ = true;
  remove_folder();
}

void Program::start(const std::string& command, const std::string& directory) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_system("cannot start a process");
  lifeline_ = ends[1];
  pid_ = ::fork();
  if (pid_ == 0) become(command.c_str(), directory.c_str());
  ::setpgid(pid_, pid_);
  guard_ = pid_ < 0 ? -1 : ::fork();
  if (guard_ == 0) guard(pid_, ends[0], ends[1]);
  ::close(ends[0]);
  if (guard_ < 0) fail_system("cannot start a process");
}

void Program::connect(const std::string& address) {
  context_.reset(::zmq_ctx_new());
  socket_.reset(::zmq_socket(context_.get(), ZMQ_REQ));
  if (!socket_) fail_system("cannot make a socket");
  const int no_linger = 0;
  const int soon_ms = 5;
  ::zmq_setsockopt(socket_.get(), ZMQ_LINGER, &no_linger, sizeof no_linger);
  ::zmq_setsockopt(socket_.get(), ZMQ_RECONNECT_IVL, &soon_ms, sizeof soon_ms);
  ::zmq_socket_monitor(
      socket_.get(), kMonitor,
      ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL);
  monitor_.reset(::zmq_socket(context_.get(), ZMQ_PAIR));
  ::zmq_setsockopt(monitor_.get(), ZMQ_LINGER, &no_linger, sizeof no_linger);
  if (!monitor_ || ::zmq_connect(monitor_.get(), kMonitor) != 0) fail_system("cannot watch a socket");
  if (::zmq_connect(socket_.get(), address.c_str()) != 0) fail_system("cannot connect to " + address);
}

bool Program::ended() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

void Program::fail_as_ended() {
  const std::string when = is_connected_ ? "" : " before it could be connected to at $WFLOW_PPX_ADDRESS";
  // The shell's own code for a program that a signal has ended.
  const int after_signal = WIFEXITED(status_) ? WEXITSTATUS(status_) - kShellSignal : WTERMSIG(status_);
  if (after_signal > 0) fail("was killed by signal " + std::to_string(after_signal) + when);
  fail("has ended with exit code " + std::to_string(WEXITSTATUS(status_)) + when);
}

// After the monitor has said something, or a look for an answer was in vain.
void Program::check_connection() {
  std::array<unsigned char, 6> event{};  // 16 bits of the event, 32 of a value; a second part is the address
  const int bytes = ::zmq_recv(monitor_.get(), event.data(), event.size(), ZMQ_DONTWAIT);
  if (bytes < 0) {
    if (ended() && !readable(milliseconds(0))) fail_as_ended();
    return;
  }
  std::array<char, 200> address{};
  ::zmq_recv(monitor_.get(), address.data(), address.size(), ZMQ_DONTWAIT);
  if (readable(milliseconds(0))) return;  // its last message
  std::uint16_t kind = 0;
  std::memcpy(&kind, event.data(), sizeof kind);
  for (const auto until = Clock::now() + kPatience; !ended() && Clock::now() < until;)
    std::this_thread::sleep_for(milliseconds(1));
  if (ended()) fail_as_ended();
  fail(kind == ZMQ_EVENT_DISCONNECTED ? "has closed its end of the socket, and goes on"
                                      : "does not speak ZeroMQ at $WFLOW_PPX_ADDRESS");
}

bool Program::readable(milliseconds limit) {
  std::array<zmq_pollitem_t, 2> items = {zmq_pollitem_t{socket_.get(), 0, ZMQ_POLLIN, 0},
                                         zmq_pollitem_t{monitor_.get(), 0, ZMQ_POLLIN, 0}};
  const int watched = limit.count() > 0 ? 2 : 1;
  ::zmq_poll(items.data(), watched, static_cast<long>(limit.count()));
  return (items[0].revents & ZMQ_POLLIN) != 0;
}

std::vector<std::uint8_t> Program::ask(std::span<const std::uint8_t> message, std::chrono::seconds limit) {
  const auto begin = Clock::now();
  if (::zmq_send(socket_.get(), message.data(), message.size(), 0) < 0) fail_system("takes no message");
  while (!readable(kLookAgain)) {
    check_connection();
    if (limit != std::chrono::seconds::max() && Clock::now() - begin > limit)
      fail("has not answered at $WFLOW_PPX_ADDRESS for " + std::to_string(limit.count()) + " s");
  }
  zmq_msg_t received;
  ::zmq_msg_init(&received);
  const int bytes = ::zmq_msg_recv(&received, socket_.get(), 0);
  const auto* data = static_cast<const std::uint8_t*>(::zmq_msg_data(&received));
  std::vector<std::uint8_t> answer;
  if (bytes > 0) answer.assign(data, data + bytes);
  const bool in_parts = ::zmq_msg_more(&received) != 0;
  ::zmq_msg_close(&received);
  if (bytes < 0) fail_system("sends no message");
  if (in_parts) fail("has sent a message of several parts");
  return answer;
}

}  // namespace wflow::ppx
