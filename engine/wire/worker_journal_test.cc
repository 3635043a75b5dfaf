// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/worker_journal.h"

#include <gtest/gtest.h>

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

TEST(WorkerJournal, AreReadUpToTheLastWholeRecord) {
  const TemporaryCampaign campaign;
  const std::string two = frame_record(one(1)) + frame_record(one(2));
  for (std::size_t length = 0; length <= two.size(); ++length) {
    write_file_durably(journal(campaign, "w"), two.substr(0, length));
    const std::size_t expected = length == two.size() ? 2 : length >= two.size() / 2 ? 1 : 0;
    EXPECT_EQ(read_records(journal(campaign, "w")).results.size(), expected) << length;
  }
}

// Each record by itself: whatever byte is wrong costs one record, and that is said.
TEST(WorkerJournal, SkipsADamagedRecordAndSaysSo) {
  const std::string record = frame_record(one(1));
  for (std::size_t at = 0; at < record.size(); ++at) {
    std::string damaged = record;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const Records records = parse_records(record + damaged + frame_record(one(2)));
    ASSERT_EQ(records.results.size(), 2U) << at;
    EXPECT_EQ(records.results[1].sequence, 2U);
    EXPECT_EQ(records.damaged.places, 1U) << at;
    EXPECT_EQ(records.damaged.bytes, record.size()) << at;
    EXPECT_EQ(records.valid_bytes, 2 * record.size() + frame_record(one(2)).size());
    EXPECT_NE(records.damaged.sentence().find("damaged"), std::string::npos);
  }
}

TEST(WorkerJournal, ACutLastRecordIsNoDamage) {
  const std::string record = frame_record(one(1));
  for (std::size_t length = 0; length < record.size(); ++length) {
    const Records records = parse_records(record + record.substr(0, length));
    EXPECT_EQ(records.results.size(), 1U);
    EXPECT_FALSE(records.damaged) << length;
    EXPECT_EQ(records.valid_bytes, record.size());
  }
  // Zeros, as some file systems leave them after a power cut, are.
  EXPECT_TRUE(parse_records(record + std::string(100, '\0')).damaged);
}

TEST(WorkerJournal, BeginsWithWhoseItIs) {
  JournalHeader header{"w", "gpu", {"h", "b", "n", 12, 34}, {"h", "b", "n", 13, 35}, 7, 0};
  const std::string first = frame_record(header);
  header.lost_s = 600;
  const std::string second = frame_record(header);
  const Records records = parse_records(first + second + frame_record(one(1)) + first);
  ASSERT_TRUE(records.header.has_value());
  EXPECT_EQ(records.header_bytes, first.size() + second.size());
  EXPECT_EQ(records.header->worker, "w");
  EXPECT_EQ(records.header->group, "gpu");
  EXPECT_EQ(records.header->guardian, header.guardian);
  EXPECT_EQ(records.header->agent, header.agent);
  EXPECT_EQ(records.header->started_by, 7U);
  EXPECT_EQ(records.header->lost_s, 0);  // the last one counts
  EXPECT_EQ(records.results.size(), 1U);
  EXPECT_EQ(parse_records(first + second).header->lost_s, 600);
}

TEST(WorkerJournal, SaysWhatRanWhenItsAgentWasKilled) {
  JournalHeader header{"w", "gpu", {"h", "b", "n", 12, 34},    {"h", "b", "n", 13, 35}, 7,
                       60,  true,  {{3, 41, 1.5}, {0, 2, 2.5}}};
  const Records records = parse_records(frame_record(header));
  ASSERT_TRUE(records.header.has_value());
  EXPECT_TRUE(records.header->ended);
  ASSERT_EQ(records.header->running.size(), 2U);
  EXPECT_EQ(records.header->running[0].array, 3U);
  EXPECT_EQ(records.header->running[0].element, 41U);
  EXPECT_EQ(records.header->running[0].started_s, 1.5);
}

}  // namespace
}  // namespace wflow::engine::wire
