// SPDX-License-Identifier: Apache-2.0
#include "base/checked_json.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace wflow {

namespace {

constexpr std::string_view kKey = "\"wflow_checksum\"";
constexpr std::string_view kBegin = "{\n";
constexpr std::size_t kHexDigits = 32;

}  // namespace

std::string with_checksum(std::string text) {
  WFLOW_CHECK(text.starts_with(kBegin));
  const std::size_t indent = text.find_first_not_of(' ', kBegin.size()) - kBegin.size();
  const std::string line = fmt::format("{:{}}{}: \"{}\",\n", "", indent, kKey, hash_bytes(text));
  text.insert(kBegin.size(), line);
  return text;
}

CheckedJson take_checksum(std::string text) {
  const std::size_t key = text.find(kKey);
  if (key == std::string::npos) return {std::move(text), false, true};
  CheckedJson result{{}, true, false};
  const std::size_t end = text.find('\n', key);
  const std::size_t value = key + kKey.size() + 3;  // behind `: "`
  const bool in_place = text.starts_with(kBegin) && text.find_first_not_of(' ', kBegin.size()) == key &&
                        end == value + kHexDigits + 2;
  if (in_place) {
    const std::string written = text.substr(key, end + 1 - key);
    text.erase(kBegin.size(), end + 1 - kBegin.size());
    result.whole = written == fmt::format("{}: \"{}\",\n", kKey, hash_bytes(text));
  }
  result.text = std::move(text);
  return result;
}

}  // namespace wflow
