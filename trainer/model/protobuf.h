// SPDX-License-Identifier: Apache-2.0
// Writes protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding): the little that an
// ONNX file needs, so that nothing has to be linked for it.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace wflow::trainer {

class ProtobufMessage {
 public:
  void integer(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const ProtobufMessage& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned type) { varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace wflow::trainer
