// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "workers/execute/host.h"

// Until exec the child shares the parent's memory, shadow memory of sanitizers included, and never returns
// from its functions, so their records of it would remain.
#define WFLOW_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))

namespace wflow::workers {

namespace {

constexpr std::size_t kStackBytes = 64 << 10;
constexpr int kFailed = 127;

enum class Stage : int { none, directory, output, exec };

struct Plan {
  const char* program;
  char** argv;
  char* const* environment;
  const char* directory;
  const char* out_file;
  const char* err_file;
  int out_fd;
  int err_fd;
  const cpu_set_t* cpus;
  pid_t parent;
  sigset_t no_signals;
  Stage stage;
  int error;
};

WFLOW_CHILD int failed(Plan* plan, Stage stage) {
  plan->error = errno;
  plan->stage = stage;
  ::_exit(kFailed);
}

WFLOW_CHILD bool redirect(const char* file, int fd, int target) {
  if (fd < 0) fd = ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  return fd >= 0 && ::dup2(fd, target) >= 0;  // exec closes fd
}

WFLOW_CHILD int run_child(void* argument) {
  Plan* plan = static_cast<Plan*>(argument);
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent died before the line above. Ends by a signal, as the kernel would have ended it, without an
  // exit code.
  if (::getppid() != plan->parent) ::kill(::getpid(), SIGKILL);
  if (::chdir(plan->directory) != 0) return failed(plan, Stage::directory);
  if (!redirect(plan->out_file, plan->out_fd, STDOUT_FILENO) ||
      !redirect(plan->err_file, plan->err_fd, STDERR_FILENO)) {
    return failed(plan, Stage::output);
  }
  // If a processor has gone off line meanwhile, the task runs unpinned.
  if (plan->cpus != nullptr) ::sched_setaffinity(0, sizeof *plan->cpus, plan->cpus);
  ::sigprocmask(SIG_SETMASK, &plan->no_signals, nullptr);
  ::execve(plan->program, plan->argv, plan->environment);
  return failed(plan, Stage::exec);
}

Error failure(int error_number, const std::string& what) {
  return Error(ExitCode::system, system_error(error_number, what).what() + limit_behind(error_number));
}

[[noreturn]] void throw_start_error(const Plan& plan) {
  switch (plan.stage) {
    case Stage::directory:
      throw ExecError(ExitCode::system,
                      system_error(plan.error, fmt::format("cannot enter {}", plan.directory)).what());
    case Stage::output:
      throw failure(plan.error,
                    fmt::format("cannot write {} or {} in {}", plan.out_file, plan.err_file, plan.directory));
    default:
      throw ExecError(ExitCode::system,
                      system_error(plan.error, fmt::format("cannot start '{}'", plan.program)).what());
  }
}

}  // namespace

Launcher::Launcher() : parent_(::getpid()) {
  stack_ =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack_ == MAP_FAILED) throw system_error(errno, "cannot make a stack for starting tasks");
}

Launcher::~Launcher() {
  ::munmap(stack_, kStackBytes);
}

void Launcher::start(const LaunchRequest& request) {
  argv_.clear();
  for (const std::string& word : *request.argv) argv_.push_back(const_cast<char*>(word.c_str()));
  argv_.push_back(nullptr);
  const bool pinned = request.cpus != nullptr && !request.cpus->empty();
  cpu_set_t cpus{};
  if (pinned) {
    for (const int cpu : *request.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
  }
  Plan plan{request.program,
            argv_.data(),
            const_cast<char* const*>(request.environment->data()),
            request.directory->c_str(),
            request.out_file->c_str(),
            request.err_file->c_str(),
            request.out_fd,
            request.err_fd,
            pinned ? &cpus : nullptr,
            parent_,
            {},
            Stage::none,
            0};
  ::sigemptyset(&plan.no_signals);
  char* top = static_cast<char*>(stack_) + kStackBytes;
  const int pid =
      ::clone(run_child, top, CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD, &plan, request.pid);
  if (pid < 0) {
    const int error = errno;
    *request.pid = 0;
    throw failure(error, fmt::format("cannot start '{}'", plan.program));
  }
  if (plan.stage == Stage::none) return;
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  *request.pid = 0;
  throw_start_error(plan);
}

}  // namespace wflow::workers
