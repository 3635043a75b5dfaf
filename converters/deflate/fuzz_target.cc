// SPDX-License-Identifier: Apache-2.0
// The target of libFuzzer for field_deflate. Even first byte: the rest is a stream; if the decoder accepts
// it, zlib must accept it with the same result. Odd first byte: the rest is data (its second byte tells how
// to stretch it) that zlib and libdeflate must recover from its stream.
#include <libdeflate.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "converters/deflate/field_deflate.h"

namespace {

using Bytes = std::vector<std::uint8_t>;
using namespace wflow::converters;

// The size of the stream's data, by zlib; -1 if it refuses the stream.
long inflated_by_zlib(const Bytes& stream, Bytes& out) {
  uLongf length = out.size();
  uLong used = stream.size();
  const int code = ::uncompress2(out.data(), &length, stream.data(), &used);
  return code == Z_OK ? static_cast<long>(length) : -1;
}

void check_stream(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return;
  // Buffers of exactly the given size, so that the sanitizer detects accesses beyond.
  const std::size_t claimed = data[0] | std::size_t{data[1]} << 8;
  Bytes stream(data + 2, data + size);
  Bytes out(claimed);
  Bytes reference(claimed);
  FieldInflater inflater;
  const bool taken = inflater.inflate(stream, out);
  const long length = inflated_by_zlib(stream, reference);
  // Together with another stream (itself, or a good one) the result is the same.
  static const Bytes good = [] {
    Bytes data(5000);
    for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<std::uint8_t>(k * k % 17);
    Bytes made(data.size());
    FieldDeflater deflater;
    made.resize(deflater.compress(data, data.size(), made));
    return made;
  }();
  Bytes first(claimed);
  Bytes second(claimed);
  const auto twice = inflater.inflate_two({stream, stream}, {first, second});
  WFLOW_CHECK(twice[0] == taken && twice[1] == taken);
  Bytes beside(5000);
  const auto mixed = inflater.inflate_two({good, stream}, {beside, second});
  WFLOW_CHECK(mixed[0] && mixed[1] == taken);
  WFLOW_CHECK(!taken || (first == out && second == out));
  if (!taken) return;
  WFLOW_CHECK(length == static_cast<long>(claimed));
  WFLOW_CHECK(claimed == 0 || std::memcmp(out.data(), reference.data(), claimed) == 0);
}

void check_data(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return;
  const std::size_t plane = 1 + data[0] * std::size_t{97};
  const std::size_t stretch = 1 + data[1] % 64 * std::size_t{17};
  Bytes in;
  for (std::size_t k = 2; k < size; ++k) in.insert(in.end(), 1 + (data[k] & 1) * (stretch - 1), data[k]);
  if (in.size() > 1 << 20) in.resize(1 << 20);
  Bytes out(in.size() + in.size() / 50 + 600);
  FieldDeflater deflater;
  out.resize(deflater.compress(in, plane, out));
  WFLOW_CHECK(!out.empty());
  Bytes back(in.size());
  WFLOW_CHECK(inflated_by_zlib(out, back) == static_cast<long>(in.size()) && back == in);
  FieldInflater inflater;
  Bytes own(in.size());
  WFLOW_CHECK(inflater.inflate(out, own) && own == in);
  // Too small a buffer: refused, not overrun.
  Bytes small(out.size() * data[0] / 256);
  WFLOW_CHECK(deflater.compress(in, plane, small) == 0 || small.size() >= out.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  if (data[0] % 2 == 0) {
    check_stream(data + 1, size - 1);
  } else {
    check_data(data + 1, size - 1);
  }
  return 0;
}
