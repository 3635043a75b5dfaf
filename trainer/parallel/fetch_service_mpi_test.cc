// SPDX-License-Identifier: Apache-2.0
// mpirun runs this on several ranks: threads read the others' bytes while the ranks sum and wait for each
// other. All ranks take the same path, so a failed check ends all ranks.
#include "trainer/parallel/fetch_service.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr std::uint64_t kFileBytes = 3'000'000;
constexpr std::uint64_t kLargeFile = 8;
constexpr std::uint64_t kLargeBytes = 140'000'000;  // several messages
constexpr std::uint64_t kMissingFile = 9;
constexpr std::uint64_t kStuckFile = 10;
constexpr std::chrono::seconds kSilenceLimit{10};

void check_fetch(Communicator& communicator, bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), what);
  communicator.abort(1);
}

std::uint8_t byte_of(int rank, std::uint64_t file, std::uint64_t place) {
  return static_cast<std::uint8_t>(hash64(static_cast<std::uint64_t>(rank) * 100 + file, place));
}

// Reads three ranges of a file of some rank: two consecutive ones, and one of another length.
bool fetches(FetchService& service, int rank, std::uint64_t key) {
  const std::uint64_t file = key % 2;
  std::vector<std::vector<std::uint8_t>> bytes = {std::vector<std::uint8_t>(1 + key % 7),
                                                  std::vector<std::uint8_t>(key % 200'000),
                                                  std::vector<std::uint8_t>(1000)};
  std::vector<RemoteRange> ranges;
  for (std::vector<std::uint8_t>& to : bytes)
    ranges.push_back({hash64(key, ranges.size()) % (kFileBytes - to.size()), to});
  service.fetch(rank, file, ranges);
  for (const RemoteRange& range : ranges) {
    for (std::size_t k = 0; k < range.to.size(); ++k)
      if (range.to[k] != byte_of(rank, file, range.offset + k)) return false;
  }
  return true;
}

void fetch_tests(Communicator& c) {
  const auto stuck =
      std::make_shared<std::atomic<bool>>(true);  // the service's thread may outlive this function
  FetchService service(
      c,
      [rank = c.rank(), stuck](std::uint64_t file, std::uint64_t offset, std::span<std::uint8_t> to) {
        if (file == kMissingFile) return false;
        if (file == kStuckFile) stuck->wait(true);
        for (std::size_t k = 0; k < to.size(); ++k)
          to[k] = file == kLargeFile ? static_cast<std::uint8_t>((offset + k) % 251)
                                     : byte_of(rank, file, offset + k);
        return true;
      },
      kSilenceLimit);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const std::uint64_t key = hash64(static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(round));
        const int rank = static_cast<int>(key % static_cast<std::uint64_t>(c.size()));
        if (!fetches(service, rank, key >> 8)) ++wrong;
      }
    });
  }
  // Meanwhile the communication thread has jobs that wait for other ranks.
  std::vector<float> values(100'000, 1.0F);
  for (int round = 0; round < 5; ++round) {
    std::fill(values.begin(), values.end(), 1.0F);
    c.all_reduce(values);
    check_fetch(c, values.front() == static_cast<float>(c.size()), "all_reduce beside the fetches");
  }
  // The ranks that wait for a late rank still serve it.
  if (c.rank() > 0) c.barrier();
  for (std::thread& thread : threads) thread.join();
  if (c.rank() == 0) c.barrier();
  check_fetch(c, wrong == 0, "fetched bytes are others");
  check_fetch(c, service.fetched_bytes() > 0, "fetched bytes are counted");

  // More than one message, and a file that can't be read.
  if (c.rank() == 0) {
    std::vector<std::uint8_t> large(kLargeBytes);
    const RemoteRange range{1, large};
    service.fetch(c.size() - 1, kLargeFile, {&range, 1});
    bool same = true;
    for (std::size_t k = 0; k < large.size(); ++k) same = same && large[k] == (k + 1) % 251;
    check_fetch(c, same, "a fetch of several messages");
    try {
      service.fetch(c.size() - 1, kMissingFile, {&range, 1});
      check_fetch(c, false, "a file that is not there was read");
    } catch (const Error& error) {
      check_fetch(c, error.code() == ExitCode::system, "the code of the error");
    }
  }

  // A rank that does not answer is named, and the fetch ends.
  if (c.rank() == 0) {
    std::vector<std::uint8_t> byte(1);
    const RemoteRange range{0, byte};
    try {
      service.fetch(1, kStuckFile, {&range, 1});
      check_fetch(c, false, "a rank that is stuck has answered");
    } catch (const Error& error) {
      const std::string_view text = error.what();
      check_fetch(c, text.starts_with("rank 1 has answered nothing for 10 s"), error.what());
      check_fetch(c, error.code() == ExitCode::system, "the code of the silence");
    }
  }
  c.barrier();
  *stuck = false;
  stuck->notify_all();
}

}  // namespace
}  // namespace wflow::trainer

int main(int argc, char** argv) {
  wflow::trainer::Communicator communicator(argc, argv);
  wflow::trainer::fetch_tests(communicator);
  return 0;
}
