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
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
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
// system calls. It reports through `stage` and `error` in that shared memory.
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
  // A signal handler must not run in the shared memory before exec: first set defaults, then unblock.
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

// vfork's child must not return from this frame, which therefore has no object with a destructor.
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
  std::string program = request.program.empty() ? request.argv.front() : request.program;
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

// Both ends of the pipe for a child's output.
struct Pipe {
  FileDescriptor read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error(errno, "cannot make a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

using Clock = std::chrono::steady_clock;

// Milliseconds for poll until `end`; -1: no limit. At least 1 before the end, so that no wait is rounded to
// zero.
int wait_ms(std::optional<Clock::time_point> end) {
  if (!end) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

// Reads until both are closed; false if `end` came first.
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

// A program may close its output and continue to run.
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
  const std::filesystem::path program = program_of("self");
  if (program.empty()) throw Error(ExitCode::system, "cannot read /proc/self/exe: is /proc mounted?");
  return called_as(program).parent_path().string();
}

namespace {

const char* how_to_get(std::string_view program) {
  const bool trains = program == "wflow-train";
  if ((trains || program == "wflow-convert") && !kHasConverter)
    return "this wflow was built without HDF5 (-DWFLOW_HDF5=OFF): build it with HDF5 (scripts/quickstart "
           "does)";
  if (trains && !kHasTrainer)
    return "this wflow was built without its trainer (-DWFLOW_TRAINER=OFF): build it with MPI and libtorch "
           "(scripts/quickstart does)";
  return "build or install it (scripts/quickstart does)";
}

}  // namespace

std::string sibling_program(const std::string& name) {
  const std::string beside = executable_directory() + "/" + name;
  if (::access(beside.c_str(), X_OK) == 0) return beside;
  if (const auto found = find_program(name)) return *found;
  throw Error(ExitCode::system, fmt::format("the program {} is neither in {} nor in PATH; {}", name,
                                            executable_directory(), how_to_get(name)));
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

namespace {

constexpr int kStartTimeField = 22;  // of /proc/<pid>/stat, counted from 1

// The text of a small file of /proc, or nothing. Must not throw: processes end at any time.
std::string read_proc(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer{};
  const ssize_t got = file ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : std::string();
}

// 0: no such process. The name of the program is in parentheses and may contain spaces and parentheses.
std::uint64_t start_ticks(pid_t pid) {
  const std::string stat = read_proc(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::string_view rest = std::string_view(stat).substr(name_end + 1);  // " S 1 ...": field 3 follows
  for (int field = 3; field < kStartTimeField; ++field) {
    const std::size_t space = rest.find(' ', 1);
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space);
  }
  rest.remove_prefix(1);
  std::uint64_t ticks = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  return ticks;
}

std::string boot_id() {
  const std::string text = read_proc("/proc/sys/kernel/random/boot_id");
  return text.substr(0, text.find('\n'));
}

std::string pid_namespace() {
  std::array<char, 64> target{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : std::string();
}

bool has_ended(int descriptor) {
  pollfd poll{descriptor, POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

}  // namespace

ProcessIdentity own_identity() {
  return identify(::getpid());
}

ProcessIdentity identify(pid_t pid) {
  const std::uint64_t ticks = pid > 0 ? start_ticks(pid) : 0;
  if (ticks == 0) return {};
  return {host_name(), boot_id(), pid_namespace(), pid, ticks};
}

ProcessHandle::ProcessHandle(const ProcessIdentity& process) {
  if (!process.known() || !process.same_table(own_identity())) return;
  const pid_t pid = static_cast<pid_t>(process.pid);
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!descriptor) {
    // EINVAL: the number now belongs to a thread.
    was_gone_ = errno == ESRCH || errno == EINVAL;
    if (!was_gone_) throw system_error(errno, fmt::format("cannot watch process {}", pid));
    return;
  }
  // Compared after opening: if the start time matches now, the descriptor refers to that process.
  const std::uint64_t ticks = start_ticks(pid);
  if (ticks == process.start_ticks) {
    descriptor_ = std::move(descriptor);
  } else {
    // Without a start time it has just ended, or /proc hides it (another user's process): its state is
    // unknown.
    was_gone_ = ticks != 0 || wflow::has_ended(descriptor.get());
  }
}

bool ProcessHandle::ended() const {
  return was_gone_ || (open() && wflow::has_ended(descriptor()));
}

bool ProcessHandle::send_signal(int number) const {
  if (!open()) return false;
  if (::syscall(SYS_pidfd_send_signal, descriptor(), number, nullptr, 0) == 0) return true;
  if (errno == ESRCH) return false;
  throw system_error(errno, "cannot signal a process");
}

namespace {

using Names = std::span<const std::string_view>;

bool is_any(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool begins_with_any(std::string_view name, Names prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Variables of launchers' and MPI libraries' processes: a program started inside one of them is not its rank.
constexpr std::array<std::string_view, 12> kRankPrefixes = {
    "PMI_",   "PMI2_", "PMIX_",           "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_APP_",
    "HYDRA_", "HYDI_", "MPI_LOCALNRANKS", "MPI_LOCALRANKID",  "PRTE_LAUNCHED",  "JSM_"};

// Variables that locate Slurm and its authentication.
constexpr std::array<std::string_view, 4> kSlurmStays = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT",
                                                         "SLURM_CLUSTERS"};
constexpr std::array<std::string_view, 9> kSlurmPrefixes = {
    "SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SCANCEL_", "SINFO_", "SACCT_"};

// Variables of the job that the caller runs in.
constexpr std::array<std::string_view, 3> kFluxPrefixes = {"FLUX_JOB_", "FLUX_TASK_", "FLUX_KVS_"};
constexpr std::array<std::string_view, 1> kPbsPrefixes = {"PBS_"};
constexpr std::array<std::string_view, 4> kPbsStays = {"PBS_CONF_FILE", "PBS_EXEC", "PBS_SERVER",
                                                       "PBS_DEFAULT"};
constexpr std::array<std::string_view, 2> kLsfPrefixes = {"LSB_", "LS_"};
constexpr std::array<std::string_view, 8> kSgeNames = {"JOB_ID", "JOB_NAME",    "JOB_SCRIPT", "NSLOTS",
                                                       "NHOSTS", "PE_HOSTFILE", "PE",         "SGE_TASK_ID"};

// Variables of a Slurm step: an inner srun takes them for options. Open MPI and Hydra use the old names of a
// job's nodes and would start a task of one node on another one.
constexpr std::array<std::string_view, 9> kStepPrefixes = {
    "SLURM_CPU_BIND",  "SLURM_STEP", "SLURM_NTASKS", "SLURM_MEM_PER_", "SLURM_SRUN_COMM_",
    "SLURM_TOPOLOGY_", "SRUN_",      "SBATCH_",      "SLURM_MEM_BIND"};
constexpr std::array<std::string_view, 26> kStepNames = {"SLURM_NPROCS",
                                                         "SLURM_TASKS_PER_NODE",
                                                         "SLURM_DISTRIBUTION",
                                                         "SLURM_EXPORT_ENV",
                                                         "SLURM_MPI_TYPE",
                                                         "SLURM_PROCID",
                                                         "SLURM_LOCALID",
                                                         "SLURM_NODEID",
                                                         "SLURM_TASK_PID",
                                                         "SLURM_GTIDS",
                                                         "SLURM_LAUNCH_NODE_IPADDR",
                                                         "SLURM_UMASK",
                                                         "SLURM_PRIO_PROCESS",
                                                         "SLURM_CPUS_PER_TASK",
                                                         "SLURM_WAIT",
                                                         "SLURM_KILL_BAD_EXIT",
                                                         "SLURM_OVERLAP",
                                                         "SLURM_WHOLE",
                                                         "SLURM_EXACT",
                                                         "SLURM_EXCLUSIVE",
                                                         "SLURM_JOBID",
                                                         "SLURM_NODELIST",
                                                         "SLURM_NNODES",
                                                         "SLURM_SPANK_ARGS",
                                                         "SLURM_PMIXP_ABORT_AGENT_PORT",
                                                         "SLURM_PMIX_MAPPING_SERV"};

bool changes_slurm(std::string_view name) {
  return begins_with_any(name, kSlurmPrefixes) && !is_any(name, kSlurmStays);
}

bool changes(std::string_view type, std::string_view name) {
  if (begins_with_any(name, kRankPrefixes)) return true;
  if (changes_slurm(name)) return true;  // also in a job inside which another scheduler runs
  if (begins_with_any(name, kFluxPrefixes)) return true;
  // Otherwise tasks of another scheduler's job would take Flux for their innermost manager.
  if (type != "flux" && (name == "FLUX_URI" || name == "FLUX_ENCLOSING_ID")) return true;
  if (begins_with_any(name, kPbsPrefixes)) return !is_any(name, kPbsStays);
  if (begins_with_any(name, kLsfPrefixes)) return true;
  return type == "sge" && is_any(name, kSgeNames);
}

}  // namespace

std::vector<std::string> scheduler_environment(std::string_view type,
                                               const std::vector<std::string>& variables) {
  std::vector<std::string> kept;
  for (const std::string& variable : variables) {
    if (!changes(type, std::string_view(variable).substr(0, variable.find('=')))) kept.push_back(variable);
  }
  return kept;
}

bool leaks_into_tasks(std::string_view name) {
  return begins_with_any(name, kStepPrefixes) || is_any(name, kStepNames) ||
         begins_with_any(name, kRankPrefixes);
}

void clean_task_environment() {
  for (const std::string& variable : current_environment()) {
    const std::string name = variable.substr(0, variable.find('='));
    if (leaks_into_tasks(name)) ::unsetenv(name.c_str());
  }
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) variables.emplace_back(*at);
  return variables;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

}  // namespace wflow
