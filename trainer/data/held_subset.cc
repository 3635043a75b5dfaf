// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "trainer/data/stage_space.h"

namespace wflow::trainer {
namespace {

SubsetDraw draw_of(const TrainConfig& config, std::size_t samples) {
  return {config.seed, samples, static_cast<std::size_t>(config.stage_subset),
          static_cast<std::size_t>(config.ranks)};
}

// A rank reads and sends so many bytes at once, and so few samples that there are not too many messages.
constexpr std::size_t kRoundBytes = 64 << 20;
constexpr std::size_t kRoundSamples = 64;

// Neighbours among the samples that are read, which are neighbours among those that a rank has drawn, too.
struct Run {
  std::size_t from = 0;  // place among those that are read
  std::size_t to = 0;    // and among those of the rank
  std::size_t count = 0;
};

// Both are ascending.
std::vector<Run> runs_of(std::span<const std::size_t> drawn, std::span<const std::size_t> read) {
  std::vector<Run> runs;
  if (read.empty()) return runs;
  auto at = std::ranges::lower_bound(drawn, read.front());
  for (std::size_t from = 0; from < read.size() && at != drawn.end(); ++from) {
    if (*at != read[from]) continue;
    const auto to = static_cast<std::size_t>(at++ - drawn.begin());
    if (!runs.empty() && runs.back().from + runs.back().count == from) {
      ++runs.back().count;
    } else {
      runs.push_back({from, to, 1});
    }
  }
  return runs;
}

}  // namespace

HeldSubset::HeldSubset(const TrainConfig& config, CachedSplit& split, Communicator& communicator)
    : draw_(draw_of(config, split.size())) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  for (std::size_t rank = 0; rank < ranks; ++rank)
    wanted_.push_back(draw_.distinct(draw_.of_rank(rank, ranks)));
  const std::vector<std::size_t> own = wanted_[static_cast<std::size_t>(communicator.rank())];
  // A network that reads labels alone reads no field of a sample.
  if (split.values() > 0) {
    reserve(config, own.size() * split.values(), communicator);
    fill(split, communicator, static_cast<int>(config.loader_threads));
  }
  split.hold(own, values_);
  report_.least = own.size();
  for (const std::vector<std::size_t>& of_rank : wanted_) {
    report_.least = std::min(report_.least, of_rank.size());
    report_.most = std::max(report_.most, of_rank.size());
    report_.bytes += of_rank.size() * split.values() * sizeof(float);
  }
  report_.all = draw_.distinct({0, draw_.subsets}).size();
  wanted_ = {};
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

HeldSubset::~HeldSubset() {
  if (!values_.empty()) ::munmap(values_.data(), values_.size_bytes());
}

// Each rank reads an even part of the samples that some rank has drawn, in rounds that bound its memory.
void HeldSubset::fill(const CachedSplit& split, Communicator& communicator, int threads) {
  const auto me = static_cast<std::size_t>(communicator.rank());
  const std::size_t ranks = wanted_.size();
  const std::size_t values = split.values();
  const std::vector<std::size_t> all = draw_.distinct({0, draw_.subsets});
  const std::size_t at_once =
      std::clamp<std::size_t>(kRoundBytes / (values * sizeof(float)), 1, kRoundSamples);
  const std::size_t rounds = ((all.size() + ranks - 1) / ranks + at_once - 1) / at_once;
  // The samples that a rank reads in a round.
  const auto read_by = [&](std::size_t rank, std::size_t round) {
    const auto [first, end] = even_part(all.size(), rank, ranks);
    const std::size_t begin = std::min(end, first + round * at_once);
    return std::span<const std::size_t>(all).subspan(begin, std::min(at_once, end - begin));
  };
  std::vector<float> buffer;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::span<const std::size_t> mine = read_by(me, round);
    buffer.resize(mine.size() * values);
    agree(communicator, failure_of([&] { split.read(mine, buffer, threads); }));
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const Run& run : runs_of(wanted_[rank], mine)) {
        const auto samples = std::span<const float>(buffer).subspan(run.from * values, run.count * values);
        if (rank == me) {
          std::ranges::copy(samples, values_.begin() + static_cast<std::ptrdiff_t>(run.to * values));
        } else {
          outgoing.push_back({static_cast<int>(rank), std::as_bytes(samples)});
        }
      }
      if (rank == me) continue;
      for (const Run& run : runs_of(wanted_[me], read_by(rank, round)))
        incoming.push_back({static_cast<int>(rank),
                            std::as_writable_bytes(values_.subspan(run.to * values, run.count * values))});
    }
    communicator.exchange(std::move(outgoing), std::move(incoming));
  }
}

void HeldSubset::reserve(const TrainConfig& config, std::size_t values, Communicator& communicator) {
  const std::uint64_t bytes = values * sizeof(float);
  const StageSpace space(config);
  space.check(communicator, bytes, "samples",
              {"draw fewer, use more nodes, or keep them in files (stage: {subset: N, local: FOLDER})",
               "draw fewer, use more nodes, or name another folder"});
  agree(communicator, failure_of([&] {
          file_ = space.file(bytes, fmt::format("{} of samples", text::format_bytes(bytes)));
          void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
          if (memory == MAP_FAILED) throw system_error(errno, "cannot map the file of the staged samples");
          values_ = {static_cast<float*>(memory), values};
        }));
}

}  // namespace wflow::trainer
