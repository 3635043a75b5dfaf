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

// Whole numbers in as few bytes as possible: seven bits a byte, lowest first, the highest bit set on all but
// the last (LEB128).
inline void put_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>(value | 0x80U);
  bytes += static_cast<char>(value);
}

// Takes a number from the front; false if the bytes end inside it.
inline bool get_varint(std::string_view& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80U) return true;
  }
  return false;
}

template <class Bits>
void put_little_endian(std::string& bytes, Bits bits) {
  for (unsigned at = 0; at < 8 * sizeof bits; at += 8) bytes += static_cast<char>(bits >> at & 0xff);
}

class ProtobufMessage {
 public:
  void integer(int field, std::int64_t value) {
    key(field, 0);
    put_varint(bytes_, static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    key(field, 5);
    put_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
  }
  void real(int field, double value) {
    key(field, 1);
    put_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
  }
  void text(int field, std::string_view value) {
    begin(field, value.size());
    bytes_ += value;
  }
  void message(int field, const ProtobufMessage& value) { text(field, value.bytes_); }
  // The beginning of a text or message of so many bytes, which the caller writes behind bytes().
  void begin(int field, std::uint64_t count) {
    key(field, 2);
    put_varint(bytes_, count);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned type) { put_varint(bytes_, static_cast<std::uint64_t>(field) << 3 | type); }

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
  const auto span = [](std::string_view text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  std::string record;
  record.reserve(bytes.size() + kTfrecordHeader + kTfrecordTrailer);
  put_little_endian(record, static_cast<std::uint64_t>(bytes.size()));
  const std::uint32_t crc = masked_crc32c(span(record));
  put_little_endian(record, crc);
  record += bytes;
  put_little_endian(record, masked_crc32c(span(bytes)));
  return record;
}

}  // namespace wflow
