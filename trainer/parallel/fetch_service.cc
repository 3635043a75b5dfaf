// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/fetch_service.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr int kRequestTag = 1;
constexpr int kFirstAnswerTag = 2;
constexpr int kAnswerTags = 32'000;                      // MPI promises tags up to 32,767
constexpr std::size_t kMostOfAnswer = 64 << 20;          // bytes
constexpr std::size_t kMostAnswersInFlight = 256 << 20;  // then requests wait in MPI
constexpr int kRequestsAtOnce = 16;
constexpr std::chrono::seconds kLook{1};  // between two looks at a question that waits

// A request: the tag of the answer, the file, then offset and length of each range.
constexpr std::size_t kWordsBeforeRanges = 2;

std::uint64_t answer_bytes(const std::vector<std::uint64_t>& request) {
  std::uint64_t bytes = 0;
  for (std::size_t k = kWordsBeforeRanges + 1; k < request.size(); k += 2) bytes += request[k];
  return bytes;
}

}  // namespace

// A part of a fetch: one request and one answer.
struct Question {
  int rank = 0;
  std::vector<std::uint64_t> request;
  std::vector<std::uint8_t> answer;
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Request received = MPI_REQUEST_NULL;
  bool ended = false;
  bool whole = false;
};

struct Answer {
  int rank = 0;
  std::vector<std::uint64_t> request;
  std::vector<std::uint8_t> bytes;  // empty if they could not be read
  MPI_Request sent = MPI_REQUEST_NULL;
};

// Shared by the object, the communication thread and the reading thread.
class FetchService::State {
 public:
  State(Serve serve, int ranks, std::chrono::seconds silence_limit)
      : serve_(std::move(serve)),
        silence_limit_(silence_limit),
        answers_(static_cast<std::size_t>(ranks)),
        reader_([this] { read_for_others(); }) {}

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    reader_.join();
  }

  // On the communication thread.
  void open() { MPI_Comm_dup(MPI_COMM_WORLD, &world_); }
  bool poll();

  void ask(std::span<const std::shared_ptr<Question>> questions) {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Question>& question : questions) {
      question->request[0] = static_cast<std::uint64_t>(kFirstAnswerTag + next_tag_);
      next_tag_ = (next_tag_ + 1) % kAnswerTags;
      asked_.push_back(question);
    }
    has_news_.store(true, std::memory_order_release);
  }
  void wait(const Question& question);

  std::atomic<std::uint64_t> fetched_bytes_ = 0;

 private:
  void send_questions();
  bool take_requests();
  void send_answers();
  void test_questions();
  void test_answers();
  void read_for_others();

  Serve serve_;
  std::chrono::seconds silence_limit_;
  MPI_Comm world_ = MPI_COMM_NULL;
  // Used by the communication thread only. A fetch that gives up leaves its questions here: MPI may still
  // write to them.
  std::vector<std::shared_ptr<Question>> open_;
  std::list<Answer> sending_;
  std::size_t in_flight_ = 0;  // bytes of answers that are being read or sent

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> has_news_ = false;  // in asked_ or read_
  std::vector<std::shared_ptr<Question>> asked_;
  std::vector<std::uint64_t> answers_;  // received from each rank
  std::deque<Answer> to_read_;
  std::vector<Answer> read_;
  int next_tag_ = 0;
  bool stopping_ = false;
  std::thread reader_;  // last: it uses the others
};

void FetchService::State::wait(const Question& question) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  const std::uint64_t& answers = answers_[static_cast<std::size_t>(question.rank)];
  std::uint64_t known = answers;
  Clock::duration silent{0};
  while (!question.ended) {
    const Clock::time_point begin = Clock::now();
    changed_.wait_for(lock, kLook, [&] { return question.ended; });
    silent += std::min<Clock::duration>(Clock::now() - begin, 2 * kLook);
    if (std::exchange(known, answers) != answers) silent = Clock::duration{0};
    if (question.ended || silent < silence_limit_) continue;
    throw Error(
        ExitCode::system,
        fmt::format("rank {} has answered nothing for {} s, and this rank needs the staged shards that it "
                    "holds: its process is stopped or its node hangs. Start the training again; it goes "
                    "on from its last checkpoint",
                    question.rank, silence_limit_.count()));
  }
}

bool FetchService::State::poll() {
  bool busy = take_requests();
  if (has_news_.exchange(false, std::memory_order_acquire)) {
    send_questions();
    send_answers();
    busy = true;
  }
  test_questions();
  test_answers();
  return busy || !open_.empty() || in_flight_ > 0;
}

void FetchService::State::send_questions() {
  std::vector<std::shared_ptr<Question>> asked;
  {
    const std::lock_guard lock(mutex_);
    asked.swap(asked_);
  }
  for (std::shared_ptr<Question>& question : asked) {
    MPI_Irecv(question->answer.data(), static_cast<int>(question->answer.size()), MPI_BYTE, question->rank,
              static_cast<int>(question->request[0]), world_, &question->received);
    MPI_Isend(question->request.data(), static_cast<int>(question->request.size()), MPI_UINT64_T,
              question->rank, kRequestTag, world_, &question->sent);
    open_.push_back(std::move(question));
  }
}

