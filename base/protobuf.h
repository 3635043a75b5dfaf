// SPDX-License-Identifier: Apache-2.0
// Writes protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding): the little that
// ONNX files, TFRecord files and TensorBoard's event files need, so that nothing has to be linked for it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace wflow
