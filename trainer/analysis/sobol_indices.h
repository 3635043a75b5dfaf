// SPDX-License-Identifier: Apache-2.0
// The shares of an output's variance that the inputs explain, estimated from evaluations of a function. Pure
// functions: no file, no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"

namespace wflow::trainer {

// A number and its standard error.
struct Estimate {
  double value = 0;
  double deviation = 0;
};

// The points where the function is evaluated. Two independent sets A and B of `points` points, then for each
// input i the set A with column i of B, and for each input the set B with column i of A (Saltelli 2002,
// Computer Physics Communications 145:280). A and B are columns of one shifted Sobol' sequence; inputs beyond
// the sequence's dimensions have independent random numbers.
class SobolDesign {
 public:
  // `points` is a power of two: only such a part of the sequence is balanced.
  SobolDesign(std::size_t inputs, std::size_t points, std::uint64_t seed);

  std::size_t inputs() const { return inputs_; }
  std::size_t points() const { return points_; }
  std::size_t rows() const { return points_ * (2 * inputs_ + 2); }
  // In [0, 1), a function of the arguments and the seed.
  double unit(std::size_t row, std::size_t input) const;
  // The first row of the set A, of B, of A with column i of B, of B with column i of A.
  std::size_t first_a() const { return 0; }
  std::size_t first_b() const { return points_; }
  std::size_t first_ab(std::size_t input) const { return (2 + input) * points_; }
  std::size_t first_ba(std::size_t input) const { return (2 + inputs_ + input) * points_; }

 private:
  double column(std::size_t point, std::size_t dimension) const;

  std::size_t inputs_;
  std::size_t points_;
  std::uint64_t seed_;
  Sobol sequence_;
};

struct SobolIndices {
  double mean = 0;
  double variance = 0;          // 0: the output is constant, and all lists are empty
  std::vector<Estimate> first;  // by input: the share that it explains alone
  std::vector<Estimate> total;  // and with all its interactions
  std::vector<std::pair<std::size_t, std::size_t>> pairs;  // of inputs, the first less than the second
  std::vector<Estimate> second;                            // of each pair: the share of the interaction
};

// `outputs`: one for each row of the design. First order by Saltelli et al. (2010, Computer Physics
// Communications 181:259, Table 2 b), total by Jansen (1999, ibid. 117:35), second order by Saltelli (2002).
// The deviations are those of `resamples` bootstrap samples of the points. They take the points as
// independent and so are too large for a Sobol' sequence, rather than too small.
SobolIndices sobol_indices(const SobolDesign& design, std::span<const double> outputs, std::size_t resamples,
                           std::uint64_t seed);

// Adds the spread of other estimates of the same numbers, such as those of an ensemble's members, to their
// deviations: the root of the sum of both variances. Constant ones among `others` do not count.
void add_spread(SobolIndices& indices, std::span<const SobolIndices> others);
void add_spread(std::vector<Estimate>& estimates, std::span<const std::vector<Estimate>> others);

// The mean of the output in each of `bins` equal parts of each input's range, over all rows: [inputs][bins].
std::vector<std::vector<double>> main_effects(const SobolDesign& design, std::span<const double> outputs,
                                              std::size_t bins);

}  // namespace wflow::trainer
