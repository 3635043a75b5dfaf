// SPDX-License-Identifier: Apache-2.0
// The framing of TFRecord files and of TensorBoard's event files
// (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details): records of
//   uint64 length, uint32 masked CRC-32C of the length, the bytes, uint32 masked CRC-32C of the bytes
// one behind the other, all little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace wflow {

constexpr std::size_t kTfrecordHeader = 12;  // the length and its checksum
constexpr std::size_t kTfrecordTrailer = 4;

// A CRC-32C of bytes that may hold CRCs themselves is stored rotated, with a constant added.
std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes);

// The bytes as a record of a file.
std::string tfrecord_of(std::string_view bytes);

}  // namespace wflow