bool FetchService::State::take_requests() {
  bool taken = false;
  for (int k = 0; k < kRequestsAtOnce && in_flight_ < kMostAnswersInFlight; ++k) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kRequestTag, world_, &there, &status);
    if (there == 0) break;
    int words = 0;
    MPI_Get_count(&status, MPI_UINT64_T, &words);
    Answer answer;
    answer.rank = status.MPI_SOURCE;
    answer.request.resize(static_cast<std::size_t>(words));
    MPI_Recv(answer.request.data(), words, MPI_UINT64_T, answer.rank, kRequestTag, world_, MPI_STATUS_IGNORE);
    in_flight_ += answer_bytes(answer.request);
    const std::lock_guard lock(mutex_);
    to_read_.push_back(std::move(answer));
    taken = true;
  }
  if (taken) changed_.notify_all();
  return taken;
}

void FetchService::State::read_for_others() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !to_read_.empty(); });
    if (stopping_) return;
    Answer answer = std::move(to_read_.front());
    to_read_.pop_front();
    lock.unlock();
    answer.bytes.resize(answer_bytes(answer.request));
    std::span<std::uint8_t> rest = answer.bytes;
    bool whole = true;
    for (std::size_t k = kWordsBeforeRanges; whole && k < answer.request.size(); k += 2) {
      const std::size_t bytes = answer.request[k + 1];
      whole = serve_(answer.request[1], answer.request[k], rest.first(bytes));
      rest = rest.subspan(bytes);
    }
    if (!whole) answer.bytes.clear();
    lock.lock();
    read_.push_back(std::move(answer));
    has_news_.store(true, std::memory_order_release);
  }
}

void FetchService::State::send_answers() {
  std::vector<Answer> read;
  {
    const std::lock_guard lock(mutex_);
    read.swap(read_);
  }
  for (Answer& found : read) {
    Answer& answer = sending_.emplace_back(std::move(found));
    MPI_Isend(answer.bytes.data(), static_cast<int>(answer.bytes.size()), MPI_BYTE, answer.rank,
              static_cast<int>(answer.request[0]), world_, &answer.sent);
  }
}

void FetchService::State::test_questions() {
  const auto ended = [this](const std::shared_ptr<Question>& question) {
    int sent = 0;
    int received = 0;
    MPI_Status status;
    MPI_Test(&question->sent, &sent, MPI_STATUS_IGNORE);
    if (question->received != MPI_REQUEST_NULL) {
      MPI_Test(&question->received, &received, &status);
      int bytes = 0;
      if (received != 0) MPI_Get_count(&status, MPI_BYTE, &bytes);
      question->whole = received != 0 && static_cast<std::size_t>(bytes) == question->answer.size();
    }
    if (question->sent != MPI_REQUEST_NULL || question->received != MPI_REQUEST_NULL) return false;
    const std::lock_guard lock(mutex_);
    question->ended = true;
    ++answers_[static_cast<std::size_t>(question->rank)];
    return true;
  };
  if (std::erase_if(open_, ended) > 0) changed_.notify_all();
}

void FetchService::State::test_answers() {
  std::erase_if(sending_, [this](Answer& answer) {
    int sent = 0;
    MPI_Test(&answer.sent, &sent, MPI_STATUS_IGNORE);
    if (sent != 0) in_flight_ -= answer_bytes(answer.request);
    return sent != 0;
  });
}

FetchService::FetchService(Communicator& communicator, Serve serve, std::chrono::seconds silence_limit)
    : communicator_(communicator),
      state_(std::make_shared<State>(std::move(serve), communicator.size(), silence_limit)) {
  communicator.run([this] { state_->open(); });
  communicator.run_beside([state = state_] { return state->poll(); });
}

void FetchService::fetch(int rank, std::uint64_t file, std::span<const RemoteRange> ranges) {
  std::vector<std::shared_ptr<Question>> questions;
  std::size_t bytes = kMostOfAnswer;
  for (const RemoteRange& range : ranges) {
    for (std::size_t at = 0; at < range.to.size();) {
      if (bytes == kMostOfAnswer) {
        questions.push_back(std::make_shared<Question>(Question{rank, {0, file}, {}}));
        bytes = 0;
      }
      const std::size_t part = std::min(range.to.size() - at, kMostOfAnswer - bytes);
      questions.back()->request.push_back(range.offset + at);
      questions.back()->request.push_back(part);
      at += part;
      bytes += part;
    }
  }
  for (const auto& question : questions) question->answer.resize(answer_bytes(question->request));
  state_->ask(questions);
  communicator_.wake();
  for (const auto& question : questions) state_->wait(*question);
  auto next = questions.begin();
  std::size_t used = 0;
  for (const RemoteRange& range : ranges) {
    for (std::size_t at = 0; at < range.to.size();) {
      if (used == (*next)->answer.size()) {
        ++next;
        used = 0;
      }
      const Question& question = **next;
      if (!question.whole)
        throw Error(ExitCode::system, fmt::format("rank {} could not read its staged copy of a shard", rank));
      const std::size_t part = std::min(range.to.size() - at, question.answer.size() - used);
      std::memcpy(range.to.data() + at, question.answer.data() + used, part);
      at += part;
      used += part;
    }
  }
  for (const auto& question : questions) state_->fetched_bytes_ += question->answer.size();
}

std::uint64_t FetchService::fetched_bytes() const {
  return state_->fetched_bytes_.load();
}

}  // namespace wflow::trainer
