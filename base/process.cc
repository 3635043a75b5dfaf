// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace wflow {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

enum class Stage : int { none, directory, redirect, exec };

// Everything the child needs, made before vfork: the child shares the parent's memory and may only make
// system calls. `stage` and `error` are how it reports back through that shared memory.
struct ChildPlan {
  const char* program;
  char** argv;
  char** environment;
  const char* directory;
  int in, out, err;
  bool own_group, die_with_parent;
  pid_t parent;
  volatile Stage stage;
  volatile int error;
};

[[noreturn]] void child_failed(ChildPlan& plan, Stage stage) {
  plan.error = errno;
  plan.stage = stage;
  ::_exit(127);
}

[[noreturn]] void run_child(ChildPlan& plan) {
  if (plan.own_group) ::setpgid(0, 0);
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);
  }
  // Handlers run in shared memory until exec would be a disaster: defaults first, then unblock.
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < 32; ++number) ::sigaction(number, &defaults, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.directory != nullptr && ::chdir(plan.directory) != 0) child_failed(plan, Stage::directory);
  const std::array<int, 3> sources = {plan.in, plan.out, plan.err};
  for (int target = 0; target < 3; ++target) {
    const int source = sources[static_cast<std::size_t>(target)];
    if (source < 0) continue;
    // dup2 onto itself would leave close-on-exec set.
    if (source == target ? ::fcntl(source, F_SETFD, 0) != 0 : ::dup2(source, target) < 0) {
      child_failed(plan, Stage::redirect);
    }
  }
  ::execve(plan.program, plan.argv, plan.environment);
  child_failed(plan, Stage::exec);
}

// vfork's child must not return from this frame; no object with a destructor lives here.
__attribute__((noinline)) pid_t vfork_and_run(ChildPlan& plan) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const pid_t pid = ::vfork();
#pragma GCC diagnostic pop
  if (pid == 0) run_child(plan);
  return pid;
}

}  // namespace

pid_t spawn(const SpawnRequest& request) {
  WFLOW_CHECK(!request.argv.empty());
  std::string program = request.argv.front();
  if (program.find('/') == std::string::npos) {
    const auto found = find_program(program);
    if (!found) throw Error(ExitCode::system, fmt::format("cannot start '{}': not found in PATH", program));
    program = *found;
  }
  // Opened in the parent: a null device per spawn is one cheap system call and needs no global.
  FileDescriptor null;
  if (request.stdin_fd < 0) null = open_file("/dev/null", O_RDONLY);
  std::vector<char*> argv = pointers(request.argv);
  std::vector<char*> environment;
  if (request.environment) environment = pointers(*request.environment);

  ChildPlan plan{program.c_str(),
                 argv.data(),
                 request.environment ? environment.data() : environ,
                 request.directory.empty() ? nullptr : request.directory.c_str(),
                 request.stdin_fd < 0 ? null.get() : request.stdin_fd,
                 request.stdout_fd,
                 request.stderr_fd,
                 request.own_group,
                 request.die_with_parent,
                 ::getpid(),
                 Stage::none,
                 0};
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vfork_and_run(plan);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw system_error(fork_error, fmt::format("cannot start '{}'", program));
  if (plan.stage == Stage::none) return pid;

  ::waitpid(pid, nullptr, 0);
  if (plan.stage == Stage::directory) {
    throw system_error(plan.error, fmt::format("cannot start '{}' in {}", program, request.directory));
  }
  throw system_error(plan.error, fmt::format("cannot start '{}'", program));
}

namespace {

// Both ends of a child's output.
struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error(errno, "cannot make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

using Clock = std::chrono::steady_clock;

// Milliseconds for poll until `end`; -1: for ever. At least 1 before the end, so that no wait is rounded to
// none.
int wait_ms(std::optional<Clock::time_point> end) {
  if (!end) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

// Until both are closed; false where `end` came first.
bool read_output(const FileDescriptor& out, const FileDescriptor& err, CommandResult& result,
                 std::optional<Clock::time_point> end) {
  constexpr std::size_t kLimit = 16 << 20;
  std::array<pollfd, 2> polls = {pollfd{out.get(), POLLIN, 0}, pollfd{err.get(), POLLIN, 0}};
  const std::array<std::string*, 2> texts = {&result.out, &result.err};
  std::array<char, 1 << 16> buffer{};
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    const int ready = ::poll(polls.data(), polls.size(), wait_ms(end));
    if (ready < 0 && errno != EINTR) break;
    if (end && Clock::now() >= *end) return false;
    for (std::size_t i = 0; ready > 0 && i < polls.size(); ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      const ssize_t got = ::read(polls[i].fd, buffer.data(), buffer.size());
      if (got > 0 && texts[i]->size() < kLimit)
        texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) polls[i].fd = -1;
    }
  }
  return true;
}

// A program may close its output and live on.
bool wait_until(pid_t pid, int& status, std::optional<Clock::time_point> end) {
  if (!end) {
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return true;
  }
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended = {handle.get(), POLLIN, 0};
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() >= *end) return false;
    ::poll(&ended, 1, wait_ms(end));
  }
  return true;
}

}  // namespace

CommandResult run_command(const SpawnRequest& request, double timeout_s) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  SpawnRequest child = request;
  child.stdout_fd = out.write.get();
  child.stderr_fd = err.write.get();
  std::optional<Clock::time_point> end;
  if (timeout_s > 0) {
    child.own_group = true;
    end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  }
  const pid_t pid = spawn(child);
  out.write = FileDescriptor();
  err.write = FileDescriptor();

  CommandResult result;
  int status = 0;
  if (!read_output(out.read, err.read, result, end) || !wait_until(pid, status, end)) {
    result.timed_out = true;
    ::killpg(pid, SIGKILL);
    wait_until(pid, status, std::nullopt);
  }
  result.status = exit_status(status);
  return result;
}

int exit_status(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::optional<std::string> find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : text::split(path ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate)) return candidate;
  }
  return std::nullopt;
}

std::string executable_directory() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw system_error(error.value(), "cannot read /proc/self/exe");
  return path.parent_path().string();
}

std::string sibling_program(const std::string& name) {
  const std::string beside = executable_directory() + "/" + name;
  if (::access(beside.c_str(), X_OK) == 0) return beside;
  if (const auto found = find_program(name)) return *found;
  throw Error(ExitCode::system,
              fmt::format("the program {} is neither in {} nor in PATH; build or install it "
                          "(scripts/quickstart does)",
                          name, executable_directory()));
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace wflow
