// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/error.h"
#include "engine/wire/temporary_campaign.h"
#include "engine/wire/worker_journal.h"

namespace wflow::workers {
namespace {

namespace wire = engine::wire;

wire::Results results(std::uint64_t sequence) {
  return {sequence, {{1, 0, sequence, 1, 0, 0, 0}}, {}, {}};
}

TEST(Journal, IsALivingWorkersUntilItIsClosed) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal(campaign.path(), "w");
    journal.append(results(1));
    journal.append(results(2));
    EXPECT_GT(journal.size(), 0U);
    EXPECT_TRUE(wire::find_worker_journals(campaign.path()).at(0).alive);
    EXPECT_THROW(Journal(campaign.path(), "w"), Error);
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_FALSE(left[0].alive);
  EXPECT_EQ(left[0].results.size(), 2U);
}

TEST(Journal, BeginsAnewWhenCleared) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal(campaign.path(), "w");
    journal.append(results(1));
    journal.clear();
    EXPECT_EQ(journal.size(), 0U);
    journal.append(results(2));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).results.size(), 1U);
  EXPECT_EQ(left[0].results[0].sequence, 2U);
}

TEST(Journal, RecoversFromACutRecord) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal(campaign.path(), "w");
    journal.append(results(1));
    const std::string cut = wire::frame_record(results(2)).substr(0, 13);
    write_all(journal.descriptor(), cut, "journal");
    EXPECT_EQ(journal.recover().size(), 1U);
    journal.append(results(3));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).results.size(), 2U);
  EXPECT_EQ(left[0].results[1].sequence, 3U);
}

// As on a full disk: the second record does not fit.
TEST(Journal, GoesOnAfterARecordThatCouldNotBeWritten) {
  const wire::TemporaryCampaign campaign;
  {
    Journal journal(campaign.path(), "w");
    journal.append(results(1));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit limit{journal.size() + 13, before.rlim_max};
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THROW(journal.append(results(2)), Error);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    ::signal(SIGXFSZ, handler);
    journal.append(results(3));
  }
  const auto left = wire::find_worker_journals(campaign.path());
  ASSERT_EQ(left.at(0).results.size(), 2U);
  EXPECT_EQ(left[0].results[1].sequence, 3U);
}

TEST(Journal, GoesWhenRemoved) {
  const wire::TemporaryCampaign campaign;
  Journal(campaign.path(), "w").remove();
  EXPECT_TRUE(wire::find_worker_journals(campaign.path()).empty());
}

}  // namespace
}  // namespace wflow::workers
