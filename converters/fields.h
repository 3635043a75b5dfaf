// SPDX-License-Identifier: Apache-2.0
// The fields of a sample: the name, role and source of each. A part of
// ConvertConfig; docs/convert.md is the table for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "converters/dtype.h"

namespace wflow::converters {

enum class Role { input, target };
enum class Format { automatic, hdf5, npy, npz, raw, netcdf, csv, text, json, gadget, image, tfrecord };
enum class ByteOrder { little, big };
enum class Match { one, first, last, all };

std::string_view role_name(Role role);
std::string_view format_name(Format format);

inline constexpr std::size_t kMostRank = 4;  // axes of a field

// The layout of a raw binary file.
struct RawForm {
  DType dtype = DType::float32;
  ByteOrder byte_order = ByteOrder::little;
  bool fortran_order = false;  // the first axis runs fastest
  std::uint64_t offset = 0;    // bytes before the values
  std::uint32_t markers = 0;   // bytes of the length before and behind each Fortran record: 4 or 8; 0: none
  std::vector<std::size_t> shape;  // in the file
  bool operator==(const RawForm&) const = default;
};

// A density on a grid from the particles of a Gadget snapshot, by cloud-in-cell.
struct GadgetForm {
  std::uint32_t grid = 0;           // cells an axis
  std::vector<std::int64_t> types;  // types of particles, 0 to 5; empty: all
  bool operator==(const GadgetForm&) const = default;
};

// Selects values of a file.
struct Selector {
  Format format = Format::automatic;  // automatic: by the keys, the suffix, then the first bytes
  std::string dataset;                // HDF5: path; NPZ: array; NetCDF: variable; TFRecord: feature
  std::string attribute;              // HDF5: an attribute of that object, instead of its values
  std::vector<std::string> columns;   // table: names, or numbers from 0; HDF5: members of a compound
  std::string regex;                  // text: its groups are the numbers
  Match match = Match::one;           // one of several matches
  std::string json;                   // JSON pointer (/a/b/0), or $.a.b[0]
  std::string slice;                  // as in NumPy: "0, :, 10:20, -1"
  RawForm raw;
  GadgetForm gadget;
  bool external = false;  // HDF5: values may be in other files (set by `external_files`, no key)
  bool stacked = false;  // raw, tfrecord: the file holds any number of such arrays (set by `stacked`, no key)
  bool operator==(const Selector&) const = default;
};

struct Transform;
// The name in a configuration: "log1p", "downsample".
std::string_view name_of(const Transform& transform);

// A step of a field's transform (docs/convert.md has the formulas).
struct Transform {
  enum class Kind {
    log1p,
    asinh,
    clip,
    scale,
    downsample,
    histogram,
    crop,
    subcubes,
    one_hot,
    expression,
    // Based on the training samples' statistics: recorded here, applied by readers.
    standardise,
    min_max,
    quantile
  };
  Kind kind = Kind::log1p;
  double a = 0;
  double b = 0;
  std::vector<double> numbers = {};  // crop: lengths; histogram: edges
  std::string text = {};             // expression; quantile: "uniform" or "normal"
  bool operator==(const Transform&) const = default;
};

// True for steps that need the statistics of all training samples.
bool is_analysed(Transform::Kind kind);

struct FieldConfig {
  std::string name;
  Role role = Role::input;

  // From the sample's parameters: one number, or with `vector` a list of them.
  bool from_parameters = false;
  bool vector = false;
  std::vector<std::string> parameters;  // columns; empty with `vector`: all

  // From files: several are stacked as channels. Empty: the sample's own file.
  std::vector<std::string> files;
  Selector selector;

  std::string layout;              // letters of the axes in the file: C, T, D, H, W, and _ for one to drop
  std::vector<std::size_t> shape;  // the values are reshaped to it
  std::vector<std::size_t> pad;    // shorter axes are filled up to these lengths
  double pad_value = 0;
  std::string ragged;  // letter of the axis whose length differs from sample to sample; empty: none
  std::vector<Transform> transforms;
  std::optional<DType> dtype;
  bool narrow = false;  // store whole numbers in the smallest type that holds them
  // Cells of a chunk along the last axes, in shards: its bricks. Empty: none. Nothing: chosen by the form.
  std::optional<std::vector<std::size_t>> chunk;
  std::vector<std::string> channels;
  std::string units;

  bool operator==(const FieldConfig&) const = default;
};

// The error in the letters of a layout; nothing if they are valid.
std::optional<std::string> layout_problem(std::string_view layout);

// A slice as written: one entry for each axis, missing ones are the whole axis.
struct SliceAxis {
  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
  bool single = false;  // one index (start), and the axis is dropped
};
// Nothing if the text is not a slice.
std::optional<std::vector<SliceAxis>> parse_slice(std::string_view text);

// Reads `inputs:` and `targets:` if they are mappings.
std::vector<FieldConfig> read_fields(const yaml::Node& node, Role role, yaml::Diagnostics& diagnostics);
yaml::Node fields_to_yaml(const std::vector<FieldConfig>& fields, Role role);

}  // namespace wflow::converters
