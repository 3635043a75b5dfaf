// SPDX-License-Identifier: Apache-2.0
// JSON files that decide results carry a checksum of themselves in their first line, so that a reader sees
// damage that is still valid JSON:
//   {
//     "wflow_checksum": "XXH3-128 of the file without this line, 32 hex digits",
#pragma once

#include <limits>
#include <string>
#include <string_view>

namespace wflow {

// `text`: an object as nlohmann::json::dump(indent) writes it. Adds the line.
std::string with_checksum(std::string text);

struct CheckedJson {
  std::string text;     // without the line
  bool checked = false;  // it has a checksum; files of older versions have none
  bool whole = true;     // and it matches
};
CheckedJson take_checksum(std::string text);

// Reads a number of a JSON document. JSON has no NaN and no infinities: writers put null in their place, and this
// function gives NaN for null. `json`: nlohmann::json or another of its types. Throws its type error for other
// values.
template <class Json>
double number_or_nan(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.template get<double>();
}

}  // namespace wflow
