// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/worker_journal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "base/file.h"
#include "engine/wire/temporary_campaign.h"

namespace wflow::engine::wire {
namespace {

Results one(std::uint64_t sequence) {
  return {sequence, {{1, 0, sequence, 1, 0, 0.5, 0.25, 10}}, {}, {}};
}

std::filesystem::path journal(const TemporaryCampaign& campaign, const std::string& worker) {
  return campaign.path() / ".wflow/workers" / (worker + ".journal");
}

TEST(Leftovers, AreReadUpToTheLastWholeRecord) {
  const TemporaryCampaign campaign;
  const std::string two = frame_record(one(1)) + frame_record(one(2));
  for (std::size_t length = 0; length <= two.size(); ++length) {
    write_file_durably(journal(campaign, "w"), two.substr(0, length));
    const auto found = find_worker_journals(campaign.path());
    ASSERT_EQ(found.size(), 1U);
    const std::size_t expected = length == two.size() ? 2 : length >= two.size() / 2 ? 1 : 0;
    EXPECT_EQ(found[0].results.size(), expected) << length;
    EXPECT_FALSE(found[0].alive);
  }
}

TEST(Leftovers, StopAtADamagedRecord) {
  const std::string record = frame_record(one(1));
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(parse_records(damaged + record).results.size(), 0U) << at;
    EXPECT_EQ(parse_records(record + damaged).valid_bytes, record.size()) << at;
  }
}

TEST(Leftovers, TellTheLivingFromTheDead) {
  const TemporaryCampaign campaign;
  write_file_durably(journal(campaign, "dead"), frame_record(one(3)));
  write_file_durably(journal(campaign, "living"), frame_record(one(4)));
  const FileDescriptor held = open_file(journal(campaign, "living"), O_RDWR);
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  const auto found = find_worker_journals(campaign.path());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].worker, "dead");
  EXPECT_FALSE(found[0].alive);
  ASSERT_EQ(found[0].results.size(), 1U);
  EXPECT_EQ(found[0].results[0].sequence, 3U);
  EXPECT_TRUE(found[1].alive);
  EXPECT_TRUE(found[1].results.empty());
}

TEST(Leftovers, OfACampaignWithoutWorkersAreNone) {
  const TemporaryCampaign campaign;
  EXPECT_TRUE(find_worker_journals(campaign.path()).empty());
  EXPECT_TRUE(find_worker_journals("/nonexistent").empty());
}

}  // namespace
}  // namespace wflow::engine::wire
