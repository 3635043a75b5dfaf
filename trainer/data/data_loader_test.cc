// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/random.h"
#include "trainer/data/staging.h"

namespace wflow::trainer {
namespace {

constexpr TensorShape kShape = {2, {3, 3, 3}};
const std::vector<ChannelScale> kNoChange = {{1, 0}, {1, 0}};
const std::vector<FieldPart> kOneField = {{0, kShape, {}}};

// Field k of sample i holds 1000 i + 500 k, 1000 i + 500 k + 1, ...
class CountingSource final : public SampleSource {
 public:
  explicit CountingSource(std::size_t size) : size_(size) {}
  std::size_t size() const override { return size_; }
  std::int64_t id(std::size_t i) const override { return static_cast<std::int64_t>(i); }
  std::span<const double> targets(std::size_t) const override { return {}; }
  void read_scaled(std::size_t field, std::span<const std::size_t> indices,
                   std::span<const std::span<float>> to, std::span<const ChannelScale> scales,
                   converters::MemoryBudget*) const override {
    for (std::size_t k = 0; k < indices.size(); ++k) {
      ++reads_;
      if (indices[k] == broken_) throw Error(ExitCode::data, "sample is broken");
      std::iota(to[k].begin(), to[k].end(), static_cast<float>(1000 * indices[k] + 500 * field));
      for (std::size_t j = 0; j < to[k].size() && !scales.empty(); ++j) {
        const ChannelScale& scale = scales[j / (to[k].size() / scales.size())];
        to[k][j] = static_cast<float>(to[k][j] - scale.centre) * scale.factor + scale.offset;
      }
    }
  }
  std::int64_t compressed_bytes(std::size_t) const override { return 0; }
  mutable std::atomic<int> reads_ = 0;
  std::size_t broken_ = 1'000'000;

