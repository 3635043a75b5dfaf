// SPDX-License-Identifier: Apache-2.0
#include "converters/input/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "converters/fields.h"

namespace wflow::converters {

std::optional<std::size_t> array_bytes(DType dtype, std::span<const std::size_t> shape) {
  std::size_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const std::size_t length : shape) {
    if (length == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, length, &bytes)) {
      return std::nullopt;
    }
  }
  if (bytes > kMostSampleBytes) return std::nullopt;
  return empty ? 0 : bytes;
}

void swap_byte_order(std::span<std::uint8_t> bytes, std::size_t width) {
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
}

namespace {

// Walks an index over `shape` in C order and calls visit(offset) for each; a step along axis k changes the
// offset by stride[k].
template <typename Visit>
void walk(const std::vector<std::size_t>& shape, const std::vector<std::size_t>& stride, std::size_t offset,
          Visit visit) {
  std::vector<std::size_t> index(shape.size(), 0);
  for (;;) {
    visit(offset);
    std::size_t k = shape.size();
    for (; k-- > 0;) {  // the last index runs fastest
      offset += stride[k];
      if (++index[k] < shape[k]) break;
      offset -= stride[k] * shape[k];
      index[k] = 0;
    }
    if (k == static_cast<std::size_t>(-1)) return;
  }
}

std::vector<std::uint8_t> gather(std::span<const std::uint8_t> bytes, const std::vector<std::size_t>& shape,
                                 const std::vector<std::size_t>& stride, std::size_t width) {
  std::vector<std::uint8_t> result(bytes.size());
  std::size_t to = 0;
  walk(shape, stride, 0, [&](std::size_t from) {
    std::memcpy(result.data() + to, bytes.data() + from, width);
    to += width;
  });
  return result;
}

std::vector<std::size_t> c_strides(const std::vector<std::size_t>& shape, std::size_t width) {
  std::vector<std::size_t> stride(shape.size(), width);
  for (std::size_t k = shape.size(); k-- > 1;) stride[k - 1] = stride[k] * shape[k];
  return stride;
}

}  // namespace

void to_c_order(std::vector<std::uint8_t>& bytes, const std::vector<std::size_t>& shape, std::size_t width) {
  if (shape.size() < 2 || bytes.empty()) return;
  std::vector<std::size_t> stride(shape.size(), width);  // in Fortran order
  for (std::size_t k = 1; k < shape.size(); ++k) stride[k] = stride[k - 1] * shape[k - 1];
  bytes = gather(bytes, shape, stride, width);
}

void to_c_order(Array& array) {
  to_c_order(array.bytes, array.shape, dtype_size(array.dtype));
}

void transpose(Array& array, const std::vector<std::size_t>& order) {
  const auto from = c_strides(array.shape, dtype_size(array.dtype));
  std::vector<std::size_t> shape;
  std::vector<std::size_t> stride;
  for (const std::size_t axis : order) {
    shape.push_back(array.shape[axis]);
    stride.push_back(from[axis]);
  }
  if (!std::is_sorted(order.begin(), order.end()) && !array.bytes.empty())
    array.bytes = gather(array.bytes, shape, stride, dtype_size(array.dtype));
  array.shape = std::move(shape);
}

namespace {

[[noreturn]] void refuse_slice(const std::filesystem::path& path, std::string_view slice,
                               const std::vector<std::size_t>& shape, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("{} has shape ({}), and slice '{}' does not fit: {}", path.string(),
                                          fmt::join(shape, ", "), slice, why));
}

// The index of the slice that lies beyond the axis.
std::optional<std::int64_t> beyond(const SliceAxis& axis, std::size_t length) {
  const auto n = static_cast<std::int64_t>(length);
  const std::int64_t most = axis.single ? n - 1 : n;
  for (const auto& index : {axis.start, axis.stop}) {
    if (index && (*index > most || *index < -n)) return index;
  }
  return std::nullopt;
}

