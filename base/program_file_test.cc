// SPDX-License-Identifier: Apache-2.0
#include "base/program_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/process.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

struct ProgramFile : ::testing::Test {
  const fs::path prefix = fs::path(::testing::TempDir()) / ("a folder " + std::to_string(::getpid()));
  ~ProgramFile() override { fs::remove_all(prefix); }
};

void make_program(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/sh\n";
  fs::permissions(path, fs::perms::owner_all);
}

TEST_F(ProgramFile, IsTheProgramOfThisProcess) {
  EXPECT_EQ(program_of("self"), fs::read_symlink("/proc/self/exe"));
  EXPECT_EQ(program_of(std::to_string(::getpid())), program_of("self"));
  EXPECT_FALSE(has_own_glibc());
}

TEST_F(ProgramFile, IsEmptyWithoutAProcess) {
  EXPECT_EQ(program_of("0"), fs::path());
}

TEST_F(ProgramFile, OfAnArchiveIsCalledInBin) {
  make_program(prefix / "libexec" / "wflow");
  EXPECT_EQ(called_as(prefix / "libexec" / "wflow"), prefix / "libexec" / "wflow") << "nothing is in bin";
  make_program(prefix / "bin" / "wflow");
  EXPECT_EQ(called_as(prefix / "libexec" / "wflow"), prefix / "bin" / "wflow");
  EXPECT_EQ(program_behind(prefix / "bin" / "wflow"), prefix / "libexec" / "wflow");
}

TEST_F(ProgramFile, OfAnyOtherInstallationIsItself) {
  make_program(prefix / "bin" / "wflow");
  EXPECT_EQ(called_as(prefix / "bin" / "wflow"), prefix / "bin" / "wflow");
  EXPECT_EQ(program_behind(prefix / "bin" / "wflow"), prefix / "bin" / "wflow");
}

// Here, the linker of this machine.
TEST_F(ProgramFile, IsAnArgumentOfTheArchivesLinker) {
  const fs::path linker = "/lib64/ld-linux-x86-64.so.2";
  if (!fs::exists(linker)) GTEST_SKIP() << "no such linker on this machine";
  std::array<int, 2> in{}, out{};
  ASSERT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
  SpawnRequest request;
  request.argv = {linker, "--library-path", "/nowhere", "--argv0", "cat", "/bin/cat"};
  request.stdin_fd = in[0];
  request.stdout_fd = out[1];
  const pid_t pid = spawn(request);
  char byte = 'x';
  ASSERT_EQ(::write(in[1], &byte, 1), 1);
  ASSERT_EQ(::read(out[0], &byte, 1), 1) << "the program runs";
  EXPECT_EQ(program_of(std::to_string(pid)), "/bin/cat");
  for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace wflow
