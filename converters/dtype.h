// SPDX-License-Identifier: Apache-2.0
// The types of values that simulations write and shards hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace wflow::converters {

enum class DType { int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32, float64 };

// Calls f with a value of the C++ type of `type`: the only such switch of the module.
template <typename F>
decltype(auto) with_type(DType type, F&& f) {
  switch (type) {
    case DType::int8:
      return f(std::int8_t{});
    case DType::uint8:
      return f(std::uint8_t{});
    case DType::int16:
      return f(std::int16_t{});
    case DType::uint16:
      return f(std::uint16_t{});
    case DType::int32:
      return f(std::int32_t{});
    case DType::uint32:
      return f(std::uint32_t{});
    case DType::int64:
      return f(std::int64_t{});
    case DType::uint64:
      return f(std::uint64_t{});
    case DType::float32:
      return f(float{});
    case DType::float64:
      break;
  }
  return f(double{});
}

inline const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> kNames = {"int8",   "uint8", "int16",  "uint16",  "int32",
                                                  "uint32", "int64", "uint64", "float32", "float64"};
  return kNames;
}

inline std::string_view dtype_name(DType type) {
  return dtype_names()[static_cast<std::size_t>(type)];
}

inline std::size_t dtype_size(DType type) {
  return with_type(type, [](auto value) { return sizeof(value); });
}

inline bool is_floating(DType type) {
  return with_type(type, [](auto value) { return std::is_floating_point_v<decltype(value)>; });
}

inline std::optional<DType> parse_dtype(std::string_view name) {
  const auto& names = dtype_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<DType>(at - names.begin());
}

}  // namespace wflow::converters
