// SPDX-License-Identifier: Apache-2.0
#include "converters/dtype.h"

#include <algorithm>
#include <type_traits>

namespace wflow::converters {

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> kNames = {"int8",   "uint8", "int16",  "uint16",  "int32",
                                                  "uint32", "int64", "uint64", "float32", "float64"};
  return kNames;
}

std::string_view dtype_name(DType type) {
  return dtype_names()[static_cast<std::size_t>(type)];
}

std::size_t dtype_size(DType type) {
  return with_type(type, [](auto value) { return sizeof(value); });
}

bool is_floating(DType type) {
  return with_type(type, [](auto value) { return std::is_floating_point_v<decltype(value)>; });
}

std::optional<DType> parse_dtype(std::string_view name) {
  const auto& names = dtype_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<DType>(at - names.begin());
}

}  // namespace wflow::converters
