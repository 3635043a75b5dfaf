// SPDX-License-Identifier: Apache-2.0
// Loops over all values of a field: statistics and the usual steps of a transform. Compiled once for each
// instruction set (value_kernels.inc), without contraction of a*b+c and with additions in a fixed order: the
// bits are the same on every processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wflow::converters {

// Sums of the values of a field. If one value is not finite, `sum` is not finite either, and the rest is
// undefined.
struct ValueSums {
  double sum = 0;
  double least = 0;
  double most = 0;
};

struct BucketRange {
  std::int32_t least = 0;
  std::int32_t most = 0;
};

// Sketch's buckets are the upper bits of a float32.
inline constexpr int kBucketShift = 17;
inline constexpr std::int32_t kMostBucket = 0x7f7fffff >> kBucketShift;

// The arrays need no alignment beyond their type's.
struct ValueKernels {
  // Needs at least one value.
  ValueSums (*sums_of_floats)(const float* values, std::size_t count);
  ValueSums (*sums_of_doubles)(const double* values, std::size_t count);
  // The sum of (value - mean)^2.
  double (*squares_of_floats)(const float* values, std::size_t count, double mean);
  double (*squares_of_doubles)(const double* values, std::size_t count, double mean);
  // Buckets of Sketch, and their range (without values: 0 to 0). Infinities and NaN are beyond +-kMostBucket.
  BucketRange (*buckets_of_floats)(const float* values, std::size_t count, std::int32_t* buckets);

  // In place. Computed in double precision, but log1p of floats in single precision; a NaN stays one.
  void (*log1p_floats)(float* values, std::size_t count);
  void (*log1p_doubles)(double* values, std::size_t count);
  void (*clip_floats)(float* values, std::size_t count, double least, double most);
  void (*clip_doubles)(double* values, std::size_t count, double least, double most);
  void (*scale_floats)(float* values, std::size_t count, double factor, double offset);
  void (*scale_doubles)(double* values, std::size_t count, double factor, double offset);
};

extern const ValueKernels plain_value_kernels;
#if defined(__x86_64__)
extern const ValueKernels avx2_value_kernels;
extern const ValueKernels avx512_value_kernels;
#endif

// The kernels for this processor. WFLOW_VALUES=plain in the environment forces the portable ones, avx2 these.
const ValueKernels& value_kernels();

}  // namespace wflow::converters
