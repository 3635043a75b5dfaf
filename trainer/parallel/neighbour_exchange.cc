// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/neighbour_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr int kExchangeTag = 19;
constexpr std::size_t kMostPartBytes = std::size_t{1} << 30;  // MPI counts are ints

// Calls `part(begin, length)` for each part of a message of so many bytes; an empty message has one.
template <class Part>
void for_parts(std::size_t bytes, const Part& part) {
  std::size_t begin = 0;
  do {
    const std::size_t length = std::min(kMostPartBytes, bytes - begin);
    part(begin, length);
    begin += length;
  } while (begin < bytes);
}

}  // namespace

bool NeighbourExchange::poll() {
  if (!started_) start();
  poll_mail();
  poll_messages();
  if (!requests_.empty() || !leaving_.empty() || !arriving_.empty()) return false;
  if (!failure_.empty()) throw Error(ExitCode::internal, failure_);
  return true;
}

void NeighbourExchange::start() {
  started_ = true;
  copy_to_self();
  for (const Incoming& message : incoming_)
    if (message.from != rank_) receive(message);
  for (const Outgoing& message : outgoing_)
    if (message.to != rank_) send(message);
}

// The first message to itself goes to the first one that it expects of itself, and so on.
void NeighbourExchange::copy_to_self() {
  std::vector<Incoming> expected;
  for (const Incoming& message : incoming_)
    if (message.from == rank_) expected.push_back(message);
  std::size_t next = 0;
  for (const Outgoing& message : outgoing_) {
    if (message.to != rank_) continue;
    const std::span<std::byte> room = next < expected.size() ? expected[next].bytes : std::span<std::byte>();
    compare_length({rank_, room.size()}, message.bytes.size());
    if (room.size() == message.bytes.size())
      std::copy(message.bytes.begin(), message.bytes.end(), room.begin());
    ++next;
  }
  for (; next < expected.size(); ++next) compare_length({rank_, expected[next].bytes.size()}, 0);
}

void NeighbourExchange::receive(const Incoming& message) {
  if (Mailboxes::Lane* lane = mailboxes_ == nullptr ? nullptr : mailboxes_->from(message.from)) {
    arriving_.push_back({{message.from, message.bytes.size()}, {*lane, message.bytes}});
    return;
  }
  for_parts(message.bytes.size(), [&](std::size_t begin, std::size_t length) {
    expected_.push_back({message.from, length});
    MPI_Irecv(message.bytes.data() + begin, static_cast<int>(length), MPI_BYTE, message.from, kExchangeTag,
              ranks_, &requests_.emplace_back(MPI_REQUEST_NULL));
  });
}

void NeighbourExchange::send(const Outgoing& message) {
  if (Mailboxes::Lane* lane = mailboxes_ == nullptr ? nullptr : mailboxes_->to(message.to)) {
    leaving_.emplace_back(*lane, message.bytes);
    return;
  }
  for_parts(message.bytes.size(), [&](std::size_t begin, std::size_t length) {
    MPI_Isend(message.bytes.data() + begin, static_cast<int>(length), MPI_BYTE, message.to, kExchangeTag,
              ranks_, &requests_.emplace_back(MPI_REQUEST_NULL));
  });
}

void NeighbourExchange::poll_mail() {
  std::erase_if(leaving_, [](OutgoingMail& mail) { return mail.poll(); });
  std::erase_if(arriving_, [this](ExpectedMail& message) {
    if (!message.mail.poll()) return false;
    compare_length(message.expected, message.mail.length());
    return true;
  });
}

void NeighbourExchange::poll_messages() {
  if (requests_.empty()) return;
  int done = 0;
  std::vector<MPI_Status> statuses(requests_.size());
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
    throw Error(ExitCode::system, fmt::format("MPI could not move bytes between ranks: error {}", code));
  if (done == 0 && code == MPI_SUCCESS) return;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (code == MPI_ERR_IN_STATUS && statuses[i].MPI_ERROR != MPI_SUCCESS) {
      note_length(expected_[i], "more");
      continue;
    }
    int arrived = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &arrived);
    compare_length(expected_[i], static_cast<std::uint64_t>(arrived));
  }
  requests_.clear();
}

void NeighbourExchange::compare_length(const Expected& expected, std::uint64_t arrived) {
  if (arrived != expected.bytes) note_length(expected, fmt::format("{} bytes", arrived));
}

void NeighbourExchange::note_length(const Expected& expected, const std::string& arrived) {
  if (!failure_.empty()) return;
  failure_ = fmt::format(
      "rank {} of the group sent {} where {} bytes were expected: the ranks run different networks or "
      "programs",
      expected.from, arrived, expected.bytes);
}

}  // namespace wflow::trainer
