// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/rank_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace wflow::trainer {
namespace {

constexpr int kSpreadTag = 17;
constexpr int kSumTag = 18;
constexpr int kGatherTag = 19;
// Large enough for a bucket of gradients in one piece: each piece costs two barriers, and on a full node a
// barrier waits until the scheduler has run every rank's communication thread.
constexpr std::size_t kSlotFloats = 3U << 19;
constexpr std::size_t kPieceFloats = 1U << 24;                   // without slots; received at a time
static_assert(kPieceFloats <= std::numeric_limits<int>::max());  // MPI's counts

std::size_t part_begin(std::size_t count, int part, int parts) {
  return count * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
}

// Adds all terms into the first, in a fixed tree; overwrites the others.
void tree_sum(std::span<float* const> terms, std::size_t count) {
  constexpr std::size_t kBlock = 2048;  // stays in the L1 cache
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t length = std::min(kBlock, count - at);
    for (std::size_t stride = 1; stride < terms.size(); stride *= 2) {
      for (std::size_t left = 0; left + stride < terms.size(); left += 2 * stride) {
        float* a = terms[left] + at;
        const float* b = terms[left + stride] + at;
        for (std::size_t i = 0; i < length; ++i) a[i] += b[i];
      }
    }
  }
}

template <typename Word>
MPI_Datatype mpi_type() {
  return std::is_same_v<Word, float> ? MPI_FLOAT : MPI_UINT16_T;
}

// bfloat16 for messages between nodes. A value is rounded to one of its two neighbours, the nearer one more
// often, so that the expected value is the value itself and small gradients are not lost (Gupta et al. 2015,
// "Deep learning with limited numerical precision"). The choice depends only on seed and position, without
// state.
constexpr std::uint32_t kInfinityBits = 0x7f800000U;
constexpr std::uint32_t kQuietNan = 0x40U;

// MurmurHash3's finaliser in 32 bits, which vector units multiply.
constexpr std::uint32_t mix32(std::uint32_t z) {
  z = (z ^ (z >> 16)) * 0x85ebca6bU;
  z = (z ^ (z >> 13)) * 0xc2b2ae35U;
  return z ^ (z >> 16);
}

constexpr std::uint32_t half_bits(std::uint32_t bits, std::uint32_t random) {
  const bool nan = (bits & ~0x80000000U) > kInfinityBits;
  const bool finite = (bits & kInfinityBits) != kInfinityBits;
  return ((bits + (finite ? random & 0xffffU : 0U)) >> 16) | (nan ? kQuietNan : 0U);
}

// Rounds values `first`, `first` + 1, ... of an array. Infinities and NaNs stay as they are.
void round_to_half(std::span<const float> values, std::uint64_t seed, std::uint64_t first,
                   std::uint16_t* out) {
  constexpr std::uint64_t kBlock = 1U << 20;  // positions per key: positions have 64 bits, the hash 32
  for (std::uint64_t at = 0; at < values.size();) {
    const std::uint64_t position = first + at;
    const auto key = static_cast<std::uint32_t>(hash64(seed, position / kBlock));
    const std::uint64_t end = std::min<std::uint64_t>(values.size(), at + kBlock - position % kBlock);
    auto low = static_cast<std::uint32_t>(position % kBlock);
    for (; at < end; ++at, ++low)
      out[at] = static_cast<std::uint16_t>(
          half_bits(std::bit_cast<std::uint32_t>(values[at]), mix32(low * 0x9e3779b9U ^ key)));
  }
}

void widen_half(std::span<const std::uint16_t> values, float* out) {
  for (std::size_t i = 0; i < values.size(); ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(values[i]) << 16);
}

}  // namespace

