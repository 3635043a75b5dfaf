// SPDX-License-Identifier: Apache-2.0
// In which order a worker tries its coordinator's addresses. tests/cluster/networks_test.py has real
// networks.
#include "engine/wire/addresses.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "engine/wire/keys.h"
#include "engine/wire/temporary_campaign.h"
#include "engine/wire/transport.h"

namespace wflow::engine::wire {
namespace {

constexpr std::uint32_t address(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return (a << 24) | (b << 16) | (c << 8) | d;
}
constexpr std::uint32_t kMask16 = 0xffff0000, kMask24 = 0xffffff00;

TEST(Addresses, ThoseOnANetworkOfTheWorkersOwnComeFirst) {
  const std::vector<std::string> all = {"tcp://login:4000", "tcp://128.3.4.5:4000", "tcp://10.7.0.1:4000",
                                        "tcp://172.17.0.1:4000"};
  const std::vector<Network> node = {{"docker0", address(172, 17, 0, 1), kMask16},
                                     {"ib0", address(10, 7, 3, 9), kMask16}};
  const std::vector<std::string> expected = {"tcp://10.7.0.1:4000", "tcp://login:4000",
                                             "tcp://128.3.4.5:4000", "tcp://172.17.0.1:4000"};
  EXPECT_EQ(nearest_first(all, node), expected);
  EXPECT_EQ(nearest_first(all, {}), all);
  EXPECT_EQ(nearest_first({}, node), std::vector<std::string>{});
}

TEST(Addresses, TheNetmaskDecidesWhatIsNear) {
  const std::vector<std::string> all = {"tcp://10.7.1.1:1", "tcp://10.7.2.1:1"};
  const std::vector<Network> node = {{"eth0", address(10, 7, 2, 200), kMask24}};
  EXPECT_EQ(nearest_first(all, node), (std::vector<std::string>{"tcp://10.7.2.1:1", "tcp://10.7.1.1:1"}));
}

TEST(Addresses, WhatIsNoAddressKeepsItsPlace) {
  const std::vector<std::string> odd = {"", "tcp://", "tcp://:", "ipc:///tmp/x", "tcp://999.1.1.1:5"};
  EXPECT_EQ(nearest_first(odd, {{"eth0", address(10, 0, 0, 1), kMask24}}), odd);
}

TEST(Addresses, InterfacesOfContainersAreKnown) {
  for (const char* name : {"docker0", "br-12ab", "virbr0", "cni0"}) EXPECT_TRUE(is_virtual(name)) << name;
  for (const char* name : {"eth0", "ib0", "hsn0", "bond0", "enp3s0", "br0"})
    EXPECT_FALSE(is_virtual(name)) << name;
}

// ZeroMQ makes no event for it: the worker would wait for ever, and never try the next address.
TEST(Addresses, ANameThatNobodyResolvesIsGivenUp) {
  const TemporaryCampaign campaign;
  const CampaignKeys keys = create_keys(campaign.path());
  ClientSocket socket(keys, {"", "tcp://no-such-host.invalid:4000", "elsewhere", 1, 1});
  const double until_s = steady_now_s() + 30;
  while (!socket.lost() && steady_now_s() < until_s) socket.wait(std::chrono::milliseconds(200), {});
  EXPECT_TRUE(socket.lost());
}

TEST(Addresses, AQuestionGoesOnToTheNextAddress) {
  const TemporaryCampaign campaign;
  const CampaignKeys keys = create_keys(campaign.path());
  ServerSocket server(keys, Listen::network);
  Endpoint endpoint = server.endpoint();
  const std::string port = endpoint.remote.substr(endpoint.remote.rfind(':'));
  endpoint.local.clear();
  endpoint.others = {"tcp://127.0.0.1" + port};
  endpoint.remote = "tcp://no-such-host.invalid" + port;
  write_endpoint(campaign.path(), endpoint);
  std::optional<Answer> answer;
  std::thread client([&] { answer = ask(campaign.path(), {StatusRequest{}}, std::chrono::seconds(40)); });
  const double until_s = steady_now_s() + 60;
  for (bool answered = false; !answered && steady_now_s() < until_s;) {
    server.wait(std::chrono::milliseconds(100), {});
    while (auto received = server.receive()) {
      answered = true;
      EXPECT_TRUE(server.send(received->peer, done_answer()));
    }
  }
  // Sent messages still have to leave.
  server.wait(std::chrono::milliseconds(100), {});
  client.join();
  EXPECT_TRUE(answer.has_value());
}

}  // namespace
}  // namespace wflow::engine::wire
