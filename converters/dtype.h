// SPDX-License-Identifier: Apache-2.0
// The types of values that simulations write and shards hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::converters {

enum class DType { int8, uint8, int16, uint16, int32, uint32, int64, uint64, float32, float64 };

std::string_view dtype_name(DType type);
std::size_t dtype_size(DType type);
bool is_floating(DType type);
std::optional<DType> parse_dtype(std::string_view name);
const std::vector<std::string>& dtype_names();

// Calls f with a value of the C++ type that stands for `type`: one switch for the module.
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

}  // namespace wflow::converters