RankSums::RankSums(MPI_Comm ranks, int ranks_per_group, Pause pause) : pause_(std::move(pause)) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  int in_node = 0;
  MPI_Comm_rank(node, &in_node);
  MPI_Comm_split(node, ranks_per_group > 0 ? in_node / ranks_per_group : 0, in_node, &group_);
  MPI_Comm_free(&node);
  MPI_Comm_rank(group_, &in_group_);
  MPI_Comm_size(group_, &members_);
  if (members_ > 1) shared_ = std::make_unique<SharedSlots>(group_, kSlotFloats, pause_);
  if (shared_ && !shared_->available()) {
    // Slower: each rank is a group of its own.
    shared_.reset();
    in_group_ = 0;
    members_ = 1;
  }
  const int leads = in_group_ == 0 ? 1 : 0;
  MPI_Allreduce(&leads, &groups_, 1, MPI_INT, MPI_SUM, ranks);
  MPI_Comm_split(ranks, leads == 1 ? 0 : MPI_UNDEFINED, rank, &leaders_);
  if (leads == 1) MPI_Comm_rank(leaders_, &own_group_);
  if (members_ > 1) MPI_Bcast(&own_group_, 1, MPI_INT, 0, group_);
  int size = 0;
  MPI_Comm_size(ranks, &size);
  rank_ = rank;
  group_of_.resize(static_cast<std::size_t>(size));
  MPI_Allgather(&own_group_, 1, MPI_INT, group_of_.data(), 1, MPI_INT, ranks);
  // Nodes may have slots of different sizes.
  const std::uint64_t own = shared_ ? shared_->slot_floats() : kPieceFloats;
  MPI_Allreduce(&own, &piece_, 1, MPI_UINT64_T, MPI_MIN, ranks);
}

RankSums::~RankSums() {
  shared_.reset();
  if (leaders_ != MPI_COMM_NULL) MPI_Comm_free(&leaders_);
  MPI_Comm_free(&group_);
}

RankSums::Part RankSums::part_of(std::size_t count, int part, int parts) {
  const std::size_t begin = part_begin(count, part, parts);
  return {begin, part_begin(count, part + 1, parts) - begin};
}

// The values of a piece of `count` whose owner is wanted; adjacent ones are one part.
template <class IsWanted>
std::vector<RankSums::Part> RankSums::owned_by(const Owners& owners, std::size_t count, Unowned unowned,
                                               IsWanted is_wanted) {
  if (owners.parts == nullptr) return {{0, count}};
  std::vector<Part> found;
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (!found.empty() && found.back().begin + found.back().length == begin) {
      found.back().length += end - begin;
    } else {
      found.push_back({begin, end - begin});
    }
  };
  std::size_t at = 0;  // positions before it are done
  auto part = std::ranges::upper_bound(*owners.parts, owners.from, std::ranges::less(), &OwnedPart::end);
  for (; part != owners.parts->end() && part->begin < owners.from + count; ++part) {
    const std::size_t begin = std::max(part->begin, owners.from) - owners.from;
    const std::size_t end = std::min(part->end - owners.from, count);
    if (unowned == Unowned::included) add(at, begin);
    if (is_wanted(part->rank)) add(begin, end);
    at = end;
  }
  if (unowned == Unowned::included) add(at, count);
  return found;
}

std::vector<RankSums::Part> RankSums::of_group(const Owners& owners, std::size_t count, int group,
                                               Unowned unowned) const {
  return owned_by(owners, count, unowned,
                  [&](int rank) { return group_of_[static_cast<std::size_t>(rank)] == group; });
}

void RankSums::sum(std::span<float> values, const Wire& wire, const Owners& owners) {
  if (members_ == 1 && groups_ == 1) return;
  // At least one piece, also without values: the other ranks may have some.
  std::size_t at = 0;
  do {
    const std::span<float> piece = values.subspan(at, std::min<std::size_t>(piece_, values.size() - at));
    if (shared_) {
      sum_shared(piece, wire.at(at), owners.at(at), at == 0 ? &values : nullptr);
    } else {
      if (at == 0) require_equal(lengths_of_groups({values.size(), values.size()}));
      sum_between_groups(piece, wire.at(at), owners.at(at));
    }
    at += piece.size();
  } while (at < values.size());
}

// `whole`: the array that this is the first piece of, if the ranks' lengths must still be compared.
void RankSums::sum_shared(std::span<float> piece, const Wire& wire, const Owners& owners,
                          const std::span<float>* whole) {
  const std::size_t turn = std::exchange(turn_, (turn_ + 1) % SharedSlots::kTurns);
  float* own_slot = shared_->slot(turn, in_group_);
  float* result = shared_->slot(turn, 0);
  const std::size_t begin = part_begin(piece.size(), in_group_, members_);
  const std::size_t end = part_begin(piece.size(), in_group_ + 1, members_);
  // This rank reads its own part in place.
  std::copy_n(piece.data(), begin, own_slot);
  std::copy_n(piece.data() + end, piece.size() - end, own_slot + end);
  if (whole != nullptr) shared_->number(turn, in_group_) = whole->size();
  shared_->barrier();
  if (whole != nullptr && in_group_ == 0) shared_->verdict(turn) = lengths_of_groups(lengths_in_group(turn));
  std::vector<float*> terms;
  for (int rank = 0; rank < members_; ++rank)
    terms.push_back(rank == in_group_ ? piece.data() + begin : shared_->slot(turn, rank) + begin);
  tree_sum(terms, end - begin);
  if (in_group_ == 0) std::copy_n(piece.data(), end, result);
  shared_->barrier();
  if (whole != nullptr) require_equal(shared_->verdict(turn));
  if (groups_ > 1) {
    if (in_group_ == 0) sum_between_groups({result, piece.size()}, wire, owners);
    shared_->barrier();
  }
  for (const Part& part :
       owned_by(owners, piece.size(), Unowned::included, [this](int rank) { return rank == rank_; }))
    std::copy_n(result + part.begin, part.length, piece.data() + part.begin);
}