// NumPy's rules: negative indices count from the end. Bounds beyond it, which NumPy cuts, are refused before.
AxisRange resolve_axis(const SliceAxis& axis, std::size_t length) {
  const auto n = static_cast<std::int64_t>(length);
  const auto bound = [n](std::optional<std::int64_t> value, std::int64_t fallback) {
    if (!value) return fallback;
    return std::clamp<std::int64_t>(*value < 0 ? *value + n : *value, 0, n);
  };
  if (axis.single) {
    const std::int64_t at = *axis.start < 0 ? *axis.start + n : *axis.start;
    if (at < 0 || at >= n) return {0, 0, 1, true};
    return {static_cast<std::uint64_t>(at), 1, 1, true};
  }
  const std::int64_t start = bound(axis.start, 0);
  const std::int64_t stop = bound(axis.stop, n);
  const std::int64_t count = stop > start ? (stop - start + axis.step - 1) / axis.step : 0;
  return {static_cast<std::uint64_t>(start), static_cast<std::uint64_t>(count),
          static_cast<std::uint64_t>(axis.step), false};
}

}  // namespace

Selection resolve_selection(const std::filesystem::path& path, std::string_view slice,
                            std::optional<std::uint64_t> row, const std::vector<std::size_t>& shape) {
  Selection selection;
  if (row) {
    if (shape.empty() || *row >= shape[0]) {
      throw Error(ExitCode::data, fmt::format("{} has shape ({}), and no row {}", path.string(),
                                              fmt::join(shape, ", "), *row));
    }
    selection.push_back({*row, 1, 1, true});
  }
  if (!slice.empty()) {
    const auto axes = parse_slice(slice);
    if (!axes) refuse_slice(path, slice, shape, "it is no slice");
    if (axes->size() + selection.size() > shape.size()) refuse_slice(path, slice, shape, "it has more axes");
    for (const SliceAxis& axis : *axes) {
      const std::size_t length = shape[selection.size()];
      if (const auto index = beyond(axis, length)) {
        refuse_slice(path, slice, shape,
                     fmt::format("{} is beyond the {} entries of axis {}", *index, length,
                                 selection.size() - (row ? 1 : 0)));
      }
      selection.push_back(resolve_axis(axis, shape[selection.size()]));
      if (selection.back().count == 0) refuse_slice(path, slice, shape, "it leaves nothing");
    }
  }
  for (std::size_t k = selection.size(); k < shape.size(); ++k) selection.push_back({0, shape[k], 1, false});
  return selection;
}

std::vector<std::size_t> selected_shape(const Selection& selection) {
  std::vector<std::size_t> shape;
  for (const AxisRange& range : selection) {
    if (!range.drop) shape.push_back(range.count);
  }
  return shape;
}

bool is_whole(const Selection& selection, const std::vector<std::size_t>& shape) {
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (selection[k].start != 0 || selection[k].count != shape[k] || selection[k].step != 1) return false;
  }
  return true;
}

void take_selection(std::span<const std::uint8_t> bytes, const std::vector<std::size_t>& shape,
                    std::size_t width, const Selection& selection, std::span<std::uint8_t> into) {
  if (into.empty()) return;
  std::vector<std::size_t> stride = c_strides(shape, width);
  std::vector<std::size_t> lengths;
  std::size_t start = 0;
  std::size_t values = 1;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    start += selection[k].start * stride[k];
    stride[k] *= selection[k].step;
    lengths.push_back(selection[k].count);
    values *= selection[k].count;
  }
  WFLOW_CHECK(values * width == into.size());
  if (is_whole(selection, shape)) {
    WFLOW_CHECK(bytes.size() == into.size());
    std::copy(bytes.begin(), bytes.end(), into.begin());
    return;
  }
  std::size_t to = 0;
  walk(lengths, stride, start, [&](std::size_t from) {
    std::memcpy(into.data() + to, bytes.data() + from, width);
    to += width;
  });
}

void convert_values(Array& array, DType target) {
  if (array.dtype == target) return;
  const std::size_t count = array.bytes.size() / dtype_size(array.dtype);
  std::vector<std::uint8_t> result(count * dtype_size(target));
  with_type(array.dtype, [&](auto from) {
    with_type(target, [&](auto to) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&from, array.bytes.data() + i * sizeof(from), sizeof(from));
        to = static_cast<decltype(to)>(from);
        std::memcpy(result.data() + i * sizeof(to), &to, sizeof(to));
      }
    });
  });
  array.bytes = std::move(result);
  array.dtype = target;
}

}  // namespace wflow::converters
