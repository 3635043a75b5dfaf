// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/chunk_grid.h"

#include <algorithm>

#include "base/error.h"

namespace wflow::converters {

std::size_t values_of(std::span<const std::size_t> shape) {
  std::size_t values = 1;
  for (const std::size_t length : shape) values *= length;
  return values;
}

SampleBox SampleBox::whole(std::span<const std::size_t> shape) {
  return {std::vector<std::size_t>(shape.size(), 0), {shape.begin(), shape.end()}};
}

ChunkGrid::ChunkGrid(std::span<const std::size_t> shape, std::span<const std::size_t> chunk)
    : shape_(shape.begin(), shape.end()),
      chunk_(chunk.begin(), chunk.end()),
      chunk_values_(values_of(chunk)) {
  WFLOW_CHECK(shape.size() == chunk.size() && shape.size() <= kMostRank);
  for (std::size_t k = 0; k < shape_.size(); ++k) {
    if (shape_[k] > 0) chunks_ *= (shape_[k] + chunk_[k] - 1) / chunk_[k];
  }
}

std::vector<std::size_t> ChunkGrid::corner(std::size_t chunk) const {
  std::vector<std::size_t> corner(shape_.size(), 0);
  for (std::size_t k = shape_.size(); k-- > 0;) {
    if (shape_[k] == 0) continue;
    const std::size_t along = (shape_[k] + chunk_[k] - 1) / chunk_[k];
    corner[k] = chunk % along * chunk_[k];
    chunk /= along;
  }
  return corner;
}

bool ChunkGrid::are_ranges() const {
  std::size_t k = 0;
  while (k < shape_.size() && chunk_[k] == 1) ++k;
  for (++k; k < shape_.size(); ++k) {
    if (chunk_[k] != shape_[k]) return false;
  }
  return true;
}

ChunkGrid::Segments ChunkGrid::segments_of(std::size_t axis, std::size_t corner, const SampleBox& box) const {
  const std::size_t length = shape_[axis];
  const std::size_t start = box.start[axis];
  const std::size_t end = start + box.count[axis];  // beyond the axis, if the box goes on at its begin
  WFLOW_CHECK(box.count[axis] <= length && (start < length || box.count[axis] == 0));
  const std::size_t chunk_end = std::min(corner + chunk_[axis], length);
  Segments segments;
  const auto add = [&](std::size_t first, std::size_t last, std::size_t before) {
    const std::size_t from = std::max(first, corner);
    const std::size_t to = std::min(last, chunk_end);
    if (from < to) segments.list[segments.count++] = {from - corner, from, from + before - start, to - from};
  };
  add(start, std::min(end, length), 0);
  if (end > length) add(0, end - length, length);
  return segments;
}

bool ChunkGrid::shares(std::size_t chunk, const SampleBox& box) const {
  const std::vector<std::size_t> first = corner(chunk);
  for (std::size_t k = 0; k < shape_.size(); ++k) {
    if (segments_of(k, first[k], box).count == 0) return false;
  }
  return true;
}

ChunkGrid::Shared ChunkGrid::shared_with(std::size_t chunk, const SampleBox& box) const {
  WFLOW_CHECK(box.start.size() == shape_.size() && box.count.size() == shape_.size());
  Shared shared;
  shared.axes = shape_.size();
  // The last axes that chunk and box have as a whole are one run.
  while (shared.axes > 1) {
    const std::size_t last = shared.axes - 1;
    if (chunk_[last] != shape_[last] || box.start[last] != 0 || box.count[last] != shape_[last]) break;
    shared.inner *= shape_[last];
    shared.axes = last;
  }
  const std::vector<std::size_t> first = corner(chunk);
  std::size_t chunk_stride = shared.inner;
  std::size_t sample_stride = shared.inner;
  std::size_t box_stride = shared.inner;
  for (std::size_t k = shared.axes; k-- > 0;) {
    shared.segments[k] = segments_of(k, first[k], box);
    shared.chunk_stride[k] = chunk_stride;
    shared.sample_stride[k] = sample_stride;
    shared.box_stride[k] = box_stride;
    chunk_stride *= chunk_[k];
    sample_stride *= shape_[k];
    box_stride *= box.count[k];
  }
  return shared;
}

}  // namespace wflow::converters