void RankSums::gather(std::span<float> values, const OwnedParts& parts) {
  if (members_ == 1 && groups_ == 1) return;
  for (std::size_t at = 0; at < values.size(); at += piece_) {
    const std::span<float> piece = values.subspan(at, std::min<std::size_t>(piece_, values.size() - at));
    if (shared_) {
      gather_shared(piece, {&parts, at});
    } else {
      gather_between_groups(piece, {&parts, at});
    }
  }
}

void RankSums::gather_shared(std::span<float> piece, const Owners& owners) {
  const std::size_t turn = std::exchange(turn_, (turn_ + 1) % SharedSlots::kTurns);
  float* all = shared_->slot(turn, 0);
  const auto own = [this](int rank) { return rank == rank_; };
  const auto of_others = [this](int rank) { return rank != rank_; };
  for (const Part& part : owned_by(owners, piece.size(), Unowned::left_out, own))
    std::copy_n(piece.data() + part.begin, part.length, all + part.begin);
  shared_->barrier();
  if (groups_ > 1) {
    if (in_group_ == 0) gather_between_groups({all, piece.size()}, owners);
    shared_->barrier();
  }
  for (const Part& part : owned_by(owners, piece.size(), Unowned::left_out, of_others))
    std::copy_n(all + part.begin, part.length, piece.data() + part.begin);
}

// For leaders: sends the parts of this group's ranks to the other groups and receives theirs.
void RankSums::gather_between_groups(std::span<float> values, const Owners& owners) {
  std::vector<MPI_Request> requests;
  const std::vector<Part> own = of_group(owners, values.size(), own_group_, Unowned::left_out);
  for (int group = 0; group < groups_; ++group) {
    if (group == own_group_) continue;
    for (const Part& part : of_group(owners, values.size(), group, Unowned::left_out))
      MPI_Irecv(values.data() + part.begin, static_cast<int>(part.length), MPI_FLOAT, group, kGatherTag,
                leaders_, &requests.emplace_back(MPI_REQUEST_NULL));
    for (const Part& part : own)
      MPI_Isend(values.data() + part.begin, static_cast<int>(part.length), MPI_FLOAT, group, kGatherTag,
                leaders_, &requests.emplace_back(MPI_REQUEST_NULL));
  }
  complete(requests, pause_);
}

SharedSlots::Lengths RankSums::lengths_in_group(std::size_t turn) const {
  SharedSlots::Lengths lengths = {shared_->number(turn, 0), shared_->number(turn, 0)};
  for (int rank = 1; rank < members_; ++rank) {
    lengths.least = std::min(lengths.least, shared_->number(turn, rank));
    lengths.most = std::max(lengths.most, shared_->number(turn, rank));
  }
  return lengths;
}

// The lengths over all groups; for leaders.
SharedSlots::Lengths RankSums::lengths_of_groups(SharedSlots::Lengths own) {
  if (groups_ == 1) return own;
  const std::array<std::uint64_t, 2> mine = {own.most, ~own.least};  // the least one is the complement's most
  std::array<std::uint64_t, 2> most = {};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(mine.data(), most.data(), 2, MPI_UINT64_T, MPI_MAX, leaders_, &request);
  complete({&request, 1}, pause_);
  return {~most[1], most[0]};
}

void RankSums::require_equal(SharedSlots::Lengths lengths) {
  if (lengths.least == lengths.most) return;
  throw Error(ExitCode::internal, fmt::format("the ranks want to sum arrays of different lengths, from {} to "
                                              "{} numbers: they run different networks or programs",
                                              lengths.least, lengths.most));
}

