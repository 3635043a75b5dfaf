// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/processes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process.h"

namespace wflow::workers {
namespace {

namespace fs = std::filesystem;

// As Open MPI 4.1.4 leaves them.
class MpiSessions : public testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("TMPDIR");
    before_ = given == nullptr ? "" : given;
    std::string name = (fs::temp_directory_path() / "wflow-sessions-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ::setenv("TMPDIR", name.c_str(), 1);
    const std::string host = host_name();
    sessions_ = folder_ / fmt::format("ompi.{}.{}", host.substr(0, host.find('.')), ::getuid());
  }
  void TearDown() override {
    if (before_.empty()) {
      ::unsetenv("TMPDIR");
    } else {
      ::setenv("TMPDIR", before_.c_str(), 1);
    }
    for (const fs::path& segment : segments_) fs::remove(segment);
    fs::remove_all(folder_);
  }

  // A number that no process has: of a child that has ended.
  static pid_t ended_process() {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(0);
    ::waitpid(pid, nullptr, 0);
    return pid;
  }

  fs::path session(pid_t pid, std::uint32_t job, int port = 1) {
    const fs::path path = sessions_ / fmt::format("pid.{}", pid);
    fs::create_directories(path / "1" / "0");
    std::ofstream(path / "contact.txt")
        << job << ".0;tcp://127.0.0.1:" << port << ";tcp6://[::1]:" << port << "\n"
        << pid << "\n";
    return path;
  }

  fs::path segment(std::uint32_t job) {
    segments_.push_back(fmt::format("/dev/shm/vader_segment.test{}.{}.{:x}.0", ::getpid(), ::getuid(), job));
    std::ofstream(segments_.back()) << "x";
    return segments_.back();
  }

  fs::path folder_;
  fs::path sessions_;

 private:
  std::string before_;
  std::vector<fs::path> segments_;
};

TEST_F(MpiSessions, OfKilledProcessesGoWithTheirSharedMemory) {
  const pid_t killed = ended_process();
  const fs::path own = session(killed, 0x7a430000);
  const fs::path own_segment = segment(0x7a430001);
  const fs::path other = session(::getpid(), 0x7a440000);
  const fs::path other_segment = segment(0x7a440001);
  remove_mpi_sessions(std::array{killed});
  EXPECT_FALSE(fs::exists(own));
  EXPECT_FALSE(fs::exists(own_segment));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(other_segment));
  remove_mpi_sessions(std::array{::getpid()});
  EXPECT_FALSE(fs::exists(sessions_)) << "the last one takes the folder along";
}

TEST_F(MpiSessions, ThatWereLeftGoAndThoseThatRunStay) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t length = sizeof place;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &length), 0);

  const fs::path left = session(ended_process(), 0x7a450000);
  const fs::path left_segment = segment(0x7a450001);
  const fs::path runs = session(::getpid(), 0x7a460000);
  // Its number is of another namespace of processes.
  const fs::path elsewhere = session(ended_process(), 0x7a470000, ntohs(place.sin_port));
  const fs::path other_host = folder_ / fmt::format("ompi.not-this-host.{}", ::getuid());
  fs::create_directories(other_host / "pid.1999999999");
  remove_left_mpi_sessions();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(left_segment));
  EXPECT_TRUE(fs::exists(runs));
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_TRUE(fs::exists(other_host / "pid.1999999999"));
}

}  // namespace
}  // namespace wflow::workers
