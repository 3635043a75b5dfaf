// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/wire/messages.h"
#include "engine/wire/samples_of_messages.h"
#include "engine/wire/temporary_campaign.h"

namespace wflow::engine::wire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Turns both ends until `done` or the deadline; true if done.
bool turn(ServerSocket& server, const std::function<bool()>& done, Clock::duration limit = 20s) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > end) return false;
    server.wait(5ms, {});
  }
  return true;
}

// A peer that speaks another language, or none.
class RawConnection {
 public:
  explicit RawConnection(const Endpoint& endpoint) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(endpoint.remote.substr(endpoint.remote.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  void say(std::string_view text) const {
    EXPECT_EQ(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

 private:
  FileDescriptor fd_;
};

void raise_file_limit(rlim_t files) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min(std::max(limit.rlim_cur, files), limit.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

class TransportTest : public ::testing::Test {
 protected:
  std::optional<ServerSocket::Received> receive() {
    std::optional<ServerSocket::Received> received;
    turn(server_, [&] { return (received = server_.receive()).has_value(); });
    return received;
  }
  std::optional<Message> receive(ClientSocket& client) {
    std::optional<Message> message;
    turn(server_, [&] { return (message = client.receive()).has_value(); });
    return message;
  }
  Endpoint remote_only() {
    Endpoint endpoint = server_.endpoint();
    endpoint.local.clear();
    return endpoint;
  }

  TemporaryCampaign campaign_;
  CampaignKeys keys_ = create_keys(campaign_.path());
  ServerSocket server_{keys_, Listen::network};
};

TEST_F(TransportTest, CarriesMessagesBothWays) {
  for (const bool local : {true, false}) {
    ClientSocket client(keys_, local ? server_.endpoint() : remote_only());
    for (const Message& message : sample_messages()) {
      ASSERT_TRUE(client.send(message));
      const auto received = receive();
      ASSERT_TRUE(received);
      EXPECT_EQ(encode(received->message), encode(message));
      ASSERT_TRUE(server_.send(received->peer, message));
      const auto answer = receive(client);
      ASSERT_TRUE(answer);
      EXPECT_EQ(encode(*answer), encode(message));
    }
  }
}

TEST_F(TransportTest, KeepsTwoPeersApart) {
  ClientSocket first(keys_, server_.endpoint());
  ClientSocket second(keys_, remote_only());
  ASSERT_TRUE(first.send(Goodbye{"first"}));
  const auto from_first = receive();
  ASSERT_TRUE(second.send(Goodbye{"second"}));
  const auto from_second = receive();
  ASSERT_TRUE(from_first && from_second);
  EXPECT_NE(from_first->peer, from_second->peer);
  ASSERT_TRUE(server_.send(from_second->peer, Refuse{"second"}));
  ASSERT_TRUE(server_.send(from_first->peer, Refuse{"first"}));
  EXPECT_EQ(std::get<Refuse>(*receive(first)).reason, "first");
  EXPECT_EQ(std::get<Refuse>(*receive(second)).reason, "second");
}

TEST_F(TransportTest, RefusesAnotherCampaignsKey) {
  const TemporaryCampaign other;
  CampaignKeys wrong = create_keys(other.path());
  wrong.server = keys_.server;  // knows whom it talks to, but is not on the list
  ClientSocket client(wrong, server_.endpoint());
  ASSERT_TRUE(client.send(Goodbye{"let me in"}));
  bool heard = false;
  const bool lost = turn(server_, [&] {
    heard = heard || server_.receive().has_value();
    client.receive();
    return client.lost();
  });
  EXPECT_TRUE(lost);
  EXPECT_FALSE(heard);
}

// TCP sockets of this process that listen, by the kernel's list.
std::size_t listening_ports() {
  std::size_t count = 0;
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    if (!std::filesystem::exists(table)) continue;
    for (const std::string& line : text::split(read_file(table), '\n')) {
      std::istringstream words(line);
      const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
      if (fields.size() > 9 && fields[3] == "0A" && own.contains(fields[9])) ++count;
    }
  }
  return count;
}

TEST(Listen, OfOneHostOpensNoPort) {
  const TemporaryCampaign campaign;
  const CampaignKeys keys = create_keys(campaign.path());
  {
    ServerSocket server(keys, Listen::host);
    EXPECT_EQ(listening_ports(), 0U);
    EXPECT_EQ(server.endpoint().remote, "");
    const std::string socket = server.endpoint().local.substr(6);
    struct stat status {};
    ASSERT_EQ(::stat(socket.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    ASSERT_EQ(::stat(std::filesystem::path(socket).parent_path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0700U);
    ClientSocket client(keys, server.endpoint());
    ASSERT_TRUE(client.send(Goodbye{"hello"}));
    std::optional<ServerSocket::Received> received;
    EXPECT_TRUE(turn(server, [&] { return (received = server.receive()).has_value(); }));
  }
  ServerSocket server(keys, Listen::network);
  EXPECT_EQ(listening_ports(), 1U);
}

TEST_F(TransportTest, CountsWhoShowsNoKey) {
  const TemporaryCampaign other;
  CampaignKeys wrong = create_keys(other.path());
  wrong.server = keys_.server;
  ClientSocket client(wrong, server_.endpoint());
  ASSERT_TRUE(client.send(Goodbye{"let me in"}));
  EXPECT_TRUE(turn(server_, [&] {
    client.receive();
    return server_.refused().other_keys == 1;
  }));
  for (int i = 0; i < 3; ++i) RawConnection(server_.endpoint()).say("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(turn(server_, [&] { return server_.refused().connections == 4; }))
      << server_.refused().connections;
  ClientSocket friendly(keys_, server_.endpoint());
  ASSERT_TRUE(friendly.send(Pulse{}));
  ASSERT_TRUE(receive());
  EXPECT_EQ(server_.refused().connections, 4U);
  EXPECT_EQ(server_.refused().messages, 0U);
}

// They cost memory, and descriptors that the database needs.
TEST_F(TransportTest, ThousandsOfSilentConnectionsKeepNobodyOut) {
  constexpr std::size_t kSilent = 3000;
  raise_file_limit(3 * kSilent);
  const auto descriptors = [] {
    const std::filesystem::directory_iterator list("/proc/self/fd");
    return std::distance(begin(list), end(list));
  };
  std::vector<RawConnection> silent;
  for (std::size_t i = 0; i < kSilent; ++i) {
    silent.emplace_back(server_.endpoint());
    if (i % 64 == 0) server_.wait(1ms, {});
  }
  EXPECT_TRUE(turn(server_, [&] { return server_.refused().connections >= kSilent - 1024; }))
      << server_.refused().connections;
  EXPECT_TRUE(turn(server_, [&] { return descriptors() < static_cast<long>(kSilent + 1024 + 100); }));
  ClientSocket client(keys_, remote_only());
  ASSERT_TRUE(client.send(Goodbye{"through the crowd"}));
  EXPECT_TRUE(receive());
}

TEST_F(TransportTest, RefusesToTalkToAnotherServer) {
  const TemporaryCampaign other;
  CampaignKeys wrong = create_keys(other.path());
  wrong.client = keys_.client;
  ClientSocket client(wrong, server_.endpoint());
  ASSERT_TRUE(client.send(Goodbye{"hello"}));
  bool heard = false;
  EXPECT_TRUE(turn(
      server_,
      [&] {
        heard = heard || server_.receive().has_value();
        client.receive();
        return client.lost();
      },
      40s));
  EXPECT_FALSE(heard);
}

TEST_F(TransportTest, SendToNobodyIsFalse) {
  EXPECT_FALSE(server_.send("nobody", Pulse{}));
  std::string peer;
  {
    ClientSocket client(keys_, server_.endpoint());
    ASSERT_TRUE(client.send(Pulse{}));
    const auto received = receive();
    ASSERT_TRUE(received);
    peer = received->peer;
  }
  EXPECT_TRUE(turn(server_, [&] {
    server_.receive();
    return !server_.send(peer, Pulse{});
  }));
}

TEST_F(TransportTest, AnAnswerThatIsTooLargeIsARefusal) {
  ClientSocket client(keys_, server_.endpoint());
  ASSERT_TRUE(client.send(Query{StatusRequest{}}));
  const auto received = receive();
  ASSERT_TRUE(received);
  StatusAnswer status;
  status.iterations.assign(kMaxMessageBytes + 1, 'x');
  EXPECT_TRUE(server_.send(received->peer, Answer{std::move(status)}));
  const auto answer = receive(client);
  ASSERT_TRUE(answer);
  const auto& refused = std::get<Refusal>(std::get<Answer>(*answer).body);
  EXPECT_NE(refused.sentence.find("ask for less"), std::string::npos) << refused.sentence;
}

// So the simulator refuses sends to workers alone.
TEST_F(TransportTest, AnAnswerIsTakenForAClientThatDoesNotRead) {
  ClientSocket client(keys_, server_.endpoint());
  ASSERT_TRUE(client.send(Query{StatusRequest{}}));
  const auto received = receive();
  ASSERT_TRUE(received);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(server_.send(received->peer, done_answer())) << i;
}

TEST_F(TransportTest, AQueryThatIsTooLargeIsAnError) {
  ClientSocket client(keys_, server_.endpoint());
  const SnapshotRequest large{std::string(kMaxMessageBytes + 1, 'x')};
  EXPECT_THROW(static_cast<void>(client.send(Query{large})), Error);
}

TEST_F(TransportTest, AMessageOfAnyKindThatIsTooLargeIsAnError) {
  ClientSocket client(keys_, server_.endpoint());
  ASSERT_TRUE(client.send(Pulse{}));
  const auto received = receive();
  ASSERT_TRUE(received);
  Results results;
  results.events.push_back({1, 0, 0, 1.0, OtherEvent{"", std::string(kMaxMessageBytes + 1, 'x')}});
  EXPECT_THROW(static_cast<void>(client.send(results)), Error);
  EXPECT_THROW(static_cast<void>(server_.send(received->peer, results)), Error);
}

TEST_F(TransportTest, ClientSeesThatTheServerHasGone) {
  auto server = std::make_unique<ServerSocket>(keys_, Listen::host);
  ClientSocket client(keys_, server->endpoint());
  ASSERT_TRUE(client.send(Pulse{}));
  ASSERT_TRUE(turn(*server, [&] { return server->receive().has_value(); }));
  EXPECT_FALSE(client.lost());
  const Endpoint gone = server->endpoint();
  server.reset();
  const auto end = Clock::now() + 20s;
  while (!client.lost() && Clock::now() < end) client.wait(10ms, {});
  EXPECT_TRUE(client.lost());
  EXPECT_FALSE(client.send(Pulse{}));
  ClientSocket late(keys_, gone);
  while (!late.lost() && Clock::now() < end) late.wait(10ms, {});
  EXPECT_TRUE(late.lost());
}

TEST_F(TransportTest, WaitsForOtherDescriptors) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor in(ends[0]);
  const FileDescriptor out(ends[1]);
  ASSERT_EQ(::write(out.get(), "x", 1), 1);
  const int fd = in.get();
  const auto start = Clock::now();
  server_.wait(20s, {&fd, 1});
  ClientSocket client(keys_, server_.endpoint());
  client.wait(20s, {&fd, 1});
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST_F(TransportTest, NoDescriptorIsInherited) {
  ClientSocket client(keys_, server_.endpoint());
  ASSERT_TRUE(client.send(Pulse{}));
  ASSERT_TRUE(receive());
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    if (fd <= 2 || error || !(target.starts_with("socket:") || target.starts_with("anon_inode:"))) continue;
    const int flags = ::fcntl(fd, F_GETFD);
    EXPECT_TRUE(flags < 0 || (flags & FD_CLOEXEC) != 0) << fd << " " << target;
  }
}

TEST_F(TransportTest, AskGetsItsAnswer) {
  EXPECT_FALSE(ask(campaign_.path(), {StatusRequest{}}, 10ms));
  write_endpoint(campaign_.path(), server_.endpoint());
  std::optional<Answer> answer;
  std::atomic<bool> answered = false;
  std::thread asker([&] {
    answer = ask(campaign_.path(), {SnapshotRequest{"copy"}}, 20s);
    answered = true;
  });
  turn(server_, [&] {
    if (const auto received = server_.receive()) {
      const std::string path = std::get<SnapshotRequest>(std::get<Query>(received->message).request).path;
      EXPECT_TRUE(server_.send(received->peer, refusal(path)));
    }
    return answered.load();
  });
  asker.join();
  ASSERT_TRUE(answer);
  EXPECT_EQ(std::get<Refusal>(answer->body).sentence, "copy");
}

}  // namespace
}  // namespace wflow::engine::wire
