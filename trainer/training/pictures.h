// SPDX-License-Identifier: Apache-2.0
// pictures.json: for some test samples of a predicted picture, a slice of the input, of the truth and of the
// prediction. `wflow report` draws them, and does not read HDF5 itself.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/model_graph.h"
#include "trainer/training/session.h"

namespace wflow::trainer {

struct Picture {
  std::string name;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<float> values;  // row by row
};

// The middle plane of a channel, thinned to at most kMostPixels along each axis. `values`: the channel's
// cells.
inline constexpr std::size_t kMostPixels = 128;
Picture slice_of(const std::string& name, std::span<const double> values, const TensorShape& shape);

// True for a grid of which a slice is worth looking at.
bool is_picture(const TensorShape& shape);

// The first field input of the first test samples. Empty if no field of two long axes is predicted. Before
// the last collective call: staged samples may lie with other ranks.
std::vector<Picture> input_pictures(Session& session);
// Writes pictures.json from predictions.h5, or removes an earlier one if there are no pictures.
void write_pictures(Session& session, const std::vector<Picture>& inputs);

// Samples that a generator has made, side by side in a file: one for each epoch.

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
