// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "trainer/parallel/mpi_thread.h"
#include "trainer/parallel/rank_sums.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostMessageBytes = 1U << 30;  // per message: MPI counts are ints

// For tests of several nodes on one machine.
int ranks_per_group() {
  const char* text = std::getenv("WFLOW_RANKS_PER_GROUP");
  if (text == nullptr || *text == '\0') return 0;
  const auto ranks = text::to_integer(text);
  if (ranks && *ranks >= 1 && *ranks <= 1 << 20) return static_cast<int>(*ranks);
  throw Error(ExitCode::usage,
              fmt::format("WFLOW_RANKS_PER_GROUP must be a number of ranks from 1 on, not '{}'", text));
}

}  // namespace

// The communicators and the shared memory of a group, and its operations. All functions are for the thread,
// as jobs.
class Communicator::Group {
 public:
  // The ranks of `ranks`, which is MPI_COMM_NULL for a process without MPI. MPI_COMM_WORLD is not freed.
  Group(MpiThread& thread, MPI_Comm ranks, int ranks_per_group);
  // For without_others(). A type of its own, because MPICH's MPI_Comm is an int.
  struct Place {
    int rank = 0;
    int size = 1;
  };
  Group(MpiThread& thread, const Place& place)
      : ranks_per_group_(0),
        rank_(place.rank),
        size_(place.size),
        alone_(true),
        thread_(thread),
        ranks_(MPI_COMM_NULL) {}
  // Collective, like all that creates or frees what ranks share.
  void release();
  MPI_Comm split(int colour, int key);

  // `parts`: for a reduce-scatter.
  void reduce(std::span<float> values, const Wire& wire, const OwnedParts* parts = nullptr);
  void reduce_sparse(std::span<float> values, const ValueParts& parts, const Wire& wire);
  void gather(std::span<float> values, const OwnedParts& parts);
  std::vector<std::string> gather(const std::string& bytes);
  void broadcast(std::string& bytes);
  void add_up(std::span<double> values);
  void barrier() {
    if (size_ > 1 && !alone_) thread_.barrier(ranks_);
  }
  RankSums& sums();
  std::function<bool()> exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) const {
    if (alone_) return echo(std::move(outgoing), std::move(incoming));
    const auto messages =
        std::make_shared<NeighbourExchange>(messages_, rank_, std::move(outgoing), std::move(incoming));
    return [messages] { return messages->poll(); };
  }

  // The others send what is sent to them.
  static std::function<bool()> echo(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) {
    return [outgoing = std::move(outgoing), incoming = std::move(incoming)] {
      for (const auto& [from, bytes, lane] : incoming) {
        const auto same = std::ranges::find_if(outgoing, [&, from = from, lane = lane](const Outgoing& sent) {
          return sent.to == from && sent.lane == lane;
        });
        const std::size_t size = same == outgoing.end() ? 0 : std::min(same->bytes.size(), bytes.size());
        if (size > 0) std::ranges::copy(same->bytes.first(size), bytes.begin());
        std::ranges::fill(bytes.subspan(size), std::byte{});
      }
      return true;
    };
  }

  const int ranks_per_group_;
  int rank_ = 0;
  int size_ = 1;
  int on_node_ = 1;
  const bool alone_ = false;
  MpiThread::Line line_;
  std::atomic<double> reduction_seconds_ = 0;
  std::atomic<std::uint64_t> summed_values_ = 0;

 private:
  void send_from(int root, std::string& bytes);
  void count_seconds(Clock::time_point begin);

  MpiThread& thread_;
  MPI_Comm ranks_;
  MPI_Comm messages_ = MPI_COMM_NULL;  // of exchanges: returns errors
  std::unique_ptr<RankSums> sums_;
  std::vector<float> compact_;
};

Communicator::Group::Group(MpiThread& thread, MPI_Comm ranks, int ranks_per_group)
    : ranks_per_group_(ranks_per_group), thread_(thread), ranks_(ranks) {
  if (ranks_ == MPI_COMM_NULL) return;
  MPI_Comm_rank(ranks_, &rank_);
  MPI_Comm_size(ranks_, &size_);
  if (size_ == 1) return;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &on_node_);
  MPI_Comm_free(&node);
  MPI_Comm_dup(ranks_, &messages_);
  MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN);
}

void Communicator::Group::release() {
  sums_.reset();
  if (messages_ != MPI_COMM_NULL) MPI_Comm_free(&messages_);
  if (ranks_ != MPI_COMM_NULL && ranks_ != MPI_COMM_WORLD) MPI_Comm_free(&ranks_);
}

// A negative colour gives MPI_COMM_NULL.
MPI_Comm Communicator::Group::split(int colour, int key) {
  if (ranks_ == MPI_COMM_NULL) return MPI_COMM_NULL;
  barrier();  // waits with pause(), which MPI_Comm_split does not
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(ranks_, colour < 0 ? MPI_UNDEFINED : colour, key, &part);
  return part;
}

