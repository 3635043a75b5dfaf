// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/resources.h"

#include <gtest/gtest.h>

#include "workers/execute/host.h"

namespace wflow::workers {
namespace {

specs::Resources wants(int cores, int procs, int gpus) {
  specs::Resources resources;
  resources.cores = cores;
  resources.procs = procs;
  resources.gpus = gpus;
  return resources;
}

TEST(ResourcePool, CountsCores) {
  ResourcePool pool({4, 0, 0, "", {}});
  EXPECT_TRUE(pool.fits(wants(2, 2, 0)));
  const Share three = pool.take(wants(3, 1, 0));
  EXPECT_FALSE(pool.fits(wants(2, 1, 0)));
  EXPECT_TRUE(pool.fits(wants(1, 1, 0)));
  pool.give_back(three);
  EXPECT_EQ(pool.take(wants(8, 100, 0)).cores, 4);  // more than there are: all
  EXPECT_FALSE(pool.fits(wants(0, 0, 0)));          // at least one
}

TEST(ResourcePool, HandsOutGpus) {
  ResourcePool pool({8, 3, 0, "", {}});
  const DeviceNames names({8, 3, 0, "", {}});
  EXPECT_TRUE(pool.possible(wants(1, 1, 3)));
  EXPECT_FALSE(pool.possible(wants(1, 1, 4)));
  const Share first = pool.take(wants(1, 1, 2));
  EXPECT_EQ(names.of(first), "0,1");
  EXPECT_FALSE(pool.fits(wants(1, 1, 2)));
  const Share second = pool.take(wants(1, 1, 1));
  EXPECT_EQ(names.of(second), "2");
  pool.give_back(first);
  EXPECT_EQ(names.of(pool.take(wants(1, 1, 1))), "0");
}

TEST(ResourcePool, NamesGpusAsItsOwnAllocationDoes) {
  ResourcePool pool({8, 2, 0, "4,GPU-abc", {}});
  const DeviceNames names({8, 2, 0, "4,GPU-abc", {}});
  EXPECT_EQ(names.of(pool.take(wants(1, 1, 2))), "4,GPU-abc");
}

specs::Resources wants_memory(std::int64_t bytes) {
  specs::Resources resources;
  resources.memory_bytes = bytes;
  return resources;
}

TEST(ResourcePool, SharesMemory) {
  ResourcePool pool({8, 0, 100, "", {}});
  const Share most = pool.take(wants_memory(70));
  EXPECT_FALSE(pool.fits(wants_memory(31)));
  EXPECT_TRUE(pool.fits(wants_memory(0)));
  const Share rest = pool.take(wants_memory(30));
  pool.give_back(most);
  EXPECT_FALSE(pool.fits(wants_memory(1000)));  // more than there is: all
  pool.give_back(rest);
  EXPECT_EQ(pool.take(wants_memory(1000)).memory_bytes, 100);
}

TEST(ResourcePool, PinsToProcessorsThatNobodyHas) {
  ResourcePool pool({3, 0, 0, "", {2, 3, 7}});
  const Share first = pool.take(wants(2, 1, 0));
  EXPECT_EQ(first.cpus, (std::vector<int>{2, 3}));
  const Share second = pool.take(wants(1, 1, 0));
  EXPECT_EQ(second.cpus, (std::vector<int>{7}));
  pool.give_back(second);
  pool.give_back(first);
  EXPECT_EQ(pool.take(wants(3, 1, 0)).cpus, (std::vector<int>{2, 3, 7}));
}

TEST(Machine, HasProcessorsAndMemory) {
  EXPECT_EQ(static_cast<int>(usable_cpus().size()), usable_cores());
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GT(usable_memory_bytes(), 64 << 20);
}

}  // namespace
}  // namespace wflow::workers
