// SPDX-License-Identifier: Apache-2.0
// Ranks on a grid: `data` parts of a batch by `space` parts of each sample. The parts of a sample are
// neighbours, so that they come to lie on one node. Gradients are summed over ranks of one place in space.
// Today space is 1.
#pragma once

namespace wflow::trainer {

struct RankGrid {
  int data = 1;
  int space = 1;

  static constexpr RankGrid of(int ranks, int space = 1) { return {ranks / space, space}; }
  constexpr int ranks() const { return data * space; }
  constexpr int data_of(int rank) const { return rank / space; }
  constexpr int space_of(int rank) const { return rank % space; }
  constexpr int rank_of(int in_data, int in_space) const { return in_data * space + in_space; }
};

}  // namespace wflow::trainer
