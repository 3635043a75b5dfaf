// SPDX-License-Identifier: Apache-2.0
// The steps of a field's transform, applied to one sample. docs/convert.md has the formulas.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/fields.h"
#include "converters/input/array.h"

namespace wflow::converters {

// The sample's parameters, which expressions may use.
struct Parameters {
  std::span<const std::string> names;
  std::span<const double> values;
  std::optional<double> find(std::string_view name) const;
};

// A field on its way: its axes have a letter each in `layout`. With several pieces (sub-cubes), `array` holds
// them one behind the other, and its shape is that of one.
struct TransformState {
  Array array;
  std::string layout;
  std::size_t pieces = 1;
};

// Arithmetic is done in double precision (log1p of float32 values in single precision), and gives float32
// where the values are float32 or integers of up to 2 bytes, else float64. Throws Error{data} where the
// values or the shape don't fit, Error{spec} where an expression names what is not there. Steps of the
// training statistics (is_analysed) change nothing here.
void apply_transforms(std::span<const Transform> steps, const Parameters& parameters, TransformState& state);

// To another type: rounded to whole numbers where it is one of them. Error{data} where a value does not fit.
void cast_values(Array& array, DType target);

}  // namespace wflow::converters
