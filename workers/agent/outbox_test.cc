// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/outbox.h"

#include <gtest/gtest.h>

namespace wflow::workers {
namespace {

using engine::wire::LeaseId;
using engine::wire::Results;

constexpr double kNow = 3600;

Results done(std::uint64_t element, LeaseId lease = 1) {
  return {0, {{lease, 1, element, 1, 0, 0.5, 0.25, 100.0 + static_cast<double>(element)}}, {}, {}};
}

TEST(Outbox, MergesNeighboursThatEndedInAnyOrder) {
  Outbox outbox;
  for (const std::uint64_t element : {3, 0, 2, 1, 7, 6}) outbox.add(done(element), kNow);
  outbox.add(done(4, 2), kNow);
  outbox.seal(kNow);
  const Results* batch = outbox.next_to_send();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->sequence, 1U);
  ASSERT_EQ(batch->done.size(), 3U);
  EXPECT_EQ(batch->done[0].first, 0U);
  EXPECT_EQ(batch->done[0].count, 4U);
  EXPECT_DOUBLE_EQ(batch->done[0].duration_sum_s, 2.0);
  EXPECT_DOUBLE_EQ(batch->done[0].duration_square_sum, 1.0);
  EXPECT_DOUBLE_EQ(batch->done[0].last_end_s, 103.0);
  EXPECT_EQ(batch->done[1].first, 6U);
  EXPECT_EQ(batch->done[1].count, 2U);
  EXPECT_EQ(batch->done[2].lease, 2U);
}

TEST(Outbox, KeepsBatchesUntilTheyAreAcknowledged) {
  Outbox outbox;
  EXPECT_TRUE(outbox.all_acknowledged());
  for (std::uint64_t element = 0; element < 3; ++element) {
    EXPECT_EQ(outbox.sequence(), element + 1);
    outbox.add(done(element), kNow);
    EXPECT_FALSE(outbox.all_acknowledged());
    outbox.seal(kNow);
  }
  outbox.sent();
  outbox.sent();
  EXPECT_EQ(outbox.next_to_send()->sequence, 3U);
  outbox.acknowledge(1);
  EXPECT_EQ(outbox.next_to_send()->sequence, 3U);
  outbox.resend_all();  // a new coordinator
  EXPECT_EQ(outbox.next_to_send()->sequence, 2U);
  outbox.acknowledge(3);
  EXPECT_EQ(outbox.next_to_send(), nullptr);
  EXPECT_TRUE(outbox.all_acknowledged());
}

TEST(Outbox, IsFullByNumberOrBytes) {
  Outbox outbox;
  for (std::uint64_t element = 0; element < Outbox::kBatchItems; ++element) {
    EXPECT_FALSE(outbox.full());
    outbox.add(done(element), kNow);
  }
  EXPECT_TRUE(outbox.full());
  outbox.seal(kNow);
  EXPECT_FALSE(outbox.full());
  Results large;
  large.events.push_back({1, 1, 0, 0, engine::wire::Note{std::string(Outbox::kBatchBytes, 'x')}});
  outbox.add(std::move(large), kNow);
  EXPECT_TRUE(outbox.full());
}

TEST(Outbox, IsDueAtOnceAfterAPauseAndLaterInARow) {
  Outbox outbox;
  outbox.add(done(0), kNow);
  EXPECT_EQ(outbox.due_s(), kNow);
  outbox.seal(kNow);
  outbox.add(done(1), kNow + 0.001);
  EXPECT_DOUBLE_EQ(outbox.due_s(), kNow + Outbox::kBatchTime_s);
  outbox.set_batch_time(0.2);  // as set by a coordinator with many workers
  EXPECT_DOUBLE_EQ(outbox.due_s(), kNow + 0.2);
  outbox.seal(kNow + 0.2);
  outbox.add(done(2), kNow + 1);
  EXPECT_EQ(outbox.due_s(), kNow + 1);
  outbox.set_batch_time(1e9);
  outbox.seal(kNow + 1);
  outbox.add(done(3), kNow + 1.5);
  EXPECT_DOUBLE_EQ(outbox.due_s(), kNow + 1 + Outbox::kLongestBatchTime_s);
}

TEST(Outbox, SealsNothingWhenThereIsNothing) {
  Outbox outbox;
  outbox.seal(kNow);
  EXPECT_EQ(outbox.sequence(), 1U);
  EXPECT_EQ(outbox.next_to_send(), nullptr);
}

}  // namespace
}  // namespace wflow::workers
