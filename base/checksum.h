// SPDX-License-Identifier: Apache-2.0
// Checksums, and the formats of files that carry them inside: zip files (libtorch's models, whose checksums
// libtorch ignores) and JSON files that decide results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wflow {

// The CRC-32 of zip files, as in zlib; `crc` is the checksum of the preceding bytes.
std::uint32_t crc32(std::string_view bytes, std::uint32_t crc = 0);

// Describes the damage: "its member model/data/3 is damaged", or that it is no zip file. Reads the whole
// file, and inflates compressed members (code and constants of a model).
std::optional<std::string> zip_damage(const std::filesystem::path& path);

// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as iSCSI (RFC 3720) and TFRecord use it.
std::uint32_t crc32c(std::span<const std::uint8_t> bytes);

// XXH3-128 of bytes that come in pieces.
class HashStream {
 public:
  HashStream();
  ~HashStream();
  HashStream(const HashStream&) = delete;
  HashStream& operator=(const HashStream&) = delete;
  void add(std::string_view bytes);
  std::string text() const;  // as hash_bytes() of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// True if the last 32 bytes of the file are hash_bytes() of all bytes before them, as in a checkpoint.
bool ends_with_its_hash(const std::filesystem::path& path);

// JSON files that decide results carry their own checksum in the first line, so that a reader detects damage
// that is still valid JSON:
//   {
//     "wflow_checksum": "XXH3-128 of the file without this line, 32 hex digits",
//
// `text`: an object as nlohmann::json::dump(indent) writes it. Adds the line.
std::string with_checksum(std::string text);

struct CheckedJson {
  std::string text;      // without the line
  bool checked = false;  // has a checksum; files of older versions have none
  bool whole = true;     // the checksum matches
};
CheckedJson take_checksum(std::string text);

// Reads a number of a JSON document. JSON has no NaN and no infinities: writers put null in their place, and
// this function gives NaN for null. `json`: nlohmann::json or another of its types. Throws its type error for
// other values.
template <class Json>
double number_or_nan(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.template get<double>();
}

}  // namespace wflow
