// SPDX-License-Identifier: Apache-2.0
// Results on their way: gathered into batches, kept until the coordinator has committed them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "engine/wire/messages.h"

namespace wflow::workers {

class Outbox {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kBatchItems = 1000;
  static constexpr std::size_t kBatchBytes = 8 << 20;
  static constexpr std::chrono::milliseconds kBatchTime{10};

  // The number of the batch that is being filled: every record in the journal carries it.
  std::uint64_t sequence() const { return open_.sequence; }
  void add(engine::wire::Results&& part, Time now);

  bool empty() const { return items_ == 0; }  // nothing in the open batch
  bool full() const { return items_ >= kBatchItems || bytes_ >= kBatchBytes; }
  Time due() const { return oldest_ + kBatchTime; }  // not when empty()
  void seal();  // closes the open batch: neighbouring successes become one run each

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
  Time oldest_;
  std::deque<engine::wire::Results> sealed_;
  std::size_t sent_ = 0;  // of sealed_
};

}  // namespace wflow::workers