// The first sum of a group makes the memory that its ranks share: groups without sums of floats need none.
RankSums& Communicator::Group::sums() {
  if (!sums_) {
    barrier();
    sums_ = std::make_unique<RankSums>(ranks_, ranks_per_group_, [this](int tests) { thread_.pause(tests); });
  }
  return *sums_;
}

void Communicator::Group::reduce(std::span<float> values, const Wire& wire, const OwnedParts* parts) {
  if (size_ == 1 || alone_) return;
  const Clock::time_point begin = Clock::now();
  if (wire.half && wire.position < wire.exact) {
    const std::size_t whole = std::min(values.size(), wire.exact - wire.position);
    sums().sum(values.first(whole), {}, {parts, 0});
    sums().sum(values.subspan(whole), wire.at(whole), {parts, whole});
  } else {
    sums().sum(values, wire, {parts, 0});
  }
  summed_values_ += values.size();
  count_seconds(begin);
}

void Communicator::Group::reduce_sparse(std::span<float> values, const ValueParts& parts, const Wire& wire) {
  if (size_ == 1 || alone_) return;
  std::vector<float> used;
  for (const auto& [begin, end] : parts) {
    const std::span<const float> part = values.subspan(begin, end - begin);
    used.push_back(std::ranges::any_of(part, [](float value) { return value != 0; }) ? 1.0F : 0.0F);
  }
  reduce(used, {});
  // Calls `visit` for the values that are sent, in order.
  const auto for_each_sent = [&](const auto& visit) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (used[i] != 0) continue;
      visit(values.subspan(at, parts[i].first - at));
      at = parts[i].second;
    }
    visit(values.subspan(at));
  };
  compact_.clear();
  for_each_sent([&](std::span<float> sent) { compact_.insert(compact_.end(), sent.begin(), sent.end()); });
  reduce(compact_, wire);
  auto from = compact_.cbegin();
  for_each_sent([&](std::span<float> sent) {
    std::copy_n(from, sent.size(), sent.begin());
    from += static_cast<std::ptrdiff_t>(sent.size());
  });
  // A sum of zeros is +0, whatever their signs.
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (used[i] == 0) std::fill(values.begin() + parts[i].first, values.begin() + parts[i].second, 0.0F);
  }
}

void Communicator::Group::gather(std::span<float> values, const OwnedParts& parts) {
  if (size_ == 1 || alone_) return;
  const Clock::time_point begin = Clock::now();
  sums().gather(values, parts);
  count_seconds(begin);
}

void Communicator::Group::count_seconds(Clock::time_point begin) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  reduction_seconds_.store(reduction_seconds_.load() + seconds);
}

std::vector<std::string> Communicator::Group::gather(const std::string& bytes) {
  if (size_ == 1 || alone_) return std::vector<std::string>(static_cast<std::size_t>(size_), bytes);
  const std::uint64_t length = bytes.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, ranks_, &request);
  thread_.complete({&request, 1});
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
                  MPI_BYTE, ranks_, &request);
  thread_.complete({&request, 1});
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i] = all.substr(static_cast<std::size_t>(places[i]), static_cast<std::size_t>(counts[i]));
  return parts;
}

// `bytes` must have the right length on all ranks.
void Communicator::Group::send_from(int root, std::string& bytes) {
  for (std::uint64_t at = 0; at < bytes.size(); at += kMostMessageBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(bytes.data() + at,
               static_cast<int>(std::min<std::uint64_t>(kMostMessageBytes, bytes.size() - at)), MPI_BYTE,
               root, ranks_, &request);
    thread_.complete({&request, 1});
  }
}

void Communicator::Group::broadcast(std::string& bytes) {
  if (size_ == 1 || alone_) return;
  std::uint64_t length = bytes.size();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&length, 1, MPI_UINT64_T, 0, ranks_, &request);
  thread_.complete({&request, 1});
  bytes.resize(length);
  send_from(0, bytes);
}

void Communicator::Group::add_up(std::span<double> values) {
  if (size_ == 1 || alone_) return;
  constexpr std::size_t kMost = kMostMessageBytes / sizeof(double);
  for (std::size_t at = 0; at < values.size(); at += kMost) {
    const std::span<double> piece = values.subspan(at, std::min(kMost, values.size() - at));
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallreduce(MPI_IN_PLACE, piece.data(), static_cast<int>(piece.size()), MPI_DOUBLE, MPI_SUM, ranks_,
                   &request);
    thread_.complete({&request, 1});
  }
}

Communicator::Communicator(int& argc, char**& argv) {
  const int ranks_per_group = trainer::ranks_per_group();
  thread_ = std::make_shared<MpiThread>(argc, argv);
  MpiThread::Line line;
  thread_->run(line, [&] {
    group_ = std::make_shared<Group>(*thread_, thread_->launched() ? MPI_COMM_WORLD : MPI_COMM_NULL,
                                     ranks_per_group);
    thread_->at_end([group = group_] { group->release(); });
    if (group_->size_ > 1) group_->sums();
  });
}

Communicator::Communicator(std::shared_ptr<Group> group, std::shared_ptr<MpiThread> thread)
    : group_(std::move(group)), thread_(std::move(thread)) {}

Communicator::~Communicator() = default;

