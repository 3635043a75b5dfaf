// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/sample_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

// Thrown in the parts that wait for a message of one that has failed.
struct OtherPartFailed {};

}  // namespace

// Used by the thread of its part only, but for the members at the end.
class SampleParts::Member final : public RankGroup {
 public:
  Member(SampleParts& all, int part) : all_(all), part_(part) {}

  int rank() const override { return part_; }
  int size() const override { return static_cast<int>(all_.rank_of_part_.size()); }

  ExchangeTicket start_exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) override {
    std::vector<Outgoing> to_ranks;
    std::vector<Incoming> from_ranks;
    for (const Outgoing& message : outgoing) {
      if (is_own(message.to)) {
        all_.send({part_, message.to, sent_[message.to]++}, message.bytes);
      } else {
        to_ranks.push_back({rank_of(message.to), message.bytes, lane(part_, message.to)});
      }
    }
    Pending pending;
    for (const Incoming& message : incoming) {
      if (is_own(message.from)) {
        const std::uint64_t number = received_[message.from]++;
        pending.of_own.push_back({{message.from, part_, number}, message.bytes});
      } else {
        from_ranks.push_back({rank_of(message.from), message.bytes, lane(message.from, part_)});
      }
    }
    if (!to_ranks.empty() || !from_ranks.empty())
      pending.of_ranks = all_.ranks_.start_exchange(std::move(to_ranks), std::move(from_ranks));
    pending_.emplace(++last_, std::move(pending));
    return ExchangeTicket{last_};
  }

  void wait(ExchangeTicket ticket) override {
    auto found = pending_.extract(static_cast<std::uint64_t>(ticket));
    if (found.empty()) return;
    const Pending& pending = found.mapped();
    for (const Expected& message : pending.of_own) all_.receive(*this, message.address, message.bytes);
    if (pending.of_ranks) all_.wait_for_ranks(*this, *pending.of_ranks);
  }

 private:
  struct Expected {
    Address address;
    std::span<std::byte> bytes;
  };
  struct Pending {
    std::vector<Expected> of_own;
    std::optional<Communicator::ExchangeTicket> of_ranks;
  };
  int rank_of(int part) const { return all_.rank_of_part_[static_cast<std::size_t>(part)]; }
  bool is_own(int part) const { return rank_of(part) == all_.ranks_.rank(); }
  int lane(int from, int to) const { return from * size() + to; }

  SampleParts& all_;
  const int part_;
  std::map<int, std::uint64_t> sent_;  // messages to each own part
  std::map<int, std::uint64_t> received_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_ = 0;

 public:
  // Under the lock of all parts.
  std::condition_variable turn;
  bool has_turn = false;
  std::optional<Address> awaited;  // the message that it waits for
};

SampleParts::SampleParts(Communicator& ranks, std::vector<int> rank_of_part, int at_once)
    : ranks_(ranks), rank_of_part_(std::move(rank_of_part)), at_once_(std::max(1, at_once)) {
  WFLOW_CHECK(rank_of_part_.size() <= kMost);
  for (std::size_t part = 0; part < rank_of_part_.size(); ++part) {
    if (rank_of_part_[part] != ranks_.rank()) continue;
    own_.push_back(static_cast<int>(part));
    members_.push_back(std::make_unique<Member>(*this, own_.back()));
  }
  for (std::size_t i = 0; i < own_.size(); ++i) threads_.emplace_back([this, i] { live(i); });
}

SampleParts::~SampleParts() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

RankGroup& SampleParts::group(std::size_t i) {
  return *members_[i];
}

void SampleParts::run(const std::function<void(std::size_t)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  ended_ = 0;
  ++round_;
  started_.notify_all();
  ended_or_stuck_.wait(lock, [&] {
    return ended_ == own_.size() || (failure_ && ended_ + waiting_for_ranks_ == own_.size());
  });
  if (ended_ < own_.size()) abort_stuck();
  work_ = nullptr;
  if (!failure_) return;
  messages_.clear();
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

// A part's thread.
void SampleParts::live(std::size_t i) {
  Member& member = *members_[i];
  for (std::uint64_t done = 0;; ++done) {
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return stopping_ || round_ > done; });
      if (stopping_) return;
      take_turn(member, lock);
    }
    try {
      (*work_)(i);
    } catch (const OtherPartFailed&) {
      // That part's error is known.
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    end_turn();
    ++ended_;
    ended_or_stuck_.notify_all();
  }
}

void SampleParts::take_turn(Member& member, std::unique_lock<std::mutex>& lock) {
  make_ready(member);
  wait_for_turn(member, lock);
}

void SampleParts::wait_for_turn(Member& member, std::unique_lock<std::mutex>& lock) {
  member.turn.wait(lock, [&] { return member.has_turn; });
  member.has_turn = false;
}

void SampleParts::end_turn() {
  --computing_;
  start_ready();
}

void SampleParts::make_ready(Member& member) {
  ready_.push_back(&member);
  start_ready();
}

void SampleParts::start_ready() {
  while (computing_ < at_once_ && !ready_.empty()) {
    Member& member = *ready_.front();
    ready_.pop_front();
    ++computing_;
    member.has_turn = true;
    member.turn.notify_one();
  }
}

void SampleParts::send(const Address& address, std::span<const std::byte> bytes) {
  std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::lock_guard lock(mutex_);
  messages_.emplace(address, std::move(copy));
  for (const std::unique_ptr<Member>& member : members_) {
    if (member->awaited != address) continue;
    member->awaited.reset();
    make_ready(*member);
  }
}

void SampleParts::receive(Member& member, const Address& address, std::span<std::byte> bytes) {
  std::string message;
  {
    std::unique_lock lock(mutex_);
    if (!failure_ && !messages_.contains(address)) {
      member.awaited = address;
      end_turn();
      wait_for_turn(member, lock);
    }
    if (failure_) throw OtherPartFailed();
    message = std::move(messages_.extract(address).mapped());
  }
  if (message.size() != bytes.size()) {
    throw Error(
        ExitCode::internal,
        fmt::format("part {} of a sample sent {} bytes where {} were expected: the parts are computed "
                    "by different networks",
                    std::get<0>(address), message.size(), bytes.size()));
  }
  if (!message.empty()) std::memcpy(bytes.data(), message.data(), message.size());
}

void SampleParts::wait_for_ranks(Member& member, Communicator::ExchangeTicket ticket) {
  {
    const std::lock_guard lock(mutex_);
    end_turn();
    ++waiting_for_ranks_;
    ended_or_stuck_.notify_all();
  }
  std::exception_ptr error;
  try {
    ranks_.wait(ticket);
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::unique_lock lock(mutex_);
    --waiting_for_ranks_;
    take_turn(member, lock);
  }
  if (error) std::rethrow_exception(error);
}

void SampleParts::fail(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  for (const std::unique_ptr<Member>& member : members_) {
    if (!member->awaited) continue;
    member->awaited.reset();
    make_ready(*member);
  }
  ended_or_stuck_.notify_all();
}

// The threads that wait for other ranks can't be ended.
void SampleParts::abort_stuck() {
  int code = static_cast<int>(ExitCode::internal);
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    std::fprintf(stderr, "wflow-train: rank %d: %s\n", ranks_.rank(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wflow-train: rank %d: internal error: %s (please report it)\n", ranks_.rank(),
                 error.what());
  }
  ranks_.abort(code);
}

}  // namespace wflow::trainer
