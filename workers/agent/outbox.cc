// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/outbox.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace wflow::workers {

using engine::wire::DoneRun;
using engine::wire::Results;

namespace {

template <class T>
void move_to(std::vector<T>& target, std::vector<T>& source) {
  target.insert(target.end(), std::make_move_iterator(source.begin()), std::make_move_iterator(source.end()));
}

// With several slots, elements end out of order. Sorting brings neighbours together.
void merge_neighbours(std::vector<DoneRun>& runs) {
  std::sort(runs.begin(), runs.end(), [](const DoneRun& a, const DoneRun& b) {
    return std::tie(a.lease, a.array, a.first) < std::tie(b.lease, b.array, b.first);
  });
  std::size_t kept = 0;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    DoneRun& last = runs[kept];
    const DoneRun& run = runs[i];
    if (run.lease != last.lease || run.array != last.array || run.first != last.first + last.count) {
      runs[++kept] = run;
      continue;
    }
    last.count += run.count;
    last.duration_sum_s += run.duration_sum_s;
    last.duration_square_sum += run.duration_square_sum;
    last.last_end_s = std::max(last.last_end_s, run.last_end_s);
  }
  if (!runs.empty()) runs.resize(kept + 1);
}

}  // namespace

std::size_t weight(const Results& results) {
  constexpr std::size_t kEach = 48;
  std::size_t bytes = kEach * (results.done.size() + results.outcomes.size() + results.events.size());
  bytes += sizeof(engine::wire::TaskUsage) * results.usage.size();
  for (const auto& outcome : results.outcomes) bytes += outcome.detail.size();
  for (const auto& event : results.events) bytes += engine::wire::bytes_of(event);
  return bytes;
}

void Outbox::add(Results&& part, double now_s) {
  if (empty()) oldest_s_ = now_s;
  items_ += part.done.size() + part.outcomes.size() + part.events.size();
  bytes_ += weight(part);
  move_to(open_.done, part.done);
  move_to(open_.outcomes, part.outcomes);
  move_to(open_.events, part.events);
  move_to(open_.usage, part.usage);
}

void Outbox::seal(double now_s) {
  if (empty()) return;
  sealed_s_ = now_s;
  const std::uint64_t next = open_.sequence + 1;
  merge_neighbours(open_.done);
  sealed_.push_back(std::exchange(open_, Results{next, {}, {}, {}}));
  items_ = 0;
  bytes_ = 0;
}

const Results* Outbox::next_to_send() const {
  return sent_ < sealed_.size() ? &sealed_[sent_] : nullptr;
}

void Outbox::acknowledge(std::uint64_t sequence) {
  while (!sealed_.empty() && sealed_.front().sequence <= sequence) {
    sealed_.pop_front();
    if (sent_ > 0) --sent_;
  }
}

}  // namespace wflow::workers