// A negative colour gives null.
std::unique_ptr<Communicator> Communicator::split(int colour, int key) {
  std::shared_ptr<Group> part;
  run([&] {
    const MPI_Comm ranks = group_->split(colour, key);
    if (colour < 0) return;
    part = std::make_shared<Group>(*thread_, ranks, group_->ranks_per_group_);
    thread_->at_end([part] { part->release(); });
  });
  if (!part) return nullptr;
  return std::unique_ptr<Communicator>(new Communicator(std::move(part), thread_));
}

std::unique_ptr<Communicator> Communicator::without_others(int rank, int size) const {
  return std::unique_ptr<Communicator>(
      new Communicator(std::make_shared<Group>(*thread_, Group::Place{rank, size}), thread_));
}

std::unique_ptr<Communicator> Communicator::group(std::span<const int> ranks) {
  for (const int member : ranks) WFLOW_CHECK(member >= 0 && member < size());
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  return split(own == ranks.end() ? -1 : 0, static_cast<int>(own - ranks.begin()));
}

int Communicator::rank() const {
  return group_->rank_;
}
int Communicator::size() const {
  return group_->size_;
}
int Communicator::ranks_on_node() const {
  return group_->on_node_;
}
int Communicator::groups() {
  int groups = 1;
  if (size() > 1) run([&] { groups = group_->sums().groups(); });
  return groups;
}
const std::string& Communicator::library() const {
  return thread_->library();
}

Communicator::Ticket Communicator::start_all_reduce(std::span<float> values, const Wire& wire) {
  return thread_->post(group_->line_, [group = group_.get(), values, wire] { group->reduce(values, wire); });
}

Communicator::Ticket Communicator::start_sparse_all_reduce(std::span<float> values, ValueParts parts,
                                                           const Wire& wire) {
  return thread_->post(group_->line_, [group = group_.get(), values, parts = std::move(parts), wire] {
    group->reduce_sparse(values, parts, wire);
  });
}

Communicator::Ticket Communicator::start_reduce_scatter(std::span<float> values, OwnedParts parts,
                                                        const Wire& wire, std::function<void()> done) {
  return thread_->post(
      group_->line_, [group = group_.get(), values, parts = std::move(parts), wire, done = std::move(done)] {
        group->reduce(values, wire, &parts);
        if (done) done();
      });
}

Communicator::Ticket Communicator::start_gather(std::span<float> values, OwnedParts parts) {
  return thread_->post(group_->line_, [group = group_.get(), values, parts = std::move(parts)] {
    group->gather(values, parts);
  });
}

void Communicator::wait(Ticket ticket) {
  thread_->wait(group_->line_, ticket);
}

Communicator::ExchangeTicket Communicator::start_exchange(std::vector<Outgoing> outgoing,
                                                          std::vector<Incoming> incoming) {
  const auto known = [this](int rank) { return rank >= 0 && rank < size(); };
  for (const Outgoing& message : outgoing) WFLOW_CHECK(known(message.to));
  for (const Incoming& message : incoming) WFLOW_CHECK(known(message.from));
  return ExchangeTicket{
      thread_->start_beside(group_->line_, group_->exchange(std::move(outgoing), std::move(incoming)))};
}

void Communicator::wait(ExchangeTicket ticket) {
  thread_->wait_beside(group_->line_, static_cast<MpiThread::Ticket>(ticket));
}

void Communicator::sum_by_rank(std::span<double> values) {
  if (!group_->alone_) RankGroup::sum_by_rank(values);
}

void Communicator::add_up(std::span<double> values) {
  run([&] { group_->add_up(values); });
}

std::vector<std::string> Communicator::all_gather(const std::string& bytes) {
  std::vector<std::string> parts;
  run([&] { parts = group_->gather(bytes); });
  return parts;
}

void Communicator::broadcast(std::string& bytes) {
  run([&] { group_->broadcast(bytes); });
}

void Communicator::barrier() {
  run([this] { group_->barrier(); });
}

void Communicator::run(std::function<void()> job) {
  thread_->run(group_->line_, std::move(job));
}

void Communicator::run_beside(std::function<bool()> background) {
  thread_->run_beside(group_->line_, std::move(background));
}

void Communicator::wake() {
  thread_->wake();
}

void Communicator::abort(int exit_code) {
  thread_->abort(exit_code);
}

double Communicator::exposed_seconds() const {
  return group_->line_.exposed_seconds;
}
double Communicator::reduction_seconds() const {
  return group_->reduction_seconds_.load();
}

std::uint64_t Communicator::summed_values() const {
  return group_->summed_values_.load();
}

void RankGroup::sum_by_rank(std::span<double> values) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<double> all = values_of_ranks<double>(*this, values);
  for (std::size_t stride = 1; stride < ranks; stride *= 2) {
    for (std::size_t left = 0; left + stride < ranks; left += 2 * stride) {
      for (std::size_t i = 0; i < values.size(); ++i)
        all[left * values.size() + i] += all[(left + stride) * values.size() + i];
    }
  }
  std::copy_n(all.begin(), values.size(), values.begin());
}

}  // namespace wflow::trainer
