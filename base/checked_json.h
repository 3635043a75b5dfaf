// SPDX-License-Identifier: Apache-2.0
// JSON files that decide results carry a checksum of themselves in their first line, so that a reader sees
// damage that is still valid JSON:
//   {
//     "wflow_checksum": "XXH3-128 of the file without this line, 32 hex digits",
#pragma once

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

}  // namespace wflow
