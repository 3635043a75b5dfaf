// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/addresses.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/file.h"
#include "base/folders.h"

namespace wflow::engine::wire {
namespace {

namespace fs = std::filesystem;

// A folder of its own stands for $XDG_RUNTIME_DIR.
class SocketFolder : public ::testing::Test {
 protected:
  SocketFolder() {
    std::string name = "/tmp/wflow-folder-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    runtime_ = name;
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", runtime_.c_str(), 1);
  }
  ~SocketFolder() override {
    before_.empty() ? ::unsetenv("XDG_RUNTIME_DIR") : ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    std::error_code ignored;
    fs::remove_all(runtime_, ignored);
  }
  static FileDescriptor listen_at(const fs::path& path) {
    FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd.get(), 1), 0);
    return fd;
  }
  // The number of a process that has ended.
  static pid_t dead_process() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }

  fs::path runtime_;
  std::string before_;
};

TEST_F(SocketFolder, IsTheUsersAlone) {
  const auto folder = socket_folder();
  ASSERT_EQ(folder, runtime_ / "wflow");
  EXPECT_TRUE(is_private_folder(*folder));
  EXPECT_EQ(socket_folder(), folder) << "the same again";
}

TEST_F(SocketFolder, ThatOthersCanEnterIsNotTaken) {
  fs::create_directory(runtime_ / "wflow");
  ::chmod((runtime_ / "wflow").c_str(), 0777);
  const auto folder = socket_folder();
  ASSERT_TRUE(folder);
  EXPECT_NE(*folder, runtime_ / "wflow");
  EXPECT_TRUE(is_private_folder(*folder));
}

TEST_F(SocketFolder, ThatIsALinkIsNotTaken) {
  fs::create_directory(runtime_ / "elsewhere");
  ::chmod((runtime_ / "elsewhere").c_str(), 0700);
  fs::create_directory_symlink(runtime_ / "elsewhere", runtime_ / "wflow");
  EXPECT_NE(socket_folder(), runtime_ / "wflow");
}

TEST_F(SocketFolder, LosesTheSocketsOfTheDeadOnly) {
  const auto folder = socket_folder();
  ASSERT_TRUE(folder);
  const std::string token(32, 'a');
  const fs::path own = new_socket(*folder, token);
  const FileDescriptor listens = listen_at(own);
  // For example a process of another PID namespace: it listens, and no process here has its number.
  const fs::path foreign = *folder / ("bbbbbbbbbbbbbbbb." + std::to_string(dead_process()) + ".00000001");
  const FileDescriptor listens_too = listen_at(foreign);
  const fs::path old = *folder / ("cccccccccccccccc." + std::to_string(dead_process()) + ".00000002");
  listen_at(old);  // closed at once
  write_file_durably(*folder / "notes.1.txt", "no socket");
  remove_old_sockets(*folder);
  EXPECT_TRUE(fs::exists(own));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(*folder / "notes.1.txt"));
}

}  // namespace
}  // namespace wflow::engine::wire