 private:
  std::size_t size_;
};

DataLoader::Plan plan_of(std::vector<std::vector<std::size_t>> batches) {
  return [batches = std::move(batches)](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    if (n >= batches.size()) return std::nullopt;
    std::vector<BatchItem> items;
    for (const std::size_t i : batches[n]) items.push_back({i, {}});
    return items;
  };
}

TEST(DataLoader, GivesThePlannedBatchesInOrder) {
  const CountingSource source(10);
  for (const int threads : {1, 4}) {
    CacheBudget budget(1 << 20);
    CachedSplit split(source, kOneField, budget);
    DataLoader loader(split, {kNoChange}, 3, threads, plan_of({{1, 2, 3}, {}, {9, 0}, {4}, {5}, {6}}));
    for (const auto& expected : std::vector<std::vector<std::size_t>>{{1, 2, 3}, {}, {9, 0}, {4}, {5}, {6}}) {
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      ASSERT_EQ(batch->items.size(), expected.size());
      for (std::size_t n = 0; n < expected.size(); ++n) {
        EXPECT_EQ(batch->values(0)[n * 54], static_cast<float>(1000 * expected[n]));
        EXPECT_EQ(batch->values(0)[n * 54 + 53], static_cast<float>(1000 * expected[n] + 53));
      }
    }
    EXPECT_EQ(loader.next(), nullptr);
    EXPECT_EQ(loader.next(), nullptr);
  }
}

TEST(DataLoader, CachesAsFarAsTheBudgetGoes) {
  const CountingSource source(4);
  CacheBudget budget(2 * 54 * sizeof(float));
  CachedSplit split(source, kOneField, budget);
  std::vector<float> scratch;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(split.get(i, scratch)[0], static_cast<float>(1000 * i));
  }
  EXPECT_EQ(source.reads_.load(), 4 + 2 + 2);
}

TEST(DataLoader, HeldSamplesAreNeverReadAgain) {
  const CountingSource source(40);
  for (const int threads : {1, 3}) {
    CacheBudget budget(1 << 20);
    CachedSplit split(source, kOneField, budget);
    const std::vector<std::size_t> held = {0, 3, 4, 7, 8, 9, 11, 12, 13, 14, 20, 21, 22, 30, 31, 32, 33, 39};
    std::vector<float> memory(held.size() * 54);
    source.reads_ = 0;
    split.read(held, memory, threads);
    split.hold(held, memory);
    EXPECT_EQ(source.reads_.load(), static_cast<int>(held.size()));
    DataLoader loader(split, {kNoChange}, 3, threads, plan_of({{0, 39, 20}, {13, 13, 33}, {8}}));
    for (const float first : {0.0F, 13000.0F, 8000.0F}) EXPECT_EQ(loader.next()->values(0)[0], first);
    EXPECT_EQ(loader.next(), nullptr);
    EXPECT_EQ(source.reads_.load(), static_cast<int>(held.size()));
    // Others take no memory.
    std::vector<float> scratch;
    for (int round = 0; round < 2; ++round) EXPECT_EQ(split.get(1, scratch)[0], 1000.0F);
    EXPECT_EQ(source.reads_.load(), static_cast<int>(held.size()) + 2);
    EXPECT_TRUE(budget.decoded.holds(1 << 20));
  }
}

TEST(DataLoader, AnErrorOfAHeldSampleComesThrough) {
  CountingSource source(40);
  source.broken_ = 17;
  CacheBudget budget(1 << 20);
  CachedSplit split(source, kOneField, budget);
  std::vector<float> memory(3 * 54);
  EXPECT_THROW(split.read(std::vector<std::size_t>{1, 17, 18}, memory, 2), Error);
}

// The values are the same from the cache, read and kept, or read straight into the batch.
TEST(DataLoader, TheCacheChangesNoValue) {
  const CountingSource source(20);
  const std::vector<ChannelScale> scales = channel_scales({{7, 1.5}, {3, 0.7}});
  const std::vector<std::vector<std::size_t>> order = {{1, 2, 3, 19, 5}, {5, 3, 0, 11, 12}, {1, 2, 3, 19, 5}};
  std::vector<std::vector<float>> seen;
  for (const std::int64_t kept : {0, 3, 20}) {
    CacheBudget budget(kept * 54 * std::int64_t{sizeof(float)});
    CachedSplit split(source, kOneField, budget);
    DataLoader loader(split, {scales}, 5, 2, plan_of(order));
    std::vector<float> all;
    while (const Batch* batch = loader.next()) {
      const auto values = batch->values(0);
      all.insert(all.end(), values.begin(), values.end());
    }
    seen.push_back(std::move(all));
  }
  EXPECT_EQ(seen[0].size(), 15U * 54);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

// 2460000.5 and the next float32 are 0.25 apart: subtracting the centre first keeps the variation.
TEST(DataLoader, SubtractsInFloat64) {
  class FarSource final : public SampleSource {
   public:
    std::size_t size() const override { return 50; }
    std::int64_t id(std::size_t i) const override { return static_cast<std::int64_t>(i); }
    std::span<const double> targets(std::size_t) const override { return {}; }
    void read_scaled(std::size_t, std::span<const std::size_t> indices, std::span<const std::span<float>> to,
                     std::span<const ChannelScale> scales, converters::MemoryBudget*) const override {
      for (std::size_t k = 0; k < indices.size(); ++k) {
        const ChannelScale scale = scales.empty() ? ChannelScale{} : scales.front();
        const double value = 2460000.5 + 0.001 * static_cast<double>(indices[k]);
        to[k][0] = static_cast<float>(value - scale.centre) * scale.factor + scale.offset;
      }
    }
    std::int64_t compressed_bytes(std::size_t) const override { return 0; }
  };
  const FarSource source;
  const double mean = 2460000.5 + 0.0245;
  for (const TransformName name : {TransformName::none, TransformName::log1p}) {
    FieldPart part{0, {1, {1, 1, 1}}, {name, 0}};
    part.centre = {mean};
    part.transformed_centre = {transformed(part.transform, mean)};
    const double deviation = name == TransformName::none ? 0.0144 : 0.0144 / mean;
    for (const std::int64_t kept : {0, 50}) {
      CacheBudget budget(kept * std::int64_t{sizeof(float)});
      CachedSplit split(source, {part}, budget);
      const double centre = transformed(part.transform, mean) - split.offset(0, 0);
      DataLoader loader(split, {channel_scales({{centre}, {deviation}})}, 2, 1, plan_of({{0, 49}, {49, 0}}));
      while (const Batch* batch = loader.next()) {
        for (std::size_t n = 0; n < 2; ++n) {
          const double expected = (0.001 * static_cast<double>(batch->items[n].index) - 0.0245) / 0.0144;
          EXPECT_NEAR(batch->values(0)[n], expected, 1e-5) << name_of(name) << kept;
        }
      }
    }
  }
}

// A grid and numbers have their own places in the batch, and only the grid is augmented, cached or not.
TEST(DataLoader, ReadsSeveralFields) {
  const CountingSource source(6);
  const std::vector<FieldPart> parts = {{1, {1, {1, 2, 3}}, {}}, {0, {4, {1, 1, 1}}, {}}};
  const std::vector<std::vector<ChannelScale>> scales = {{{2, 1}}, {{1, 0}, {1, 0}, {1, 0}, {1, -1}}};
  const Augmentation mirrored = {{0, 1, 2}, {false, false, true}, {0, 0, 0}};
  for (const std::int64_t kept : {0, 2, 6}) {
    CacheBudget budget(kept * 10 * std::int64_t{sizeof(float)});
    CachedSplit split(source, parts, budget);
    for (int round = 0; round < 2; ++round) {
      DataLoader loader(split, scales, 4, 2, [&](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        if (n > 0) return std::nullopt;
        return std::vector<BatchItem>{{3, {}}, {5, mirrored}, {0, {}}};
      });
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      const auto grids = batch->values(0);
      const auto numbers = batch->values(1);
      ASSERT_EQ(grids.size(), 3U * 6);
      ASSERT_EQ(numbers.size(), 3U * 4);
      EXPECT_EQ(grids[0], 2 * 3500.0F + 1);
      EXPECT_EQ(grids[5], 2 * 3505.0F + 1);
      EXPECT_EQ(grids[6], 2 * 5502.0F + 1);
      EXPECT_EQ(grids[8], 2 * 5500.0F + 1);
      EXPECT_EQ(numbers[0], 3000.0F);
      EXPECT_EQ(numbers[4], 5000.0F);
      EXPECT_EQ(numbers[7], 5002.0F);
      EXPECT_EQ(numbers[11], 2.0F);
      EXPECT_EQ(loader.next(), nullptr);
    }
  }
}

TEST(DataLoader, CompressedSamplesAreKeptWhereDecodedOnesDoNotFit) {
  const auto divided = [](std::int64_t bytes, std::int64_t decoded, std::int64_t stored) {
    const CacheBudget budget = CacheBudget::divided(bytes, decoded, stored);
    const auto size = [&](const converters::MemoryBudget& part) {
      std::int64_t held = 0;
      while (part.holds(held + 1)) ++held;
      return held;
    };
    return std::pair(size(budget.decoded), size(budget.stored));
  };
  EXPECT_EQ(divided(100, 90, 30), std::pair(std::int64_t{100}, std::int64_t{0}));
  EXPECT_EQ(divided(100, 120, 30), std::pair(std::int64_t{70}, std::int64_t{30}));
  EXPECT_EQ(divided(100, 900, 300), std::pair(std::int64_t{0}, std::int64_t{100}));
  EXPECT_EQ(divided(100, 900, 0), std::pair(std::int64_t{100}, std::int64_t{0}));
}

TEST(DataLoader, PassesErrorsOn) {
  CountingSource source(4);
  source.broken_ = 2;
  CacheBudget budget(0);
  CachedSplit split(source, kOneField, budget);
  DataLoader loader(split, {kNoChange}, 1, 2, plan_of({{1}, {2}, {3}}));
  EXPECT_THROW(while (loader.next() != nullptr){}, Error);
}

TEST(DataLoader, MayBeDroppedHalfWay) {
  const CountingSource source(4);
  CacheBudget budget(0);
  CachedSplit split(source, kOneField, budget);
  DataLoader loader(split, {kNoChange}, 1, 2, plan_of({{1}, {2}, {3}, {0}, {1}, {2}}));
  EXPECT_NE(loader.next(), nullptr);
}

TEST(TransformedData, RefusesWhatIsNotFinite) {
  std::vector<float> values = {1, -2};
  EXPECT_FALSE(apply_transform({TransformName::log, 0.1}, values));
  values = {1, 2};
  EXPECT_TRUE(apply_transform({TransformName::log1p, 0.1}, values));
}

TEST(TrainingOrder, IsTheSameForAnyNumberOfRanks) {
  const std::size_t samples = 37;
  for (const std::uint64_t epoch : {0, 1}) {
    std::vector<std::size_t> one;
    const TrainingOrder alone = {5, samples, 8, 0, 1};
    for (std::uint64_t step = 0; step < alone.steps_per_epoch(); ++step) {
      const auto part = alone.indices(epoch, step);
      one.insert(one.end(), part.begin(), part.end());
    }
    for (const std::size_t ranks : {2, 3, 8}) {
      std::vector<std::size_t> all;
      for (std::uint64_t step = 0; step < alone.steps_per_epoch(); ++step) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const auto part = TrainingOrder{5, samples, 8, rank, ranks}.indices(epoch, step);
          EXPECT_LE(part.size(), 8 / ranks + 1);
          all.insert(all.end(), part.begin(), part.end());
        }
      }
      EXPECT_EQ(all, one);
    }
    std::sort(one.begin(), one.end());
    for (std::size_t i = 0; i < samples; ++i) EXPECT_EQ(one[i], i);
  }
}

