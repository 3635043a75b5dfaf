// SPDX-License-Identifier: Apache-2.0
#include "base/trainer_mpi.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace wflow {
namespace {

TEST(OpenMpi, IsInAnArchiveAlone) {
  const std::filesystem::path prefix = std::filesystem::path(::testing::TempDir()) / "open mpi";
  std::filesystem::remove_all(prefix);
  std::filesystem::create_directories(prefix / "bin");
  EXPECT_EQ(bundled_open_mpi(prefix / "bin"), std::nullopt);
  std::filesystem::create_directories(prefix / "lib" / "openmpi" / "bin");
  EXPECT_EQ(bundled_open_mpi(prefix / "bin"), std::nullopt) << "a folder of plugins is not enough";
  std::ofstream(prefix / "lib" / "openmpi" / "bin" / "mpirun") << "#!/bin/sh\n";
  EXPECT_EQ(bundled_open_mpi(prefix / "bin"), prefix / "lib" / "openmpi");
  std::filesystem::remove_all(prefix);
}

std::filesystem::path write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

struct SiteMpi : ::testing::Test {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("site mpi " + std::to_string(::getpid()));
  ~SiteMpi() override {
    ::unsetenv("LD_LIBRARY_PATH");
    std::filesystem::remove_all(folder);
  }
};

TEST_F(SiteMpi, IsTheFirstInTheModulesFolders) {
  write(folder / "intel" / "libmpi.so.12", "");
  write(folder / "debian" / "libmpich.so.12", "");
  write(folder / "open" / "libmpi.so.40", "");
  ::setenv("LD_LIBRARY_PATH", fmt::format(":{0}/none:{0}/open:{0}/intel:{0}/debian", folder.string()).c_str(),
           1);
  EXPECT_EQ(site_mpi(true), folder / "intel" / "libmpi.so.12");
  EXPECT_EQ(site_mpi(false), folder / "open" / "libmpi.so.40");
  ::setenv("LD_LIBRARY_PATH", (folder / "debian").c_str(), 1);
  EXPECT_EQ(site_mpi(true), folder / "debian" / "libmpich.so.12");
}

TEST_F(SiteMpi, LaunchersSayWhoseTheyAre) {
  EXPECT_TRUE(is_launcher_of_mpich(write(folder / "mpiexec.hydra", "")));
  EXPECT_TRUE(is_launcher_of_mpich(write(folder / "mpirun.mpich", "")));
  EXPECT_FALSE(is_launcher_of_mpich(write(folder / "orterun", "")));
  EXPECT_TRUE(is_launcher_of_mpich(write(folder / "a" / "mpirun", "#!/bin/sh\necho HYDRA build details:\n")));
  EXPECT_TRUE(is_launcher_of_mpich(
      write(folder / "b" / "mpirun", "#!/bin/sh\necho 'Intel(R) MPI Library for Linux* OS'\n")));
  EXPECT_FALSE(
      is_launcher_of_mpich(write(folder / "c" / "mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.7'\n")));
  std::filesystem::create_symlink(folder / "mpiexec.hydra", folder / "mpirun");
  EXPECT_TRUE(is_launcher_of_mpich(folder / "mpirun"));
  const std::vector<std::string> words = mpirun_words(folder / "mpirun", 3);
  EXPECT_EQ(std::ranges::count(words, "--oversubscribe"), 0) << "MPICH's launcher does not know the option";
}

}  // namespace
}  // namespace wflow
