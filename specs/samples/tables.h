// SPDX-License-Identifier: Apache-2.0
// The kinds of sample table behind open_samples(), and the sequence of Sobol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "specs/samples/samples.h"

namespace wflow::specs {

std::unique_ptr<const SampleTable> computed_table(const SampleDesign& design);  // uniform .. list
std::unique_ptr<const SampleTable> text_table(const SampleDesign& design);      // .csv, .tsv, .tab, .lines
std::unique_ptr<const SampleTable> npy_table(const SampleDesign& design);       // .npy
std::unique_ptr<const SampleTable> parts_table(const SampleDesign& design);  // several, one behind the other

// The names of `found` columns of a file: the design's, completed by numbers if it names too few.
std::vector<std::string> column_names(const SampleDesign& design, std::size_t found);

// Sobol's sequence by index: computes any point without the points before. Point n is the n-th in Gray code
// order, as in GSL and in Bratley and Fox (1988, TOMS 659), with point 0 at the origin: GSL's first point is
// point 1 here.
class Sobol {
 public:
  static constexpr std::size_t kMaxDimensions = 40;
  static constexpr int kBits = 52;  // so that a point is exact in a double; GSL has the first 30 of them

  explicit Sobol(std::size_t dimensions);

  // The point's coordinate as a binary fraction of kBits bits: a digital shift is an exclusive or with it.
  std::uint64_t bits(std::uint64_t point, std::size_t dimension) const;

 private:
  std::vector<std::array<std::uint64_t, kBits>> directions_;
};

}  // namespace wflow::specs