// Each leader owns one part: it receives all groups' values of it, adds them up, and sends the sum to all.
// Moves 2 (p-1)/p of the array, as the best algorithms do. The order of the additions does not depend on the
// order of arrival.
void RankSums::sum_between_groups(std::span<float> values, const Wire& wire, const Owners& owners) {
  if (groups_ == 1) return;
  const auto [begin, own] = part_of(values.size(), own_group_, groups_);
  const auto groups = static_cast<std::size_t>(groups_);
  const std::size_t own_place = own * static_cast<std::size_t>(own_group_);
  received_.resize(own * groups);
  if (wire.half) {
    half_sent_.resize(values.size());
    half_received_.resize(own * groups);
    const std::uint64_t seed = hash64(wire.seed, static_cast<std::uint64_t>(own_group_));
    round_to_half(values, seed, wire.position, half_sent_.data());
    scatter(half_sent_.data(), half_received_.data(), values.size());
    // Round this group's values too: otherwise the bits would depend on how the array is cut.
    std::copy_n(half_sent_.data() + begin, own, half_received_.data() + own_place);
    widen_half(half_received_, received_.data());
  } else {
    scatter(values.data(), received_.data(), values.size());
    std::copy_n(values.data() + begin, own, received_.data() + own_place);
  }
  std::vector<float*> terms;
  for (std::size_t group = 0; group < groups; ++group) terms.push_back(received_.data() + own * group);
  tree_sum(terms, own);
  if (wire.half) {
    round_to_half({received_.data(), own}, hash64(wire.seed, groups), wire.position + begin,
                  half_sent_.data() + begin);
    hand_out(half_sent_.data(), values.size(), owners);
    widen_half(half_sent_, values.data());
  } else {
    std::copy_n(received_.data(), own, values.data() + begin);
    hand_out(values.data(), values.size(), owners);
  }
}

// Sends each group's part of `from` to its leader, and receives this group's parts from all into `to`.
template <typename Word>
void RankSums::scatter(const Word* from, Word* to, std::size_t count) {
  const std::size_t own = part_of(count, own_group_, groups_).length;
  std::vector<MPI_Request> requests;
  requests.reserve(2 * static_cast<std::size_t>(groups_));
  for (int group = 0; group < groups_; ++group) {
    if (group == own_group_) continue;
    const auto [at, length] = part_of(count, group, groups_);
    if (own > 0) {
      MPI_Irecv(to + own * static_cast<std::size_t>(group), static_cast<int>(own), mpi_type<Word>(), group,
                kSpreadTag, leaders_, &requests.emplace_back(MPI_REQUEST_NULL));
    }
    if (length > 0) {
      MPI_Isend(from + at, static_cast<int>(length), mpi_type<Word>(), group, kSpreadTag, leaders_,
                &requests.emplace_back(MPI_REQUEST_NULL));
    }
  }
  complete(requests, pause_);
}

// Sends each leader's own part of `values` to the other groups, as far as their ranks own it.
template <typename Word>
void RankSums::hand_out(Word* values, std::size_t count, const Owners& owners) {
  const auto of_leader = [&](const Part& wanted, int leader) -> Part {
    const Part part = part_of(count, leader, groups_);
    const std::size_t begin = std::max(wanted.begin, part.begin);
    const std::size_t end = std::min(wanted.begin + wanted.length, part.begin + part.length);
    return {begin, end > begin ? end - begin : 0};
  };
  std::vector<MPI_Request> requests;
  const std::vector<Part> own = of_group(owners, count, own_group_, Unowned::included);
  for (int group = 0; group < groups_; ++group) {
    if (group == own_group_) continue;
    for (const Part& wanted : own) {
      const Part part = of_leader(wanted, group);
      if (part.length > 0)
        MPI_Irecv(values + part.begin, static_cast<int>(part.length), mpi_type<Word>(), group, kSumTag,
                  leaders_, &requests.emplace_back(MPI_REQUEST_NULL));
    }
    for (const Part& wanted : of_group(owners, count, group, Unowned::included)) {
      const Part part = of_leader(wanted, own_group_);
      if (part.length > 0)
        MPI_Isend(values + part.begin, static_cast<int>(part.length), mpi_type<Word>(), group, kSumTag,
                  leaders_, &requests.emplace_back(MPI_REQUEST_NULL));
    }
  }
  complete(requests, pause_);
}

}  // namespace wflow::trainer
