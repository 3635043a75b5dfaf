// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/mpi_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr int kFirstTag = 19;                                 // of the lanes
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
  return finished();
}

void NeighbourExchange::start() {
  started_ = true;
  copy_to_self();
  if (ranks_ == MPI_COMM_NULL) return;
  for (const Incoming& message : incoming_) {
    if (message.from == rank_) continue;
    for_parts(message.bytes.size(), [&](std::size_t begin, std::size_t length) {
      expected_.push_back({message.from, length});
      MPI_Irecv(message.bytes.data() + begin, static_cast<int>(length), MPI_BYTE, message.from,
                kFirstTag + message.lane, ranks_, &requests_.emplace_back(MPI_REQUEST_NULL));
    });
  }
  for (const Outgoing& message : outgoing_) {
    if (message.to == rank_) continue;
    for_parts(message.bytes.size(), [&](std::size_t begin, std::size_t length) {
      MPI_Isend(message.bytes.data() + begin, static_cast<int>(length), MPI_BYTE, message.to,
                kFirstTag + message.lane, ranks_, &requests_.emplace_back(MPI_REQUEST_NULL));
    });
  }
}

// The first message to itself goes to the first one that it expects of itself, and so on.
void NeighbourExchange::copy_to_self() {
  auto incoming = incoming_.begin();
  const auto next = [&] {
    return std::find_if(incoming, incoming_.end(), [&](const Incoming& m) { return m.from == rank_; });
  };
  for (const Outgoing& message : outgoing_) {
    if (message.to != rank_) continue;
    incoming = next();
    const std::size_t expected_bytes = incoming == incoming_.end() ? 0 : incoming->bytes.size();
    if (incoming == incoming_.end() || expected_bytes != message.bytes.size())
      refuse_length({rank_, expected_bytes}, static_cast<std::ptrdiff_t>(message.bytes.size()));
    std::copy(message.bytes.begin(), message.bytes.end(), incoming->bytes.begin());
    ++incoming;
  }
  incoming = next();
  if (incoming != incoming_.end()) refuse_length({rank_, incoming->bytes.size()}, 0);
}

bool NeighbourExchange::finished() {
  if (requests_.empty()) return true;
  int done = 0;
  std::vector<MPI_Status> statuses(requests_.size());
  // MPICH asks the handler of MPI_COMM_WORLD, whatever communicator the requests belong to.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (code == MPI_ERR_IN_STATUS) {
    for (std::size_t i = 0; i < expected_.size(); ++i)
      if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
        refuse_length(expected_[i], -1);
  }
  if (code != MPI_SUCCESS)
    throw Error(ExitCode::system, fmt::format("MPI could not move bytes between ranks: error {}", code));
  if (done == 0) return false;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    int arrived = 0;
    MPI_Get_count(&statuses[i], MPI_BYTE, &arrived);
    if (static_cast<std::size_t>(arrived) != expected_[i].bytes) refuse_length(expected_[i], arrived);
  }
  return true;
}

// `arrived`: -1 if it was too much.
void NeighbourExchange::refuse_length(const Expected& expected, std::ptrdiff_t arrived) {
  throw Error(
      ExitCode::internal,
      fmt::format(
          "rank {} of the group sent {} where {} bytes were expected: the ranks run different networks "
          "or programs",
          expected.from, arrived < 0 ? "more" : std::to_string(arrived) + " bytes", expected.bytes));
}

}  // namespace wflow::trainer
