// SPDX-License-Identifier: Apache-2.0
// The chunks of one sample: how an array is cut into equal blocks, and which runs of values they share with a
// box of it. Pure arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "converters/fields.h"

namespace wflow::converters {

// The number of values.
std::size_t values_of(std::span<const std::size_t> shape);

// Entries of a sample along each axis: `count` from `start` on. The axes are periodic: behind the last entry
// comes the first one. count <= length of the axis, start < length.
struct SampleBox {
  std::vector<std::size_t> start;
  std::vector<std::size_t> count;
  static SampleBox whole(std::span<const std::size_t> shape);
  std::size_t values() const { return values_of(count); }
};

// Blocks of equal shape in C order. The last ones along an axis may reach over its end: their values there
// mean nothing. Keeps no reference to its arguments.
class ChunkGrid {
 public:
  // `chunk`: at least 1 and at most the sample's length along each axis.
  ChunkGrid(std::span<const std::size_t> shape, std::span<const std::size_t> chunk);

  std::size_t chunks() const { return chunks_; }
  std::size_t chunk_values() const { return chunk_values_; }
  // The first entry of a chunk, along each axis.
  std::vector<std::size_t> corner(std::size_t chunk) const;
  // True if each chunk is a range of the sample: 1 along the first axes, a part of one, all of the rest.
  bool are_ranges() const;

  // A run of neighbouring values: the number of its first value in the chunk, in the sample and in the box.
  struct Run {
    std::size_t in_chunk = 0;
    std::size_t in_sample = 0;
    std::size_t in_box = 0;
    std::size_t values = 0;
  };
  // take(run) for the values that a chunk shares with the box, as long runs as possible; not at all if there
  // are none.
  template <typename Take>
  void for_each_run(std::size_t chunk, const SampleBox& box, Take take) const {
    const Shared shared = shared_with(chunk, box);
    if (shared.axes == 0) take(Run{0, 0, 0, shared.inner});
    if (shared.axes > 0) walk(shared, 0, Run{0, 0, 0, 0}, take);
  }
  bool shares(std::size_t chunk, const SampleBox& box) const;

 private:
  // Entries of an axis that chunk and box share without a gap.
  struct Segment {
    std::size_t in_chunk = 0;
    std::size_t in_sample = 0;
    std::size_t in_box = 0;
    std::size_t count = 0;
  };
  // At most two: the box may go on at the first entry.
  struct Segments {
    std::array<Segment, 2> list;
    std::size_t count = 0;
  };
  // All values of the last axes are `inner` neighbours, for each entry of the first `axes`.
  struct Shared {
    std::array<Segments, kMostRank> segments;
    std::array<std::size_t, kMostRank> chunk_stride{};
    std::array<std::size_t, kMostRank> sample_stride{};
    std::array<std::size_t, kMostRank> box_stride{};
    std::size_t axes = 0;
    std::size_t inner = 1;
  };
  Segments segments_of(std::size_t axis, std::size_t corner, const SampleBox& box) const;
  Shared shared_with(std::size_t chunk, const SampleBox& box) const;

  template <typename Take>
  static void walk(const Shared& shared, std::size_t axis, const Run& at, Take& take) {
    const Segments& segments = shared.segments[axis];
    for (std::size_t s = 0; s < segments.count; ++s) {
      const Segment& segment = segments.list[s];
      Run run = {at.in_chunk + segment.in_chunk * shared.chunk_stride[axis],
                 at.in_sample + segment.in_sample * shared.sample_stride[axis],
                 at.in_box + segment.in_box * shared.box_stride[axis], segment.count * shared.inner};
      if (axis + 1 == shared.axes) {
        take(run);
        continue;
      }
      for (std::size_t k = 0; k < segment.count; ++k) {
        walk(shared, axis + 1, run, take);
        run.in_chunk += shared.chunk_stride[axis];
        run.in_sample += shared.sample_stride[axis];
        run.in_box += shared.box_stride[axis];
      }
    }
  }

  std::vector<std::size_t> shape_;
  std::vector<std::size_t> chunk_;
  std::size_t chunks_ = 1;
  std::size_t chunk_values_ = 1;
};

}  // namespace wflow::converters