TEST(SubsetDraw, IsAFunctionOfSeedSubsetAndPlace) {
  const SubsetDraw draw = {7, 1000, 50, 3};
  std::set<std::size_t> all;
  for (std::size_t subset = 0; subset < 3; ++subset)
    for (std::size_t place = 0; place < 50; ++place) {
      EXPECT_LT(draw.sample(subset, place), 1000U);
      all.insert(draw.sample(subset, place));
    }
  EXPECT_EQ(draw.distinct({0, 3}), std::vector<std::size_t>(all.begin(), all.end()));
  EXPECT_NE(draw.sample(0, 0), (SubsetDraw{8, 1000, 50, 3}.sample(0, 0)));
  EXPECT_NE(draw.distinct({0, 1}), draw.distinct({1, 2}));
  // python/tests/data_test.py has the same numbers.
  EXPECT_EQ(draw.sample(0, 0), 417U);
  EXPECT_EQ(draw.sample(2, 49), 590U);
  // With replacement: of n draws from n samples about 1 - 1/e are distinct.
  const SubsetDraw many = {1, 10000, 10000, 1};
  EXPECT_NEAR(static_cast<double>(many.distinct({0, 1}).size()), 6321, 150);
}

// Each subset gives each of its samples once an epoch, in equal parts of every batch, and any number of ranks
// sees the same batches.
TEST(TrainingOrder, TakesEqualPartsOfEverySubset) {
  TrainingOrder whole = {5, 4 * 10, 12, 0, 1};
  whole.subset = SubsetDraw{9, 100, 10, 4};
  EXPECT_EQ(whole.steps_per_epoch(), 4U);
  EXPECT_EQ(whole.global_batch(3), 4U);
  for (const std::size_t ranks : {2U, 3U, 4U}) {
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<std::size_t> all;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        TrainingOrder order = whole;
        order.rank = rank;
        order.ranks = ranks;
        const auto own = order.indices(2, step);
        const auto [first, end] = order.share(step);
        EXPECT_EQ(first, all.size());
        EXPECT_EQ(end - first, own.size());
        EXPECT_LE(own.size(), order.most_of_rank());
        all.insert(all.end(), own.begin(), own.end());
      }
      EXPECT_EQ(all, whole.indices(2, step));
    }
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    TrainingOrder order = whole;
    order.rank = rank;
    order.ranks = 4;
    std::vector<std::size_t> drawn;
    for (std::size_t place = 0; place < 10; ++place) drawn.push_back(order.subset->sample(rank, place));
    std::vector<std::size_t> seen;
    for (std::uint64_t step = 0; step < 4; ++step)
      for (const std::size_t sample : order.indices(6, step)) seen.push_back(sample);
    EXPECT_NE(seen, drawn);
    std::ranges::sort(seen);
    std::ranges::sort(drawn);
    EXPECT_EQ(seen, drawn);
    for (const std::size_t sample : order.some(8, 3)) EXPECT_TRUE(std::ranges::binary_search(drawn, sample));
    EXPECT_EQ(order.some(8, 3).size(), 2U);
  }
}

