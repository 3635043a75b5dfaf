// SPDX-License-Identifier: Apache-2.0
// HDF5's byte shuffle: all first bytes, then all second bytes, ... Deflate finds more to do in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wflow::converters {

// `in` and `out` are equally long, a multiple of `width` (1, 2, 4 or 8), and do not overlap.
void shuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width);
void unshuffle_bytes(std::span<const std::uint8_t> in, std::span<std::uint8_t> out, std::size_t width);

// Of `in`'s values as many as `out` holds, from number `first` on.
void unshuffle_part(std::span<const std::uint8_t> in, std::size_t width, std::size_t first,
                    std::span<std::uint8_t> out);

}  // namespace wflow::converters
