// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string>

#include "base/error.h"

namespace wflow {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FileTest, DurableWriteReplacesAndLeavesNoTemporary) {
  write_file_durably(folder_ / "a", "one");
  write_file_durably(folder_ / "a", "two");
  EXPECT_EQ(read_file(folder_ / "a"), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, UnpublishedTemporaryIsRemoved) {
  {
    DurableFile file(folder_ / "b");
    write_file_durably(file.temporary(), "partial");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FileTest, MissingFileIsADataErrorThatNamesIt) {
  try {
    read_file(folder_ / "nowhere");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("nowhere"), std::string::npos);
  }
}

TEST_F(FileTest, FullDiskIsASystemError) {
  // /dev/full gives ENOSPC for every write.
  try {
    const FileDescriptor fd = open_file("/dev/full", 1);
    write_all(fd.get(), "x", "/dev/full");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::system);
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos);
  }
}

// NFS and quotas report a failed write at close. A filter of system calls simulates them, in a process of its
// own.
TEST_F(FileTest, AnErrorOfCloseIsAnErrorOfTheWrite) {
  write_file_durably(folder_ / "d", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int kNoFilter = 77;
    const sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_close},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EDQUOT},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    const sock_fprog program{std::size(code), const_cast<sock_filter*>(code)};
    const bool filtered = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                          ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
    if (!filtered) ::_exit(kNoFilter);
    try {
      write_file_durably(folder_ / "d", "new");
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("quota") != std::string::npos ? 0 : 2);
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of system calls here";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_file(folder_ / "d"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, HashOfFileAndBytesAgree) {
  const std::string bytes(3 << 20, 'x');
  write_file_durably(folder_ / "c", bytes);
  EXPECT_EQ(hash_file(folder_ / "c"), hash_bytes(bytes));
  EXPECT_EQ(hash_bytes(bytes).size(), 32u);
}

TEST_F(FileTest, LeftoversOfKilledWritersAreRemoved) {
  for (const char* name : {".metrics.csv.tmp-12-3", ".model.pt.tmp-1-1", "a.tmp-1-1", "b"})
    write_file_durably(folder_ / name, "x");
  remove_temporaries(folder_, "metrics.csv");
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".metrics.csv.tmp-12-3"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / ".model.pt.tmp-1-1"));
  remove_temporaries(folder_);
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".model.pt.tmp-1-1"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a.tmp-1-1"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "b"));
}

TEST_F(FileTest, LeftoversOfProcessesThatHaveEndedAreRemoved) {
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const DurableFile own(folder_ / "a.db");
  write_file_durably(own.temporary(), "x");
  std::string name = own.temporary().filename().string();
  const std::string process = ".tmp-" + std::to_string(::getpid()) + "-";
  ASSERT_NE(name.find(process), std::string::npos);
  name.replace(name.find(process), process.size(), ".tmp-" + std::to_string(ended) + "-");
  const auto left = folder_ / name;
  const auto journal = folder_ / (name + "-journal");
  const auto of_another_host = folder_ / (".a.db.tmp-" + std::to_string(ended) + "-0-00c0ffee");
  const auto old = folder_ / ".a.db.tmp-1-0";
  const auto other = folder_ / ("." + name);
  for (const auto& path : {left, journal, of_another_host, old, other}) write_file_durably(path, "x");
  std::filesystem::last_write_time(old,
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  remove_left_files(folder_, "a.db");
  EXPECT_FALSE(std::filesystem::exists(left) || std::filesystem::exists(journal) ||
               std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(own.temporary()) && std::filesystem::exists(of_another_host));
  EXPECT_TRUE(std::filesystem::exists(other));
  remove_left_files(folder_);
  EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(FileTest, ADeviceOrAPipeIsNotReplaced) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  write_file_durably(pipe, "through it");
  std::string read(32, '\0');
  read.resize(static_cast<std::size_t>(::read(reader, read.data(), read.size())));
  EXPECT_EQ(read, "through it");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  std::filesystem::create_symlink("/dev/null", folder_ / "null");
  write_file_durably(folder_ / "null", "nothing");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "null"));
  DurableFile file(pipe);
  write_file_durably(file.temporary(), "x");
  EXPECT_THROW(file.publish(), Error);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  ::close(reader);
}

}  // namespace
}  // namespace wflow
