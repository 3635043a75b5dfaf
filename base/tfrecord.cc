// SPDX-License-Identifier: Apache-2.0
#include "base/tfrecord.h"

#include "base/crc32c.h"

namespace wflow {

std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes) {
  constexpr std::uint32_t kMaskDelta = 0xA282EAD8U;
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

std::string tfrecord_of(std::string_view bytes) {
  const auto put = [](std::string& out, auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto span = [](std::string_view text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  std::string record;
  record.reserve(bytes.size() + kTfrecordHeader + kTfrecordTrailer);
  put(record, static_cast<std::uint64_t>(bytes.size()));
  const std::uint32_t crc = masked_crc32c(span(record));
  put(record, crc);
  record += bytes;
  put(record, masked_crc32c(span(bytes)));
  return record;
}

}  // namespace wflow