TEST(TrainingOrder, ChangesWithTheEpoch) {
  const TrainingOrder order = {5, 100, 100, 0, 1};
  EXPECT_NE(order.indices(0, 0), order.indices(1, 0));
}

// The samples of an epoch in order, over all ranks.
std::vector<std::size_t> epoch_of(TrainingOrder order, std::uint64_t epoch, std::size_t ranks) {
  std::vector<std::size_t> all;
  order.ranks = ranks;
  for (std::uint64_t step = 0; step < order.steps_per_epoch(); ++step) {
    for (order.rank = 0; order.rank < ranks; ++order.rank) {
      const auto part = order.indices(epoch, step);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

TEST(TrainingOrder, BringsNeighboursTogetherInRuns) {
  constexpr std::size_t kSamples = 103;
  constexpr std::size_t kRun = 4;
  TrainingOrder order = {5, kSamples, 16, 0, 1, {}, kRun};
  for (std::size_t i = 0; i < kSamples; ++i)
    order.alike.push_back(static_cast<std::uint32_t>(i * 10 % kSamples));  // not the order of the data
  std::vector<std::size_t> place(kSamples);  // of a sample among those that are alike
  for (std::size_t i = 0; i < kSamples; ++i) place[order.alike[i]] = i;
  const std::vector<std::size_t> all = epoch_of(order, 0, 1);
  for (std::size_t at = 0; at + kRun <= kSamples; at += kRun) {
    for (std::size_t k = 1; k < kRun; ++k)
      EXPECT_EQ(place[all[at + k]], (place[all[at]] + k) % kSamples) << at;
  }
  EXPECT_EQ(std::set<std::size_t>(all.begin(), all.end()).size(), kSamples);
  EXPECT_EQ(all.size(), kSamples);
  EXPECT_NE(place[all[kRun]], (place[all[0]] + kRun) % kSamples);  // runs are shuffled
  EXPECT_EQ(epoch_of(order, 0, 4), all);
  EXPECT_NE(epoch_of(order, 1, 1), all);
  order.run = 1000;
  const std::vector<std::size_t> one_run = epoch_of(order, 0, 1);
  EXPECT_EQ(place[one_run[1]], (place[one_run[0]] + 1) % kSamples);
}

TEST(BatchOrder, SortsByLabelsAndLengths) {
  // Two labels, and a ragged field whose sample i has 10 - i % 5 steps.
  class Labelled final : public SampleSource {
   public:
    std::size_t size() const override { return 20; }
    std::int64_t id(std::size_t i) const override { return static_cast<std::int64_t>(i); }
    std::span<const double> targets(std::size_t i) const override {
      return std::span(labels_).subspan(2 * (i % 3), 2);
    }
    void read_scaled(std::size_t, std::span<const std::size_t>, std::span<const std::span<float>>,
                     std::span<const ChannelScale>, converters::MemoryBudget*) const override {}
    std::int64_t compressed_bytes(std::size_t) const override { return 0; }
    std::size_t length(std::size_t, std::size_t i) const override { return 10 - i % 5; }

   private:
    std::vector<double> labels_ = {7, 2, 7, 0, 7, 1};
  };
  const Labelled samples;
  DatasetInfo info;
  info.labels = {"constant", "type"};
  DataField trace;
  trace.name = "trace";
  trace.shape = {1, {1, 1, 10}};
  trace.is_ragged = true;
  info.fields = {trace};
  EXPECT_TRUE(order_by({}, info, samples).empty());
  for (const char* length : {"length", "length(trace)"}) {
    const auto order = order_by({"constant", "type", length}, info, samples);
    ASSERT_EQ(order.size(), samples.size());
    for (std::size_t k = 1; k < order.size(); ++k) {
      const auto key = [&](std::size_t i) {
        return std::tuple(samples.targets(i)[1], samples.length(0, i), i);
      };
      EXPECT_LT(key(order[k - 1]), key(order[k])) << k;
    }
  }
  try {
    order_by({"typ"}, info, samples);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::spec);
    EXPECT_NE(std::string(error.what()).find("did you mean"), std::string::npos) << error.what();
  }
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndSample) {
  const AugmentConfig all = {true, true, true};
  const auto drawn = draw_augmentation(all, kShape, 1, 2, 3);
  EXPECT_EQ(drawn, draw_augmentation(all, kShape, 1, 2, 3));
  int same = 0;
  for (std::int64_t id = 0; id < 100; ++id) same += draw_augmentation(all, kShape, 1, 2, id) == drawn ? 1 : 0;
  EXPECT_LT(same, 5);
  EXPECT_EQ(draw_augmentation({}, kShape, 1, 2, 3), Augmentation());
  EXPECT_EQ(draw_augmentation({false, false, true}, {1, {4, 6, 8}}, 1, 2, 3), Augmentation());
}

// Noise is added in training to the parts with noise, read directly or through the cache, by any number of
// threads.
TEST(Noise, IsAddedToWhatATrainingReads) {
  const CountingSource source(6);
  const std::vector<FieldPart> parts = {{0, kShape, {}, 0.5}, {1, kShape, {}}};
  std::vector<float> first;
  for (const int threads : {1, 3}) {
    for (const std::int64_t cache : {0, 1 << 20}) {
      CacheBudget budget(cache);
      CachedSplit split(source, parts, budget);
      const auto plan = [](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        if (n > 0) return std::nullopt;
        return std::vector<BatchItem>{{4, {}, noise_key(1, 2, 4)}, {5, {}}};
      };
      DataLoader loader(split, {kNoChange, kNoChange}, 2, threads, plan);
      const Batch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      const std::vector<float> values(batch->x.span().begin(), batch->x.span().end());
      const auto count = static_cast<std::size_t>(kShape.count());
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_NE(values[i], 4000 + static_cast<float>(i));
        EXPECT_NEAR(values[i], 4000 + static_cast<float>(i), 3);
        EXPECT_EQ(values[count + i], 5000 + static_cast<float>(i));
        EXPECT_EQ(values[2 * count + i], 4500 + static_cast<float>(i));
      }
      if (first.empty()) first = values;
      EXPECT_EQ(values, first);
    }
  }
}

// Number of flips and exchanges of axes: 48 for a cube, 8 for a square, 4 for other images.
TEST(Augmentation, HasEverySymmetryOfTheGrid) {
  const auto symmetries = [](const TensorShape& shape) {
    std::vector<float> from(static_cast<std::size_t>(shape.count()));
    std::iota(from.begin(), from.end(), 0.0F);
    std::set<std::vector<float>> seen;
    for (std::int64_t id = 0; id < 2000; ++id) {
      std::vector<float> to(from.size());
      copy_sample(from, to, shape, kNoChange, draw_augmentation({false, true, true}, shape, 1, 2, id));
      seen.insert(to);
    }
    return seen.size();
  };
  EXPECT_EQ(symmetries({2, {3, 3, 3}}), 48U);
  EXPECT_EQ(symmetries({2, {1, 3, 3}}), 8U);
  EXPECT_EQ(symmetries({2, {1, 3, 4}}), 4U);
}

TEST(Augmentation, MovesEveryCellOnceAndKeepsNeighbours) {
  std::vector<float> from(54);
  std::iota(from.begin(), from.end(), 0.0F);
  std::vector<float> to(54);
  for (std::int64_t id = 0; id < 50; ++id) {
    const auto drawn = draw_augmentation({true, true, true}, kShape, 1, 1, id);
    copy_sample(from, to, kShape, kNoChange, drawn);
    std::vector<float> sorted = to;
    std::sort(sorted.begin(), sorted.begin() + 27);
    std::sort(sorted.begin() + 27, sorted.end());
    EXPECT_EQ(sorted, from);
    for (std::size_t i = 0; i < 27; ++i) EXPECT_EQ(to[i] + 27, to[i + 27]);  // channels move together
  }
  copy_sample(from, to, kShape, channel_scales({{1, 2}, {2, 4}}),
              {{0, 1, 2}, {false, false, true}, {0, 0, 1}});
  EXPECT_FLOAT_EQ(to[0], (0 - 1) / 2.0F);  // cell 2, mirrored and shifted by one around the end, is cell 0
  EXPECT_FLOAT_EQ(to[1], (2 - 1) / 2.0F);
  EXPECT_FLOAT_EQ(to[27 + 2], (28 - 2) / 4.0F);
}

// Random boxes of augmented samples, cell by cell: from their preimage, and from the whole.
TEST(Augmentation, ABoxComesFromItsPreimage) {
  for (const TensorShape& shape :
       {TensorShape{2, {5, 5, 5}}, TensorShape{2, {1, 7, 7}}, TensorShape{2, {4, 6, 3}}}) {
    const auto& n = shape.extent;
    std::vector<float> whole(static_cast<std::size_t>(shape.count()));
    std::iota(whole.begin(), whole.end(), 0.0F);
    const std::vector<ChannelScale> scales = channel_scales({{1, 2}, {2, 4}});
    for (std::int64_t id = 0; id < 400; ++id) {
      const Augmentation drawn = draw_augmentation({true, true, true}, shape, 1, 2, id);
      Box box;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const auto bits = static_cast<std::int64_t>(hash64(static_cast<std::uint64_t>(id), axis) >> 2);
        const std::int64_t begin = bits % n[axis];
        box.axes[axis] = {begin, begin + 1 + (bits >> 16) % (n[axis] - begin)};
      }
      const PeriodicBox cells = preimage(drawn, shape, box);
      std::vector<float> read;
      for (std::int64_t c = 0; c < shape.channels; ++c)
        for (std::int64_t d = 0; d < cells.count[0]; ++d)
          for (std::int64_t h = 0; h < cells.count[1]; ++h)
            for (std::int64_t w = 0; w < cells.count[2]; ++w)
              read.push_back(whole[static_cast<std::size_t>(
                  ((c * n[0] + (cells.start[0] + d) % n[0]) * n[1] + (cells.start[1] + h) % n[1]) * n[2] +
                  (cells.start[2] + w) % n[2])]);
      ASSERT_EQ(cells.cells(), box.cells());
      std::vector<float> augmented(whole.size());
      copy_sample(whole, augmented, shape, scales, drawn);
      std::vector<float> expected;
      for (std::int64_t c = 0; c < shape.channels; ++c)
        for (std::int64_t d = box.axes[0].begin; d < box.axes[0].end; ++d)
          for (std::int64_t h = box.axes[1].begin; h < box.axes[1].end; ++h)
            for (std::int64_t w = box.axes[2].begin; w < box.axes[2].end; ++w)
              expected.push_back(augmented[static_cast<std::size_t>(((c * n[0] + d) * n[1] + h) * n[2] + w)]);
      std::vector<float> copied(expected.size());
      copy_box({read, cells}, copied, box, shape, scales, drawn);
      ASSERT_EQ(copied, expected) << id;
      copy_box({whole, PeriodicBox(Box::of(n))}, copied, box, shape, scales, drawn);
      ASSERT_EQ(copied, expected) << id;
    }
  }
}

// The batches of a box are the cells of whole batches, for every cache, also with noise.
TEST(DataLoader, BatchesOfABoxAreCutFromWholeOnes) {
  const CountingSource source(20);
  const Box box = {{Range{1, 3}, Range{0, 3}, Range{0, 2}}};
  std::vector<FieldPart> parts(2, kOneField[0]);
  parts[1].field = 1;
  parts[0].noise = 0.5;
  const std::vector<Box> boxes = {box, Box::of(kShape.extent)};
  const auto plan = [](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
    if (n == 6) return std::nullopt;
    std::vector<BatchItem> items;
    for (std::size_t k = 0; k < 5; ++k) {
      BatchItem& item = items.emplace_back();
      item.index = hash64(n / 3, k) % 20;
      const auto id = static_cast<std::int64_t>(item.index);
      if (n % 2 == 0) item.augmentation = draw_augmentation({true, true, true}, kShape, 1, n, id);
      item.noise = noise_key(1, n, id);
    }
    return items;
  };
  const auto all_batches = [&](const std::vector<Box>& cached, const std::vector<Box>& read,
                               std::int64_t bytes) {
    CacheBudget budget(bytes);
    CachedSplit split(source, parts, budget);
    if (!cached.empty()) split.set_boxes(cached);
    DataLoader loader(split, {kNoChange, kNoChange}, 5, 2, plan, read);
    std::vector<std::vector<float>> values;
    while (const Batch* batch = loader.next()) {
      for (std::size_t part = 0; part < 2; ++part) {
        const auto of_part = batch->values(part);
        values.emplace_back(of_part.begin(), of_part.end());
      }
    }
    return values;
  };
  const auto whole = all_batches({}, {}, 0);
  const std::vector<Box> all(2, Box::of(kShape.extent));
  for (const std::vector<Box>& cached : {boxes, all}) {
    for (const std::int64_t bytes : {0, 3000, 1 << 20}) {
      const auto part = all_batches(cached, boxes, bytes);
      ASSERT_EQ(part.size(), whole.size());
      for (std::size_t k = 0; k < part.size(); k += 2) {
        std::vector<float> cells(part[k].size());
        const auto count = static_cast<std::size_t>(2 * box.cells());
        for (std::size_t n = 0; n < 5; ++n)
          copy_box({std::span(whole[k]).subspan(n * 54, 54), PeriodicBox(Box::of(kShape.extent))},
                   std::span(cells).subspan(n * count, count), box, kShape, kNoChange, {});
        ASSERT_EQ(part[k], cells) << k;
        ASSERT_EQ(part[k + 1], whole[k + 1]) << k;
      }
    }
  }
}

