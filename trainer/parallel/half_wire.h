// SPDX-License-Identifier: Apache-2.0
// bfloat16 for what travels between nodes. A value goes to one of its two neighbours, the nearer one more
// often, so that the expected value is the value itself and small gradients are not lost (Gupta et al. 2015,
// "Deep learning with limited numerical precision"). Which one depends on seed and position alone: no state
// to keep.
#pragma once

#include <cstdint>
#include <span>

namespace wflow::trainer {

// Values `first`, `first` + 1, ... of an array. Infinities and NaNs stay what they are.
void round_to_half(std::span<const float> values, std::uint64_t seed, std::uint64_t first,
                   std::uint16_t* out);
void widen_half(std::span<const std::uint16_t> values, float* out);

}  // namespace wflow::trainer
