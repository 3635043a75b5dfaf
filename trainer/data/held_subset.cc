// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/held_subset.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "trainer/data/stage_room.h"

namespace wflow::trainer {
namespace {

SubsetDraw draw_of(const TrainConfig& config, std::size_t samples) {
  return {config.seed, samples, static_cast<std::size_t>(config.stage_subset),
          static_cast<std::size_t>(config.ranks)};
}

}  // namespace

HeldSubset::HeldSubset(const TrainConfig& config, CachedSplit& split, Communicator& communicator)
    : draw_(draw_of(config, split.size())) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::size_t> own = draw_.distinct(draw_.of_rank(
      static_cast<std::size_t>(communicator.rank()), static_cast<std::size_t>(communicator.size())));
  const std::uint64_t bytes = own.size() * split.values() * sizeof(float);
  const StageRoom room(config);
  room.check(communicator, bytes, "samples",
             {"draw fewer, use more nodes, or keep them in files (stage: {subset: N, local: FOLDER})",
              "draw fewer, use more nodes, or name another folder"});
  agree(communicator, failure_of([&] {
          file_ = room.file(bytes, fmt::format("{} of samples", text::format_bytes(bytes)));
          values_ = map(own.size() * split.values());
          split.hold(own, values_, static_cast<int>(config.loader_threads));
        }));
  const std::vector<std::uint64_t> all =
      gather_values(communicator, std::vector<std::uint64_t>{own.size(), bytes});
  report_.least = own.size();
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
    report_.least = std::min<std::size_t>(report_.least, all[2 * rank]);
    report_.most = std::max<std::size_t>(report_.most, all[2 * rank]);
    report_.bytes += all[2 * rank + 1];
  }
  if (communicator.rank() == 0) report_.all = draw_.distinct({0, draw_.subsets}).size();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

HeldSubset::~HeldSubset() {
  if (!values_.empty()) ::munmap(values_.data(), values_.size_bytes());
}

std::span<float> HeldSubset::map(std::size_t values) {
  void* memory = ::mmap(nullptr, values * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (memory == MAP_FAILED) throw system_error(errno, "cannot map the file of the staged samples");
  return {static_cast<float*>(memory), values};
}

}  // namespace wflow::trainer
