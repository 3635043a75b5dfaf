// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mpi_thread.h"

#include <sched.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "base/trainer_mpi.h"
#include "trainer/parallel/shared_slots.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBusyTests = 200;       // tests at full speed, then
constexpr int kYieldingTests = 2000;  // tests that yield the core, then tests with naps
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kLongestNap =
    std::chrono::microseconds(1000);  // for an idle thread with a background function

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// True if this process may be one of several ranks. PMI and PMIx are how ranks find each other; a step of
// several tasks under srun without either is an error that MPI_Init reports.
bool is_launched() {
  constexpr std::array<std::string_view, 4> kPrefixes = {"OMPI_COMM_WORLD_", "PMI_", "PMI2_", "PMIX_"};
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return variable.starts_with(prefix); }))
      return true;
  }
  const std::string tasks = environment_value("SLURM_STEP_NUM_TASKS");
  return !tasks.empty() && tasks != "1";
}

void rest(int tests) {
  if (tests <= kBusyTests) return;
  if (tests <= kYieldingTests) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(kNap);
  }
}

// "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2\nMPICH Release date: ...", or spaces in place of
// the tab.
std::string library_name(std::string_view version) {
  const std::string_view line = version.substr(0, version.find_first_of(",\n"));
  constexpr std::string_view kWord = " Version:";
  const std::size_t at = line.find(kWord);
  if (at == std::string_view::npos) return std::string(line);
  return std::string(line.substr(0, at)) + " " + std::string(text::trim(line.substr(at + kWord.size())));
}

}  // namespace

MpiThread::MpiThread(int& argc, char**& argv) : launched_(is_launched()) {
  if (launched_) locate_bundled_open_mpi();
  thread_ = std::thread([this, &argc, &argv] { live(argc, argv); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
}

MpiThread::~MpiThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

MpiThread::Ticket MpiThread::post(Line& line, std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back({&line, std::move(job)});
  changed_.notify_all();
  return ++line.posted;
}

void MpiThread::wait(Line& line, Ticket ticket) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return line.done >= ticket; });
  line.exposed_seconds += seconds_since(begin);
  if (line.failures.empty() || line.failures.begin()->first > ticket) return;
  const std::exception_ptr first = line.failures.begin()->second;
  line.failures.erase(line.failures.begin(), line.failures.upper_bound(ticket));
  std::rethrow_exception(first);
}

MpiThread::Ticket MpiThread::start_beside(Line& line, std::function<bool()> poll) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = ++line.started;
  line.running.insert(ticket);
  arrived_.push_back({&line, ticket, std::move(poll)});
  has_arrived_.store(true);
  changed_.notify_all();
  return ticket;
}

void MpiThread::wait_beside(Line& line, Ticket ticket) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !line.running.contains(ticket); });
  line.exposed_seconds += seconds_since(begin);
  const auto failed = line.failed.extract(ticket);
  if (!failed.empty()) std::rethrow_exception(failed.mapped());
}

void MpiThread::run_beside(Line& line, std::function<bool()> background) {
  run(line, [&] { background_ = std::move(background); });
}

void MpiThread::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void MpiThread::abort(int exit_code) {
  abort_code_.store(exit_code);
  abort_asked_.store(true);
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  // MPI_Abort ends this process from the other thread; if MPI itself hangs, exit nevertheless.
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::_Exit(exit_code);
}

void MpiThread::live(int& argc, char**& argv) {
  if (launched_) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  }
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  library_ = library_name(std::string_view(text, static_cast<std::size_t>(length)));
  std::unique_lock lock(mutex_);
  started_ = true;
  changed_.notify_all();
  for (;;) {
    wait_for_job(lock);
    abort_if_asked();
    if (jobs_.empty()) break;
    do_job(lock);
  }
  lock.unlock();
  if (background_ && launched_) barrier(MPI_COMM_WORLD);  // other ranks may still need it
  background_ = nullptr;
  for (const std::function<void()>& release : at_end_) release();
  at_end_.clear();
  if (launched_) MPI_Finalize();
}

void MpiThread::do_job(std::unique_lock<std::mutex>& lock) {
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  lock.unlock();
  advance_exchanges();
  std::exception_ptr failure;
  try {
    job.body();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  ++job.line->done;
  if (failure) job.line->failures[job.line->done] = failure;
  changed_.notify_all();
}

// Calls the background function meanwhile: at once after wake(), else after naps that grow while there is
// nothing to do. Exchanges are tested as often as pause() does.
void MpiThread::wait_for_job(std::unique_lock<std::mutex>& lock) {
  const auto ready = [this] { return !jobs_.empty() || stopping_ || abort_asked_.load(); };
  auto nap = kNap;
  int tests = 0;
  while (!ready()) {
    if (!background_ && exchanges_.empty() && arrived_.empty()) {
      changed_.wait(lock, [&] { return ready() || !arrived_.empty(); });
      continue;
    }
    woken_ = false;
    lock.unlock();
    const bool exchanging = advance_exchanges();
    const bool busy = background_ && background_();
    if (exchanging) rest(++tests);
    lock.lock();
    if (exchanging || !background_) continue;
    tests = 0;
    nap = busy ? kNap : std::min(2 * nap, kLongestNap);
    changed_.wait_for(lock, nap, [&] { return ready() || woken_ || !arrived_.empty(); });
  }
}

// Returns whether some still run.
bool MpiThread::advance_exchanges() {
  if (has_arrived_.load()) {
    const std::lock_guard lock(mutex_);
    std::move(arrived_.begin(), arrived_.end(), std::back_inserter(exchanges_));
    arrived_.clear();
    has_arrived_.store(false);
  }
  std::erase_if(exchanges_, [this](const Exchange& exchange) {
    try {
      if (!exchange.poll()) return false;
      finish(exchange, nullptr);
    } catch (...) {
      finish(exchange, std::current_exception());
    }
    return true;
  });
  return !exchanges_.empty();
}

void MpiThread::finish(const Exchange& exchange, const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (failure) exchange.line->failed[exchange.ticket] = failure;
  exchange.line->running.erase(exchange.ticket);
  changed_.notify_all();
}

void MpiThread::abort_if_asked() {
  if (!abort_asked_.load()) return;
  if (launched_) MPI_Abort(MPI_COMM_WORLD, abort_code_.load());
  std::_Exit(abort_code_.load());
}

void MpiThread::pause(int tests) {
  abort_if_asked();
  advance_exchanges();
  if (background_) background_();
  rest(tests);
}

void MpiThread::complete(std::span<MPI_Request> requests) {
  trainer::complete(requests, [this](int tests) { pause(tests); });
}

void MpiThread::barrier(MPI_Comm ranks) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(ranks, &request);
  complete({&request, 1});
}

bool built_with_mpich() {
#ifdef MPICH_NUMVERSION
  return true;
#else
  return false;
#endif
}

}  // namespace wflow::trainer
