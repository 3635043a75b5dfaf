// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/communicator.h"

#include <fmt/format.h>
#include <sched.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/open_mpi.h"
#include "base/process.h"
#include "base/text.h"
#include "trainer/parallel/rank_sums.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBusyTests = 200;                        // tests at full speed, then
constexpr int kYieldingTests = 2000;                   // tests that yield the core, then tests with naps
constexpr std::uint64_t kMostMessageBytes = 1U << 30;  // per message: MPI counts are ints
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kLongestNap =
    std::chrono::microseconds(1000);  // for an idle thread with a background function

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// For tests of several nodes on one machine.
int ranks_per_group() {
  const char* text = std::getenv("WFLOW_RANKS_PER_GROUP");
  if (text == nullptr || *text == '\0') return 0;
  const auto ranks = text::to_integer(text);
  if (ranks && *ranks >= 1 && *ranks <= 1 << 20) return static_cast<int>(*ranks);
  throw Error(ExitCode::usage,
              fmt::format("WFLOW_RANKS_PER_GROUP must be a number of ranks from 1 on, not '{}'", text));
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

}  // namespace

class Communicator::Worker {
 public:
  Worker(int& argc, char**& argv) {
    if (launched_) locate_bundled_open_mpi();
    thread_ = std::thread([this, &argc, &argv] { run(argc, argv); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_; });
  }

  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Ticket post(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
    return ++posted_;
  }

  void wait(Ticket ticket) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
    exposed_seconds_ += seconds_since(begin);
    if (failures_.empty() || failures_.begin()->first > ticket) return;
    const std::exception_ptr first = failures_.begin()->second;
    failures_.erase(failures_.begin(), failures_.upper_bound(ticket));
    std::rethrow_exception(first);
  }

  [[noreturn]] void abort(int exit_code) {
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

  void reduce(std::span<float> values, const Wire& wire);
  std::vector<std::string> gather(const std::string& bytes);
  void broadcast(std::string& bytes);
  void barrier() {
    if (size_ == 1) return;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    complete({&request, 1});
  }

  void run_beside(std::function<bool()> background) {
    wait(post([&] { background_ = std::move(background); }));
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }

  int rank_ = 0;
  int size_ = 1;
  int on_node_ = 1;
  int groups_ = 1;
  RankGrid grid_;
  std::string library_;
  double exposed_seconds_ = 0;
  std::atomic<double> reduction_seconds_ = 0;

 private:
  void run(int& argc, char**& argv) {
    if (launched_) join_world(argc, argv);
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    MPI_Get_library_version(text, &length);
    library_ = text::split(std::string_view(text, static_cast<std::size_t>(length)), ',').front();
    std::unique_lock lock(mutex_);
    started_ = true;
    changed_.notify_all();
    for (;;) {
      wait_for_job(lock);
      abort_if_asked();
      if (jobs_.empty()) break;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        job();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      ++done_;
      if (failure) failures_[done_] = failure;
      changed_.notify_all();
    }
    lock.unlock();
    if (background_) barrier();  // other ranks may still need it
    background_ = nullptr;
    sums_.reset();
    if (launched_) MPI_Finalize();
  }

  void join_world(int& argc, char**& argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &on_node_);
    MPI_Comm_free(&node);
    lay_out();
  }

  // Calls the background function meanwhile: at once after wake(), else after naps that grow while there is
  // nothing to do.
  void wait_for_job(std::unique_lock<std::mutex>& lock) {
    const auto ready = [this] { return !jobs_.empty() || stopping_ || abort_asked_.load(); };
    if (!background_) {
      changed_.wait(lock, ready);
      return;
    }
    auto nap = kNap;
    while (!ready()) {
      woken_ = false;
      lock.unlock();
      const bool busy = background_();
      lock.lock();
      nap = busy ? kNap : std::min(2 * nap, kLongestNap);
      changed_.wait_for(lock, nap, [&] { return ready() || woken_; });
    }
  }

  void lay_out() {
    grid_ = RankGrid::of(size_);
    MPI_Comm data = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, grid_.space_of(rank_), rank_, &data);
    sums_ = std::make_unique<RankSums>(data, ranks_per_group_, [this](int tests) { pause(tests); });
    groups_ = sums_->groups();
    MPI_Comm_free(&data);
  }

  void abort_if_asked() {
    if (!abort_asked_.load()) return;
    if (launched_) MPI_Abort(MPI_COMM_WORLD, abort_code_.load());
    std::_Exit(abort_code_.load());
  }

  // Called between two tests in every wait of this thread for other ranks; yields the core.
  void pause(int tests) {
    abort_if_asked();
    if (background_) background_();
    if (tests <= kBusyTests) return;
    if (tests <= kYieldingTests) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }

  void complete(std::span<MPI_Request> requests) {
    trainer::complete(requests, [this](int tests) { pause(tests); });
  }
  void send_from(int root, std::string& bytes);

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  Ticket posted_ = 0;
  Ticket done_ = 0;
  const int ranks_per_group_ = ranks_per_group();
  const bool launched_ = is_launched();
  bool started_ = false;
  bool stopping_ = false;
  bool woken_ = false;
  std::function<bool()> background_;  // used by the communication thread only
  std::atomic<bool> abort_asked_ = false;
  std::atomic<int> abort_code_ = 1;
  std::unique_ptr<RankSums> sums_;
  std::map<Ticket, std::exception_ptr> failures_;
};

