// SPDX-License-Identifier: Apache-2.0
#include "base/trainer_mpi.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace wflow
