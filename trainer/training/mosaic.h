// SPDX-License-Identifier: Apache-2.0
// Samples that a generator has made, side by side in a file: one for each epoch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"

namespace wflow::trainer {

inline constexpr std::size_t kMosaicSamples = 16;

// The samples that one head has made: the first channels of up to kMosaicSamples samples, normalised,
// [samples, cells].
struct Made {
  std::size_t number = 0;  // of the head
  std::string head;
  TensorShape shape;
  std::vector<float> values;
};

// A PNG in shades of grey, from 2.5 deviations below the mean of the data (black) to as many above (white):
// the middle slice of each sample.
std::string mosaic_png(const Made& made);

}  // namespace wflow::trainer