void Communicator::Worker::reduce(std::span<float> values, const Wire& wire) {
  if (grid_.data == 1) return;
  const Clock::time_point begin = Clock::now();
  if (wire.half && wire.position < wire.exact) {
    const std::size_t whole = std::min(values.size(), wire.exact - wire.position);
    sums_->sum(values.first(whole), {});
    sums_->sum(values.subspan(whole), wire.at(whole));
  } else {
    sums_->sum(values, wire);
  }
  reduction_seconds_.store(reduction_seconds_.load() + seconds_since(begin));
}

std::vector<std::string> Communicator::Worker::gather(const std::string& bytes) {
  if (size_ == 1) return {bytes};
  const std::uint64_t length = bytes.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD, &request);
  complete({&request, 1});
  std::vector<std::string> parts;
  for (const std::uint64_t part : lengths) parts.emplace_back(part, '\0');
  parts[static_cast<std::size_t>(rank_)] = bytes;
  if (std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}) > kMostMessageBytes) {
    for (int rank = 0; rank < size_; ++rank) send_from(rank, parts[static_cast<std::size_t>(rank)]);
    return parts;
  }
  std::vector<int> counts;
  std::vector<int> places;
  int end = 0;
  for (const std::uint64_t part : lengths) {
    counts.push_back(static_cast<int>(part));
    places.push_back(std::exchange(end, end + counts.back()));
  }
  std::string all(static_cast<std::size_t>(end), '\0');
  MPI_Iallgatherv(bytes.data(), static_cast<int>(length), MPI_BYTE, all.data(), counts.data(), places.data(),
                  MPI_BYTE, MPI_COMM_WORLD, &request);
  complete({&request, 1});
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i] = all.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(counts[i]));
  return parts;
}

// `bytes` must have the right length on all ranks.
void Communicator::Worker::send_from(int root, std::string& bytes) {
  for (std::uint64_t at = 0; at < bytes.size(); at += kMostMessageBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(bytes.data() + at,
               static_cast<int>(std::min<std::uint64_t>(kMostMessageBytes, bytes.size() - at)), MPI_BYTE,
               root, MPI_COMM_WORLD, &request);
    complete({&request, 1});
  }
}

void Communicator::Worker::broadcast(std::string& bytes) {
  if (size_ == 1) return;
  std::uint64_t length = bytes.size();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&length, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD, &request);
  complete({&request, 1});
  bytes.resize(length);
  send_from(0, bytes);
}

Communicator::Communicator(int& argc, char**& argv) : worker_(std::make_unique<Worker>(argc, argv)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const {
  return worker_->rank_;
}
int Communicator::size() const {
  return worker_->size_;
}
int Communicator::ranks_on_node() const {
  return worker_->on_node_;
}
const RankGrid& Communicator::grid() const {
  return worker_->grid_;
}
int Communicator::groups() const {
  return worker_->groups_;
}
const std::string& Communicator::library() const {
  return worker_->library_;
}

Communicator::Ticket Communicator::start_all_reduce(std::span<float> values, const Wire& wire) {
  return worker_->post([this, values, wire] { worker_->reduce(values, wire); });
}

void Communicator::wait(Ticket ticket) {
  worker_->wait(ticket);
}

std::vector<std::string> Communicator::all_gather(const std::string& bytes) {
  std::vector<std::string> parts;
  worker_->wait(worker_->post([&] { parts = worker_->gather(bytes); }));
  return parts;
}

void Communicator::broadcast(std::string& bytes) {
  worker_->wait(worker_->post([&] { worker_->broadcast(bytes); }));
}

void Communicator::barrier() {
  worker_->wait(worker_->post([this] { worker_->barrier(); }));
}

void Communicator::run(std::function<void()> job) {
  worker_->wait(worker_->post(std::move(job)));
}

void Communicator::run_beside(std::function<bool()> background) {
  worker_->run_beside(std::move(background));
}

void Communicator::wake() {
  worker_->wake();
}

void Communicator::abort(int exit_code) {
  worker_->abort(exit_code);
}

double Communicator::exposed_seconds() const {
  return worker_->exposed_seconds_;
}
double Communicator::reduction_seconds() const {
  return worker_->reduction_seconds_.load();
}

}  // namespace wflow::trainer
