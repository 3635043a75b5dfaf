// SPDX-License-Identifier: Apache-2.0
// The parts of a sample as the ranks of a group, whatever the number of real ranks: a rank computes one or
// several parts, each on a thread of its own. What a part computes, and the order in which sums over the
// parts are added, then do not depend on the number of real ranks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "trainer/parallel/communicator.h"
#include "trainer/parallel/rank_group.h"

namespace wflow::trainer {

class SampleParts {
 public:
  // MPI guarantees tags, one for each pair of parts, up to 32767.
  static constexpr int kMost = 64;

  // `rank_of_part`: the rank of `ranks` that computes each part, the same list on all ranks. `at_once`: so
  // many of this rank's parts compute at a time; those that wait for messages do not count.
  SampleParts(Communicator& ranks, std::vector<int> rank_of_part, int at_once);
  SampleParts(const SampleParts&) = delete;
  SampleParts& operator=(const SampleParts&) = delete;
  ~SampleParts();

  // This rank's parts, rising.
  const std::vector<int>& own() const { return own_; }
  // The group of all parts, for the own part `own()[i]`. To be used in run() only.
  RankGroup& group(std::size_t i);

  // Calls `work(i)` for each own part, on the part's own thread, and returns when all have ended. oneDNN's
  // kernels must be made, used and destroyed by one thread. Throws the first error; if other parts then wait
  // for other ranks for ever, it ends all ranks of the world.
  void run(const std::function<void(std::size_t)>& work);

 private:
  class Member;
  // A message between two own parts: from, to, number.
  using Address = std::tuple<int, int, std::uint64_t>;

  void live(std::size_t i);
  void send(const Address& address, std::span<const std::byte> bytes);
  void receive(Member& member, const Address& address, std::span<std::byte> bytes);
  void wait_for_ranks(Member& member, Communicator::ExchangeTicket ticket);
  void fail(const std::exception_ptr& error);
  [[noreturn]] void abort_stuck();
  // For threads that hold the lock. A part computes when it is its turn.
  void take_turn(Member& member, std::unique_lock<std::mutex>& lock);
  void wait_for_turn(Member& member, std::unique_lock<std::mutex>& lock);
  void end_turn();
  void make_ready(Member& member);
  void start_ready();

  Communicator& ranks_;
  const std::vector<int> rank_of_part_;
  const int at_once_;
  std::vector<int> own_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::thread> threads_;

  std::mutex mutex_;                 // of all that follows
  std::condition_variable started_;  // a round, or the end
  std::condition_variable ended_or_stuck_;
  const std::function<void(std::size_t)>* work_ = nullptr;
  std::uint64_t round_ = 0;  // calls of run()
  bool stopping_ = false;
  int computing_ = 0;
  std::deque<Member*> ready_;  // to compute, once others stop
  std::size_t waiting_for_ranks_ = 0;
  std::size_t ended_ = 0;
  std::exception_ptr failure_;
  std::map<Address, std::string> messages_;
};

}  // namespace wflow::trainer
