// SPDX-License-Identifier: Apache-2.0
// A program of the tests: a peer that has a campaign's keys and talks nonsense to its coordinator.
//
//   wflow_fuzz_messages CAMPAIGN [--seed N] [--messages N] [--seconds S] [--worker GROUP]
//
// Messages of every kind, damaged by flipped, cut, inserted and repeated bytes; whole ones that no such peer
// should send; the same one again and again; of a newer protocol; and a few that are larger than may be. With
// --worker it first joins as a worker of that group, so that its results and heartbeats are looked at, too.
// Ends with 0 if it could send them all, and prints how many.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/random.h"
#include "base/text.h"
#include "engine/wire/keys.h"
#include "engine/wire/messages.h"
#include "engine/wire/samples_of_messages.h"

namespace wflow::engine::wire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kConnections = 4;
constexpr int kReconnectMs = 20;
constexpr int kSendMs = 20'000;
constexpr std::uint64_t kOversized = 3;  // in a whole run

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t operator()(std::uint64_t below) { return below == 0 ? 0 : hash64(seed_, next_++) % below; }

 private:
  std::uint64_t seed_, next_ = 0;
};

std::string damaged(std::string bytes, const std::string& other, Dice& dice) {
  for (std::uint64_t edits = 1 + dice(4); edits > 0; --edits) {
    const std::size_t at = dice(bytes.size() + 1);
    switch (dice(6)) {
      case 0:
        bytes.insert(at, 1, static_cast<char>(dice(256)));
        break;
      case 1:
        bytes.erase(at, 1 + dice(8));
        break;
      case 2:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << dice(8)));
        break;
      case 3:
        if (at < bytes.size()) bytes[at] = static_cast<char>(dice(256));
        break;
      case 4:
        bytes.insert(at, other.substr(dice(other.size() + 1), dice(60)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

// True for a valid command of a user with these keys: no nonsense.
bool is_command(const Query& query) {
  const auto is_reading = [](const auto& request) {
    using T = std::decay_t<decltype(request)>;
    return std::is_same_v<T, StatusRequest> || std::is_same_v<T, TasksRequest> ||
           std::is_same_v<T, ExplainRequest> || std::is_same_v<T, WorkersRequest> ||
           std::is_same_v<T, RetryableRequest> || std::is_same_v<T, AllocationsRequest> ||
           std::is_same_v<T, UsageRequest> || std::is_same_v<T, WatchRequest> ||
           std::is_same_v<T, UsageSummaryRequest>;
  };
  return !std::visit(is_reading, query.request);
}
bool is_command(const std::string& bytes) {
  const auto message = decode(bytes);
  const auto* query = message ? std::get_if<Query>(&*message) : nullptr;
  return query != nullptr && is_command(*query);
}

struct FuzzOptions {
  std::string campaign, group;
  std::uint64_t seed = 1, messages = 10'000;
  double seconds = 0;  // more than 0: for so long, however many
  bool worker = false;
};

class Fuzzer {
 public:
  explicit Fuzzer(const FuzzOptions& options)
      : options_(options), dice_(options.seed), keys_(read_keys(options.campaign)) {
    const auto endpoint = read_endpoint(options.campaign);
    if (!endpoint) throw Error(ExitCode::usage, "nobody coordinates this campaign");
    address_ = endpoint->local.empty() ? endpoint->remote : endpoint->local;
    for (const Message& message : sample_messages()) {
      if (std::string bytes = encode(message); !is_command(bytes)) whole_.push_back(std::move(bytes));
    }
    for (const Query& query : sample_queries()) {
      if (!is_command(query)) whole_.push_back(encode(query));
    }
    for (std::size_t i = 0; i < kConnections; ++i) connect(i);
  }

  std::uint64_t run() {
    const auto end = Clock::now() + std::chrono::duration<double>(options_.seconds);
    while (options_.seconds > 0 ? Clock::now() < end : sent_ < options_.messages) {
      const std::size_t at = dice_(kConnections);
      if (dice_(500) == 0) connect(at);
      if (std::string bytes = next(); !is_command(bytes)) send(at, std::move(bytes));
      drain(at);
    }
    for (std::uint64_t i = 0; i < kOversized; ++i) {
      send(i, std::string(kMaxMessageBytes + 1, 'x'));
      connect(i);
    }
    return sent_;
  }

 private:
  void connect(std::size_t at) {
    auto socket = std::make_unique<zmq::socket_t>(context_, ZMQ_DEALER);
    socket->set(zmq::sockopt::linger, 1000);
    socket->set(zmq::sockopt::sndtimeo, kSendMs);
    socket->set(zmq::sockopt::sndhwm, 1000);
    socket->set(zmq::sockopt::reconnect_ivl, kReconnectMs);
    socket->set(zmq::sockopt::curve_serverkey, keys_.server.public_key);
    socket->set(zmq::sockopt::curve_publickey, keys_.client.public_key);
    socket->set(zmq::sockopt::curve_secretkey, keys_.client.secret_key);
    socket->connect(address_);
    sockets_.resize(kConnections);
    sockets_[at] = std::move(socket);
    if (options_.worker) send(at, encode(hello()));
  }

  Hello hello() {
    Hello hello = std::get<Hello>(sample_messages()[0]);
    hello.version = kVersion;
    hello.campaign = keys_.token;
    hello.worker = fmt::format("fuzz-{}-{}", options_.seed, ++workers_);
    hello.group = options_.group;
    hello.guardian = hello.agent = own_identity();
    hello.allocation.clear();
    hello.held.clear();
    hello.incarnation = 0;
    return hello;
  }

  std::string next() {
    switch (dice_(10)) {
      case 0:
        return last_;  // once more
      case 1:
        return whole_[dice_(whole_.size())];
      case 2: {
        Hello newer = hello();
        newer.protocol = kProtocol + 1 + static_cast<std::uint32_t>(dice_(3));
        return encode(newer);
      }
      case 3: {
        std::string noise(dice_(300), '\0');
        for (char& byte : noise) byte = static_cast<char>(dice_(256));
        return noise;
      }
      default:
        return damaged(whole_[dice_(whole_.size())], whole_[dice_(whole_.size())], dice_);
    }
  }

  void send(std::size_t at, std::string bytes) {
    const std::uint64_t frames = dice_(50) == 0 ? 2 + dice_(3) : 1;
    for (std::uint64_t i = 1; i < frames; ++i)
      sockets_[at]->send(zmq::buffer(bytes), zmq::send_flags::sndmore);
    if (!sockets_[at]->send(zmq::buffer(bytes), zmq::send_flags::none))
      throw Error(ExitCode::system,
                  fmt::format("the coordinator takes nothing any more after {} messages", sent_));
    last_ = std::move(bytes);
    ++sent_;
  }

  void drain(std::size_t at) {
    zmq::message_t frame;
    while (sockets_[at]->recv(frame, zmq::recv_flags::dontwait)) continue;
  }

  FuzzOptions options_;
  Dice dice_;
  CampaignKeys keys_;
  std::string address_, last_ = "x";
  std::vector<std::string> whole_;
  zmq::context_t context_;
  std::vector<std::unique_ptr<zmq::socket_t>> sockets_;
  std::uint64_t sent_ = 0, workers_ = 0;
};

FuzzOptions read_options(int argc, char** argv) {
  FuzzOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--worker") {
      options.worker = true;
      options.group = value;
      ++i;
    } else if (word == "--seed" || word == "--messages") {
      (word == "--seed" ? options.seed : options.messages) =
          static_cast<std::uint64_t>(text::to_integer(value).value_or(1));
      ++i;
    } else if (word == "--seconds") {
      options.seconds = text::to_real(value).value_or(1);
      ++i;
    } else {
      options.campaign = word;
    }
  }
  return options;
}

}  // namespace
}  // namespace wflow::engine::wire

int main(int argc, char** argv) {
  const auto body = [](int count, char** words) {
    namespace wire = wflow::engine::wire;
    fmt::print("{} messages\n", wire::Fuzzer(wire::read_options(count, words)).run());
    return 0;
  };
  return wflow::run_main("wflow_fuzz_messages", body, argc, argv);
}
