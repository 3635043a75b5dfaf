// SPDX-License-Identifier: Apache-2.0
#include "base/resources.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace wflow {
namespace {

namespace fs = std::filesystem;

// The files as a kernel writes them, in a folder: no test can set limits of the machine's groups.
class FreeMemory : public testing::Test {
 protected:
  FreeMemory() : folder_(fs::temp_directory_path() / ("wflow-memory-" + std::to_string(::getpid()))) {
    write("proc/meminfo",
          "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n");
    write("proc/self/cgroup", "0::/job/step\n");
  }
  ~FreeMemory() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::int64_t free() const { return free_memory(folder_ / "proc", folder_ / "cgroup"); }
  std::int64_t peak() const { return peak_memory(folder_ / "proc"); }

 private:
  fs::path folder_;
};

TEST_F(FreeMemory, WithoutLimitsIsWhatTheKernelHas) {
  EXPECT_EQ(free(), 8000000LL * 1024);
  write("cgroup/job/step/memory.max", "max\n");
  write("cgroup/job/step/memory.current", "5000\n");
  EXPECT_EQ(free(), 8000000LL * 1024);
}

TEST_F(FreeMemory, LimitsOfGroupsAboveCount) {
  write("cgroup/job/memory.max", "1000000\n");
  write("cgroup/job/memory.current", "700000\n");
  write("cgroup/job/memory.stat", "anon 200000\ninactive_file 100000\nactive_file 5\n");
  write("cgroup/job/step/memory.max", "2000000\n");
  write("cgroup/job/step/memory.current", "10\n");
  EXPECT_EQ(free(), 400000);
  write("cgroup/job/memory.current", "1200000\n");  // over the limit for a moment
  EXPECT_EQ(free(), 0);
}

TEST_F(FreeMemory, OfTheFirstVersion) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/slurm/job_7\n0::/x\n");
  write("cgroup/memory/slurm/job_7/memory.limit_in_bytes", "500000\n");
  write("cgroup/memory/slurm/job_7/memory.usage_in_bytes", "300000\n");
  write("cgroup/memory/slurm/job_7/memory.stat", "cache 9\ntotal_inactive_file 50000\n");
  EXPECT_EQ(free(), 250000);
}

TEST(FreeMemoryHere, IsSomething) {
  EXPECT_GT(free_memory(), 0);
}

TEST_F(FreeMemory, PeakOfTheProcess) {
  write("proc/self/status", "Name:\twflow-train\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\nVmRSS:\t 500 kB\n");
  EXPECT_EQ(peak(), 512 * 1024);
  EXPECT_GT(peak_memory(), 1 << 20);
}

}  // namespace
}  // namespace wflow
