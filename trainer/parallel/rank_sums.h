// SPDX-License-Identifier: Apache-2.0
// Sums over ranks: first over the ranks of a node, through memory that they share, then between the nodes'
// first ranks, then back. A message between nodes is sent once a node, not once a rank. In each of the two,
// sums are a fixed tree: the same ranks on the same nodes give the same bits, on all ranks and at every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/parallel/communicator.h"
#include "trainer/parallel/shared_slots.h"

namespace wflow::trainer {

// The owners of an array's values, which begin at position `from` of the parts. Null: all belong to all
// ranks.
struct Owners {
  const OwnedParts* parts = nullptr;
  std::size_t from = 0;
  Owners at(std::size_t by) const { return {parts, from + by}; }
};

class RankSums {
 public:
  // A collective call of `ranks`. `ranks_per_group`: number of ranks that act as a node; 0: all ranks of the
  // node.
  RankSums(MPI_Comm ranks, int ranks_per_group, Pause pause);
  RankSums(const RankSums&) = delete;
  RankSums& operator=(const RankSums&) = delete;
  ~RankSums();

  // A collective call. If the ranks' lengths differ, it throws on all ranks and `values` are undefined. Sums
  // that neither this rank nor all own are undefined.
  void sum(std::span<float> values, const Wire& wire, const Owners& owners = {});
  // A collective call: copies each part from the rank that owns it to the others.
  void gather(std::span<float> values, const OwnedParts& parts);

  int groups() const { return groups_; }

 private:
  // Consecutive values of a piece.
  struct Part {
    std::size_t begin = 0;
    std::size_t length = 0;
  };
  static Part part_of(std::size_t count, int part, int parts);
  enum class Unowned { left_out, included };
  template <class IsWanted>
  static std::vector<Part> owned_by(const Owners& owners, std::size_t count, Unowned unowned,
                                    IsWanted is_wanted);
  std::vector<Part> of_group(const Owners& owners, std::size_t count, int group, Unowned unowned) const;

  void sum_shared(std::span<float> piece, const Wire& wire, const Owners& owners,
                  const std::span<float>* whole);
  void gather_shared(std::span<float> piece, const Owners& owners);
  void gather_between_groups(std::span<float> values, const Owners& owners);
  SharedSlots::Lengths lengths_in_group(std::size_t turn) const;
  SharedSlots::Lengths lengths_of_groups(SharedSlots::Lengths own);
  static void require_equal(SharedSlots::Lengths lengths);
  void sum_between_groups(std::span<float> values, const Wire& wire, const Owners& owners);
  template <typename Word>
  void scatter(const Word* from, Word* to, std::size_t count);
  template <typename Word>
  void hand_out(Word* values, std::size_t count, const Owners& owners);

  MPI_Comm group_ = MPI_COMM_NULL;
  MPI_Comm leaders_ = MPI_COMM_NULL;  // only on the first rank of a group
  int in_group_ = 0;
  int members_ = 1;
  int groups_ = 1;
  int own_group_ = 0;
  int rank_ = 0;
  std::vector<int> group_of_;  // of each rank
  Pause pause_;
  std::unique_ptr<SharedSlots> shared_;
  std::uint64_t piece_ = 0;  // floats summed at a time, the same on all ranks
  std::size_t turn_ = 0;
  std::vector<float> received_;
  std::vector<std::uint16_t> half_sent_;
  std::vector<std::uint16_t> half_received_;
};

}  // namespace wflow::trainer
