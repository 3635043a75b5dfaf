// SPDX-License-Identifier: Apache-2.0
// From arrays as files hold them to a field as shards hold it: axes in the order C, T, D, H, W, transformed,
// padded. What the axes were taken for stands in the form, and so in the manifest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converters/fields.h"
#include "converters/input/array.h"
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
  std::string stored;  // the type in the files, where that is another

  // Channels: entries of the axis C; 1 without it.
  std::size_t channel_count() const { return layout.starts_with('C') ? shape[0] : 1; }
  std::size_t values() const;
  // Whether shards may hold both; what the files held (`stored`) does not matter.
  bool operator==(const FieldForm& other) const {
    return name == other.name && role == other.role && dtype == other.dtype && shape == other.shape &&
           layout == other.layout;
  }
};

struct FieldValue {
  FieldForm form;
  std::vector<std::uint8_t> bytes;
};

struct ArrangeOptions {
  bool short_form = false;  // the result is of axes C, D, H, W
  std::string place;        // the file, for messages
};

// `arrays`: one a file of the field. Gives the field, and behind it its mask where it is padded. Throws
// Error{data} with a sentence that says what to write where the shape does not fit.
std::vector<FieldValue> arrange(const FieldConfig& field, std::vector<InputArray> arrays,
                                const ArrangeOptions& options);

// The field of a parameter, or of a list of them.
FieldValue parameter_field(const FieldConfig& field, const std::vector<std::string>& names,
                           const std::vector<double>& values);

// In double precision, or in single where the values are float32 or integers of up to 2 bytes.
void apply_transform(const Transform& transform, std::string_view layout, Array& array);

// "(2, 64, 64) float32, axes C, H, W"
std::string describe(const FieldForm& form);

}  // namespace wflow::converters