using Numbers = std::vector<std::size_t>;

TEST(Staging, GroupsAreHostsOrPartsOfThem) {
  const std::vector<std::string> hosts = {"a", "a", "b", "a", "b"};
  EXPECT_EQ(groups_of(hosts, 0), (Numbers{0, 0, 1, 0, 1}));
  EXPECT_EQ(groups_of(hosts, 2), (Numbers{0, 0, 1, 2, 1}));
  EXPECT_EQ(groups_of(hosts, 1), (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(groups_of(std::vector<std::string>{"a"}, 0), Numbers{0});
}

TEST(Staging, ShardsAreSpreadOverNodesFirst) {
  const Numbers two_nodes = {0, 0, 1, 1};
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{5, 5, 5, 5}, two_nodes), (Numbers{0, 2, 1, 3}));
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{9, 3, 3, 3}, two_nodes), (Numbers{0, 2, 3, 2}));
  EXPECT_EQ(owners_of(std::vector<std::uint64_t>{}, two_nodes), Numbers{});
}

TEST(Staging, ShardsOfEqualSizeAreSpreadEvenly) {
  const std::vector<std::uint64_t> shards(103, 512);
  Numbers groups(24);
  for (std::size_t rank = 0; rank < groups.size(); ++rank) groups[rank] = rank / 4;
  Numbers count(groups.size(), 0);
  for (const std::size_t owner : owners_of(shards, groups)) ++count[owner];
  EXPECT_EQ(std::accumulate(count.begin(), count.end(), std::size_t{0}), shards.size());
  for (const std::size_t shards_of_rank : count) {
    EXPECT_GE(shards_of_rank, 4U);
    EXPECT_LE(shards_of_rank, 5U);
  }
}

}  // namespace
}  // namespace wflow::trainer
