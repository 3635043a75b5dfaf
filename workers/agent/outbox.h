// SPDX-License-Identifier: Apache-2.0
// Results for the coordinator: gathered into batches, and kept until the coordinator has committed them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "engine/wire/messages.h"

namespace wflow::workers {

// Returns the approximate size of results in memory, in the journal and in a message.
std::size_t weight(const engine::wire::Results& results);

class Outbox {
 public:
  static constexpr std::size_t kBatchItems = 1000;
  static constexpr std::size_t kBatchBytes = 8 << 20;
  static constexpr double kBatchTime_s = 0.01, kLongestBatchTime_s = 5;

  // The number of the open batch, which every record in the journal carries.
  std::uint64_t sequence() const { return open_.sequence; }
  void add(engine::wire::Results&& part, double now_s);  // steady

  bool empty() const { return items_ == 0; }  // nothing in the open batch
  bool full() const { return items_ >= kBatchItems || bytes_ >= kBatchBytes; }
  // When to send: at once after a pause, else one batch time after the previous batch. Only if not empty().
  double due_s() const { return std::max(oldest_s_, sealed_s_ + batch_time_s_); }
  // Sets the batch time to the coordinator's wish. With many workers, short batches would be too many
  // messages.
  void set_batch_time(double seconds) {
    batch_time_s_ = std::clamp(seconds, kBatchTime_s, kLongestBatchTime_s);
  }
  void seal(double now_s);  // closes the open batch: neighbouring successes become one run each

  // The oldest sealed batch that has not been sent on this connection; null if there is none.
  const engine::wire::Results* next_to_send() const;
  void sent() { ++sent_; }
  void resend_all() { sent_ = 0; }  // a new connection

  void acknowledge(std::uint64_t sequence);
  bool all_acknowledged() const { return empty() && sealed_.empty(); }

 private:
  engine::wire::Results open_{1, {}, {}, {}};
  std::size_t items_ = 0;
  std::size_t bytes_ = 0;
  double oldest_s_ = 0;
  double sealed_s_ = -kLongestBatchTime_s;  // when the previous batch was closed
  double batch_time_s_ = kBatchTime_s;
  std::deque<engine::wire::Results> sealed_;
  std::size_t sent_ = 0;  // number of batches in sealed_ that were sent
};

}  // namespace wflow::workers
