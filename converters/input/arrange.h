// SPDX-License-Identifier: Apache-2.0
// From arrays as files hold them to a field as shards hold it: axes in the order C, T, D, H, W, transformed,
// padded. What the axes were taken for stands in the form, and so in the manifest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/fields.h"
#include "converters/input/array.h"
#include "converters/input/transform.h"
#include "converters/readers/reader.h"

namespace wflow::converters {

// What a field of every sample must be.
struct FieldForm {
  std::string name;
  Role role = Role::input;
  DType dtype = DType::float32;
  std::vector<std::size_t> shape;
  std::string layout;                 // a letter an axis; "" for one number
  std::string layout_from;            // "layout" (the configuration), "format", or "rank" (assumed)
  std::vector<std::string> channels;  // names along C, where known
  std::string units;
  std::string stored;                // the type in the files, where that is another
  std::optional<DType> narrow = {};  // in the shard, where a smaller type holds the same values
  bool compressed = true;            // in the shard, where it is of a chunk a sample
  bool matches = false;              // and by a compressor that looks for repeated strings
  std::size_t pieces = 1;            // sub-cubes that a sample is split into; `shape` is of one of them

  // Channels: entries of the axis C; 1 without it.
  std::size_t channel_count() const { return layout.starts_with('C') ? shape[0] : 1; }
  std::size_t values() const;
  DType held() const { return narrow.value_or(dtype); }
  // Whether shards may hold both; what the files held (`stored`), and how the shard holds it, does not
  // matter.
  bool operator==(const FieldForm& other) const {
    return name == other.name && role == other.role && dtype == other.dtype && shape == other.shape &&
           layout == other.layout && pieces == other.pieces;
  }
};

struct FieldValue {
  FieldForm form;
  std::vector<std::uint8_t> bytes;  // of all pieces, one behind the other
};

struct ArrangeOptions {
  bool short_form = false;            // the result is of axes C, D, H, W
  const std::filesystem::path& file;  // for messages
  std::optional<std::uint64_t> row;   // of it
  Parameters parameters = {};
  std::string place() const;
};

// `arrays`: one a file of the field. Gives the field, and behind it its mask where it is padded. Throws
// Error{data} with a sentence that says what to write where the shape does not fit.
std::vector<FieldValue> arrange(const FieldConfig& field, std::vector<InputArray> arrays,
                                const ArrangeOptions& options);

// The field of a parameter, or of a list of them.
FieldValue parameter_field(const FieldConfig& field, const std::vector<std::string>& names,
                           const std::vector<double>& values, const Parameters& parameters);

// "(2, 64, 64) float32, axes C, H, W"
std::string describe(const FieldForm& form);

}  // namespace wflow::converters
