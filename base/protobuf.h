// SPDX-License-Identifier: Apache-2.0
// Writes the wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding), as far as
// ONNX files, TFRecord files and TensorBoard's event files need it: no library has to be linked for that. And
// the records of the last two.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/checksum.h"

namespace wflow {

class ProtobufMessage {
 public:
  void integer(int field, std::int64_t value) {
    key(field, 0);
    varint(bytes_, static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    key(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value));
  }
  void real(int field, double value) {
    key(field, 1);
    little_endian(std::bit_cast<std::uint64_t>(value));
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(bytes_, value.size());
    bytes_ += value;
  }
  void message(int field, const ProtobufMessage& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

  // For the values of a packed list.
  static void varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
    out += static_cast<char>(value);
  }

 private:
  void key(int field, unsigned type) { varint(bytes_, static_cast<std::uint64_t>(field) << 3 | type); }
  template <class Bits>
  void little_endian(Bits bits) {
    for (unsigned at = 0; at < 8 * sizeof bits; at += 8) bytes_ += static_cast<char>(bits >> at & 0xff);
  }

  std::string bytes_;
};

// The framing of TFRecord files and of TensorBoard's event files
// (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details): records of
//   uint64 length, uint32 masked CRC-32C of the length, the bytes, uint32 masked CRC-32C of the bytes
// one behind the other, all little-endian.
constexpr std::size_t kTfrecordHeader = 12;  // the length and its checksum
constexpr std::size_t kTfrecordTrailer = 4;

// A CRC-32C of bytes that may hold CRCs themselves is stored rotated, with a constant added.
inline std::uint32_t masked_crc32c(std::span<const std::uint8_t> bytes) {
  constexpr std::uint32_t kMaskDelta = 0xA282EAD8U;
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMaskDelta;
}

// The bytes as a record of a file.
inline std::string tfrecord_of(std::string_view bytes) {
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
