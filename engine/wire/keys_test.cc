// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "engine/wire/temporary_campaign.h"

namespace wflow::engine::wire {
namespace {

TEST(Keys, AreWrittenForTheUserAlone) {
  const TemporaryCampaign campaign;
  const CampaignKeys made = create_keys(campaign.path());
  const CampaignKeys read = read_keys(campaign.path());
  EXPECT_EQ(made.server.secret_key, read.server.secret_key);
  EXPECT_EQ(made.client.public_key, read.client.public_key);
  EXPECT_EQ(made.token, read.token);
  EXPECT_EQ(made.token.size(), 32U);
  EXPECT_NE(made.server.public_key, made.client.public_key);
  struct stat status {};
  ASSERT_EQ(::stat((campaign.path() / ".wflow/keys.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(Keys, ThatOthersMayReadAreRefused) {
  const TemporaryCampaign campaign;
  create_keys(campaign.path());
  ::chmod((campaign.path() / ".wflow/keys.json").c_str(), 0640);
  try {
    read_keys(campaign.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::system);
  }
}

TEST(Keys, ThatAreDamagedAreRefused) {
  const TemporaryCampaign campaign;
  create_keys(campaign.path());
  for (const char* text : {"", "{}", "{\"format\": 1, \"server\": 3}", "[1]"}) {
    write_file_durably(campaign.path() / ".wflow/keys.json", text, 0600);
    EXPECT_THROW(read_keys(campaign.path()), Error) << text;
  }
}

TEST(Endpoint, RoundTrip) {
  const TemporaryCampaign campaign;
  EXPECT_FALSE(read_endpoint(campaign.path()));
  write_endpoint(campaign.path(), {"ipc:///tmp/x", "tcp://host:1", "host", 42, 7});
  const auto endpoint = read_endpoint(campaign.path());
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(endpoint->local, "ipc:///tmp/x");
  EXPECT_EQ(endpoint->remote, "tcp://host:1");
  EXPECT_EQ(endpoint->pid, 42);
  EXPECT_EQ(endpoint->epoch, 7U);
  EXPECT_TRUE(endpoint->others.empty());
  write_file_durably(campaign.path() / ".wflow/endpoint.json", "{\"local\":");
  EXPECT_FALSE(read_endpoint(campaign.path()));
}

TEST(Endpoint, HasAllAddressesToTryInTurn) {
  const TemporaryCampaign campaign;
  write_endpoint(campaign.path(),
                 {"", "tcp://login:1", "login", 42, 7, {"tcp://login-ib:1", "tcp://login-mgmt:1"}});
  const auto endpoint = read_endpoint(campaign.path());
  ASSERT_TRUE(endpoint);
  EXPECT_EQ(attempt(*endpoint, 0).remote, "tcp://login:1");
  EXPECT_EQ(attempt(*endpoint, 1).remote, "tcp://login-ib:1");
  EXPECT_EQ(attempt(*endpoint, 2).remote, "tcp://login-mgmt:1");
  EXPECT_EQ(attempt(*endpoint, 3).remote, "tcp://login:1");
}

}  // namespace
}  // namespace wflow::engine::wire
