// SPDX-License-Identifier: Apache-2.0
// Turns arrays of files into a field for shards: axes in the order C, T, D, H, W, transformed, padded. The
// form, and so the manifest, has the meaning of the axes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "converters/fields.h"
#include "converters/input/array.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

// The parameters of a sample, which expressions may use.
struct Parameters {
  std::span<const std::string> names;
  std::span<const double> values;
  std::optional<double> find(std::string_view name) const;
};

// A field during its transform: `layout` has a letter for each axis. With several pieces (sub-cubes), `array`
// holds them one behind the other, and its shape is that of one.
struct TransformState {
  Array array;
  std::string layout;
  std::size_t pieces = 1;
};

// Applies the steps of a transform to one sample; docs/convert.md has the formulas. Computes in double
// precision (log1p of float32 values in single precision). The result is float32 if the values are float32 or
// integers of up to 2 bytes, else float64. Throws Error{data} if the values or the shape do not fit,
// Error{spec} if an expression has an unknown name. Steps that use training statistics (is_analysed) change
// nothing here.
void apply_transforms(std::span<const Transform> steps, const Parameters& parameters, TransformState& state);

// Converts to another type; rounds for integer types. Error{data} if a value does not fit.
void cast_values(Array& array, DType target);

// The axis of a ragged field along which samples have lengths of their own.
struct RaggedAxis {
  std::size_t axis = 0;   // in `shape`
  std::size_t least = 0;  // shortest and longest of the samples that the form describes
  std::size_t most = 0;   // 0: none yet
  double pad_value = 0;   // what readers put behind the values of a shorter sample
};

// The form that a field must have in every sample.
struct FieldForm {
  std::string name;
  Role role = Role::input;
  DType dtype = DType::float32;
  std::vector<std::size_t> shape;
  std::string layout;                 // a letter for each axis; "" for one number
  std::string layout_from;            // "layout" (the configuration), "format", or "rank" (assumed)
  std::vector<std::string> channels;  // names along C, where known
  std::string units;
  std::string stored;                // the type in the files, if different
  std::optional<DType> narrow = {};  // the type in the shard, if a smaller one holds the same values
  bool compressed = true;            // in the shard, if each sample has a chunk
  bool matches = false;              // with a compressor that searches repeated strings
  std::size_t pieces = 1;            // sub-cubes that a sample is split into; `shape` is of one of them
  std::optional<RaggedAxis> ragged =
      {};             // `shape` has the sample's length, or the longest of several samples
  bool mask = false;  // of a ragged field: readers make it from the lengths, the shards do not hold it
  std::optional<std::vector<std::size_t>> chunk = {};  // see FieldConfig

  // Channels: entries of the axis C; 1 without it.
  std::size_t channel_count() const { return layout.starts_with('C') ? shape[0] : 1; }
  std::size_t values() const;
  DType held() const { return narrow.value_or(dtype); }
  // True if one shard may hold both; the type in the files (`stored`), the storage in the shard and the
  // length of a ragged axis do not matter.
  bool operator==(const FieldForm& other) const {
    return name == other.name && role == other.role && dtype == other.dtype && same_shape(other) &&
           layout == other.layout && pieces == other.pieces;
  }
  // For the form of several samples: includes the length of one, or those of another form.
  void include_length(std::size_t least, std::size_t most);
  void forget_lengths();

 private:
  bool same_shape(const FieldForm& other) const;
};

struct FieldValue {
  FieldForm form;
  std::vector<std::uint8_t> bytes;  // all pieces, one behind the other
};

struct ArrangeOptions {
  bool short_form = false;            // the result has axes C, D, H, W
  const std::filesystem::path& file;  // for messages
  std::optional<std::uint64_t> row;   // its row, if stacked
  Parameters parameters = {};
  std::string place() const;
};

// `arrays`: one for each file of the field. Returns the field and, if it is padded, its mask. Throws
// Error{data} with a sentence that names the remedy if the shape does not fit.
std::vector<FieldValue> arrange(const FieldConfig& field, std::vector<InputArray> arrays,
                                const ArrangeOptions& options);

// The field of a parameter, or of a list of parameters.
FieldValue parameter_field(const FieldConfig& field, const std::vector<std::string>& names,
                           const std::vector<double>& values, const Parameters& parameters);

// "(2, 64, 64) float32, axes C, H, W"
std::string describe(const FieldForm& form);

}  // namespace wflow::converters
