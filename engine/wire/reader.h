// SPDX-License-Identifier: Apache-2.0
// A pull reader of MessagePack that allocates nothing by itself and trusts no length: what is read stays
// within the bytes, and an array's count is checked against the bytes that are left. Needed because a
// library's unpack() allocates by the lengths that the sender claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace wflow::engine::wire {

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  // Each reads one value of its kind, or gives false and leaves the reader failed.
  bool unsigned_integer(std::uint64_t& value);
  bool signed_integer(std::int64_t& value);
  bool boolean(bool& value);
  bool real(double& value);
  bool text(std::string_view& value);  // str or bin; a view into the bytes
  // The header of an array; false when `count` elements of at least `element_bytes` cannot follow.
  bool array(std::uint64_t& count, std::size_t element_bytes);

  bool at_end() const { return !failed_ && rest_.empty(); }

 private:
  bool fail();
  bool byte(std::uint8_t& value);
  bool big_endian(std::size_t bytes, std::uint64_t& value);
  // The value of an integer of any width: `negative` tells how to read `value`.
  bool integer(std::uint64_t& value, bool& negative);

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace wflow::engine::wire
