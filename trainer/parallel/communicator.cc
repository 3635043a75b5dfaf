// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/communicator.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExchangeTag = 17;
constexpr int kGatherTag = 18;
constexpr int kBusyTests = 200;       // tries at full speed, then
constexpr int kYieldingTests = 2000;  // tries that give the core away, then sleeping ones
constexpr auto kNap = std::chrono::microseconds(50);
constexpr auto kLongestNap = std::chrono::microseconds(1000);  // of an idle thread with a background

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Segment `rank` of `count` floats in equal parts.
std::size_t segment_begin(std::size_t count, int rank, int size) {
  return count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size);
}

}  // namespace

class Communicator::Worker {
 public:
  Worker(int& argc, char**& argv) {
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
  }

  [[noreturn]] void abort(int exit_code) {
    abort_code_.store(exit_code);
    abort_asked_.store(true);
    {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
    // MPI_Abort ends this process from the other thread; if MPI itself hangs, leave all the same.
    std::this_thread::sleep_for(std::chrono::seconds(10));
    std::_Exit(exit_code);
  }

  void reduce(std::span<float> values);
  std::vector<std::string> gather(const std::string& bytes);
  void broadcast(std::string& bytes);
  void barrier() {
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
  std::string library_;
  double exposed_seconds_ = 0;
  std::atomic<double> reduction_seconds_ = 0;

 private:
  void run(int& argc, char**& argv) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &on_node_);
    MPI_Comm_free(&node);
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
      job();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
    lock.unlock();
    if (background_) barrier();  // other ranks may still need it
    background_ = nullptr;
    MPI_Finalize();
  }

  // With the background at work meanwhile: at once after wake(), else after naps that grow while there is
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

  void abort_if_asked() {
    if (!abort_asked_.load()) return;
    MPI_Abort(MPI_COMM_WORLD, abort_code_.load());
    std::_Exit(abort_code_.load());
  }

  // Waits for all requests without holding the core.
  void complete(std::span<MPI_Request> requests) {
    int tests = 0;
    for (;;) {
      int done = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) return;
      abort_if_asked();
      if (background_) background_();
      if (++tests <= kBusyTests) continue;
      if (tests <= kYieldingTests) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kNap);
      }
    }
  }

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  Ticket posted_ = 0;
  Ticket done_ = 0;
  bool started_ = false;
  bool stopping_ = false;
  bool woken_ = false;
  std::function<bool()> background_;  // the communication thread's
  std::atomic<bool> abort_asked_ = false;
  std::atomic<int> abort_code_ = 1;
  std::vector<float> received_;
};

// Each rank owns one segment: it receives all ranks' parts of it, adds them up in a fixed tree, and sends the
// sum to all. Moves 2 (p-1)/p of the array a rank, as the best algorithms do, and the order of the additions
// does not depend on who arrives first.
void Communicator::Worker::reduce(std::span<float> values) {
  if (size_ == 1) return;
  const Clock::time_point begin = Clock::now();
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t count = values.size();
  const std::size_t own_begin = segment_begin(count, rank_, size_);
  const std::size_t own = segment_begin(count, rank_ + 1, size_) - own_begin;
  received_.resize(own * ranks);
  std::vector<MPI_Request> requests;
  requests.reserve(2 * ranks);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::size_t at = segment_begin(count, peer, size_);
    const std::size_t length = segment_begin(count, peer + 1, size_) - at;
    if (own > 0) {
      MPI_Irecv(received_.data() + own * static_cast<std::size_t>(peer), static_cast<int>(own), MPI_FLOAT,
                peer, kExchangeTag, MPI_COMM_WORLD, &requests.emplace_back(MPI_REQUEST_NULL));
    }
    if (length > 0) {
      MPI_Isend(values.data() + at, static_cast<int>(length), MPI_FLOAT, peer, kExchangeTag, MPI_COMM_WORLD,
                &requests.emplace_back(MPI_REQUEST_NULL));
    }
  }
  std::copy_n(values.data() + own_begin, own, received_.data() + own * static_cast<std::size_t>(rank_));
  complete(requests);
  for (std::size_t stride = 1; stride < ranks; stride *= 2) {
    for (std::size_t left = 0; left + stride < ranks; left += 2 * stride) {
      float* a = received_.data() + left * own;
      const float* b = received_.data() + (left + stride) * own;
      for (std::size_t i = 0; i < own; ++i) a[i] += b[i];
    }
  }
  std::copy_n(received_.data(), own, values.data() + own_begin);
  requests.clear();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::size_t at = segment_begin(count, peer, size_);
    const std::size_t length = segment_begin(count, peer + 1, size_) - at;
    if (length > 0) {
      MPI_Irecv(values.data() + at, static_cast<int>(length), MPI_FLOAT, peer, kGatherTag, MPI_COMM_WORLD,
                &requests.emplace_back(MPI_REQUEST_NULL));
    }
    if (own > 0) {
      MPI_Isend(values.data() + own_begin, static_cast<int>(own), MPI_FLOAT, peer, kGatherTag, MPI_COMM_WORLD,
                &requests.emplace_back(MPI_REQUEST_NULL));
    }
  }
  complete(requests);
  reduction_seconds_.store(reduction_seconds_.load() + seconds_since(begin));
}

std::vector<std::string> Communicator::Worker::gather(const std::string& bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  const int length = static_cast<int>(bytes.size());
  std::vector<int> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &request);
  complete({&request, 1});
  std::vector<int> places(ranks + 1, 0);
  for (std::size_t i = 0; i < ranks; ++i) places[i + 1] = places[i] + lengths[i];
  std::string all(static_cast<std::size_t>(places[ranks]), '\0');
  MPI_Iallgatherv(bytes.data(), length, MPI_BYTE, all.data(), lengths.data(), places.data(), MPI_BYTE,
                  MPI_COMM_WORLD, &request);
  complete({&request, 1});
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks; ++i) {
    parts.push_back(all.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(lengths[i])));
  }
  return parts;
}

void Communicator::Worker::broadcast(std::string& bytes) {
  auto length = static_cast<unsigned long>(bytes.size());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&length, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD, &request);
  complete({&request, 1});
  bytes.resize(length);
  constexpr unsigned long kMost = 1UL << 30;  // MPI counts are ints
  for (unsigned long at = 0; at < length; at += kMost) {
    MPI_Ibcast(bytes.data() + at, static_cast<int>(std::min(kMost, length - at)), MPI_BYTE, 0, MPI_COMM_WORLD,
               &request);
    complete({&request, 1});
  }
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
const std::string& Communicator::library() const {
  return worker_->library_;
}

Communicator::Ticket Communicator::start_all_reduce(std::span<float> values) {
  return worker_->post([this, values] { worker_->reduce(values); });
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
