// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <thread>

#include "base/control_group.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "workers/agent/worker_processes.h"
#include "workers/execute/host.h"

namespace wflow::workers {

namespace {

[[noreturn]] void keep_asking(const EndWatch::Ask& ask, double period_s, pid_t parent,
                              std::atomic<double>& answer) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  while (true) {
    std::this_thread::sleep_for(std::chrono::duration<double>(period_s));
    try {
      if (const auto ends_unix_s = ask()) answer = *ends_unix_s;
    } catch (const std::exception&) {
      // The scheduler does not answer at the moment: the known end stays valid.
    }
  }
}

}  // namespace

EndWatch::EndWatch(double ends_unix_s) {
  void* memory =
      ::mmap(nullptr, sizeof(std::atomic<double>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error(errno, "cannot map memory for the worker");
  shared_ = new (memory) std::atomic<double>(ends_unix_s);
}

EndWatch::~EndWatch() {
  ::munmap(shared_, sizeof(std::atomic<double>));
}

void EndWatch::start(const Ask& ask, double period_s) {
  const pid_t parent = ::getpid();
  // If fork fails, the known end stays valid and the worker goes on.
  if (::fork() == 0) keep_asking(ask, period_s, parent, *shared_);
}

namespace {

// The number of devices that the scheduler assigned on this node: more than requested if it assigns whole
// nodes, fewer if it could not assign them. 0: not known.
int listed_devices() {
  const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
  if (devices == nullptr || *devices == '\0' || std::string_view(devices) == "NoDevFiles") return 0;
  return static_cast<int>(std::count(devices, devices + std::strlen(devices), ',')) + 1;
}

WorkerOptions completed(WorkerOptions options) {
  const bool asked_for = options.gpus > 0 || options.allocation.find(':') != std::string::npos;
  if (asked_for && !options.allocation.empty() && listed_devices() > 0) options.gpus = listed_devices();
  options.campaign = std::filesystem::absolute(options.campaign);
  if (options.slots <= 0) options.slots = usable_cores();
  if (options.cores <= 0) options.cores = options.slots;
  if (options.memory_bytes <= 0) options.memory_bytes = usable_memory_bytes();
  if (options.pin && options.cores > usable_cores()) {
    throw Error(ExitCode::usage,
                fmt::format("cannot pin the tasks of {} cores: this process may use {}; leave out "
                            "--pin, or give fewer --cores",
                            options.cores, usable_cores()));
  }
  return options;
}

Identity new_identity(const WorkerOptions& options) {
  Identity identity;
  identity.keys = engine::wire::read_keys(options.campaign);
  identity.guardian = own_identity();
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random)
    throw system_error(errno, "cannot read random bytes");
  identity.worker = fmt::format("{}-{}-{:016x}", host_name(), ::getpid(), random);
  identity.directory = options.campaign / ".wflow" / "workers" / identity.worker;
  make_directories(identity.directory);
  return identity;
}

Capacity capacity_of(const WorkerOptions& options) {
  const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
  return {options.cores, options.gpus, options.memory_bytes, devices == nullptr ? "" : devices,
          options.pin ? usable_cpus() : std::vector<int>()};
}

Journal new_journal(const WorkerOptions& options, const Identity& identity) {
  engine::wire::JournalHeader header;
  header.worker = identity.worker;
  header.group = options.group;
  header.guardian = identity.guardian;
  header.started_by = options.started_by;
  return {create_journal_file(options.campaign, identity.worker), header};
}

int agent_main(const WorkerOptions& options, const Identity& identity, const EndWatch& end, SlotTable& table,
               Journal& journal) {
  try {
    return run_agent(options, identity, capacity_of(options), end, table, journal);
  } catch (const Error& error) {
    log::write(LogLevel::warning, error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    log::write(LogLevel::warning, error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace

int run_worker(const WorkerOptions& given) {
  const WorkerOptions options = completed(given);
  const Identity identity = new_identity(options);
  SlotTable table(static_cast<std::size_t>(options.slots));
  Journal journal = new_journal(options, identity);
  ::setsid();  // fails for a group leader, which its starter has already separated
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  EndWatch end(options.ends_unix_s);
  if (options.ask_end) end.start(options.ask_end, options.ask_end_every_s);
  block_signals();
  const pid_t agent = ::fork();
  if (agent < 0) {
    const int error = errno;
    throw Error(ExitCode::system,
                system_error(error, "cannot start the worker's agent").what() + limit_behind(error));
  }
  if (agent == 0) {
    log::open(options.campaign, "worker-" + identity.worker);
    const std::filesystem::path group = ControlGroups(options.campaign).enter(identity.guardian);
    const int code = agent_main(options, identity, end, table, journal);
    leave_group(group);
    std::fflush(nullptr);
    ::_exit(code);  // without destructors: the objects inherited by fork belong to the parent
  }
  log::open(options.campaign, "guardian-" + identity.worker);
  return run_guardian(agent, options, table, journal, identity.directory);
}

}  // namespace wflow::workers

#ifdef WFLOW_THREAD_SANITIZER
// The sanitizer reads these options. Its own thread makes the fork above look like one in a process with
// threads.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif
