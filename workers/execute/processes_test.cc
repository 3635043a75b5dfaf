// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <numeric>
#include <vector>

namespace wflow::workers {
namespace {

constexpr std::size_t kBig = 48 << 20;

// So many bytes of memory that are really there.
std::size_t touch(std::size_t bytes) {
  std::vector<char> memory(bytes);
  for (std::size_t at = 0; at < bytes; at += 4096) memory[at] = static_cast<char>(at);
  return std::accumulate(memory.begin(), memory.begin() + 10, std::size_t{0}) + memory.size();
}

pid_t start(const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    work();
    ::_exit(0);
  }
  return pid;
}

// Waits for its end by a pipe that ends with it: find_ended() does not wait.
ProcessUsage usage_of(const std::function<void()>& work) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t pid = start(work);
  ::close(ends[1]);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);
  ::close(ends[0]);
  siginfo_t info{};
  ProcessUsage usage;
  ChildState state = ChildState::running;
  while (state == ChildState::running) state = find_ended(P_PID, static_cast<id_t>(pid), info, usage);
  EXPECT_EQ(state, ChildState::ended);
  EXPECT_EQ(info.si_pid, pid);
  EXPECT_EQ(info.si_code, CLD_EXITED);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid) << "not reaped before";
  EXPECT_EQ(find_ended(P_PID, static_cast<id_t>(pid), info, usage), ChildState::gone);
  return usage;
}

double cpu_s() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void burn(double seconds) {
  const double until = cpu_s() + seconds;
  while (cpu_s() < until) {
  }
}

TEST(ProcessUsage, CountsTheTreeThatWasWaitedFor) {
  const ProcessUsage usage = usage_of([] {
    burn(0.05);
    const pid_t child = start([] {
      burn(0.05);
      touch(kBig);
    });
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_GE(usage.cpu_s, 0.1);
  EXPECT_LT(usage.cpu_s, 5);
  EXPECT_GE(usage.peak_bytes, kBig);
}

TEST(ProcessUsage, SeesMemoryOfAllThatRuns) {
  std::array<int, 2> told{};
  std::array<int, 2> hold{};
  ASSERT_EQ(::pipe(told.data()), 0);
  ASSERT_EQ(::pipe(hold.data()), 0);
  const auto wait_with_memory = [&] {
    std::vector<char> memory(kBig, 1);
    ::write(told[1], memory.data(), 1);
    char byte = 0;
    ::close(hold[1]);
    ::read(hold[0], &byte, 1);
    if (memory[kBig / 2] != 1) ::_exit(1);
  };
  const pid_t root = start([&] {
    const pid_t child = start(wait_with_memory);
    wait_with_memory();
    ::waitpid(child, nullptr, 0);
  });
  char byte = 0;
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  ASSERT_EQ(::read(told[0], &byte, 1), 1);
  const std::vector<pid_t> roots = {root, 1 << 30};
  const auto bytes = tree_usage(roots);
  EXPECT_GE(bytes.at(root).resident_bytes, 2 * kBig);
  EXPECT_EQ(bytes.at(1 << 30).resident_bytes, 0U);
  for (const int fd : {told[0], told[1], hold[0], hold[1]}) ::close(fd);
  EXPECT_EQ(::waitpid(root, nullptr, 0), root);
}

TEST(MemoryKills, NoneWithoutOne) {
  MemoryKills kills;
  EXPECT_FALSE(kills.take_one());
}

}  // namespace
}  // namespace wflow::workers
