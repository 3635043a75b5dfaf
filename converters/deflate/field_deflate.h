// SPDX-License-Identifier: Apache-2.0
// A zlib stream (RFC 1950, RFC 1951) for byte planes of simulation fields, several times as fast as a search
// for matches. Such planes have almost no repeated strings: an entropy code and runs of one byte
// compress them. So the compressor emits only literals and matches of distance 1, in blocks with codes of at
// most kMostCodeBits bits; the decoder looks up several literals at once. zlib, libdeflate and HDF5's filter
// read the streams like any other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace wflow::converters {

// The instruction set of the kernels in use: "avx2" or "plain". WFLOW_DEFLATE=plain in the environment forces
// the latter, WFLOW_DEFLATE=portable the ones of other processors than x86. The bytes are the same.
const char* deflate_kernels_name();

// Use one for each thread. Keeps its memory between calls.
class FieldDeflater {
 public:
  FieldDeflater();
  ~FieldDeflater();
  FieldDeflater(FieldDeflater&&) noexcept;

  // Compresses `in`: planes of `plane` bytes each, whose statistics differ (the last may be shorter). Returns
  // the size of the stream in `out`; 0 if that is too small. The same input gives the same bytes on every
  // machine.
  std::size_t compress(std::span<const std::uint8_t> in, std::size_t plane, std::span<std::uint8_t> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Use one for each thread.
class FieldInflater {
 public:
  FieldInflater();
  ~FieldInflater();
  FieldInflater(FieldInflater&&) noexcept;

  // Fills `out` exactly from a stream of FieldDeflater (or one that happens to use no more of deflate). False
  // for any other stream: another compressor's, or damaged. `out` is then undefined, and libdeflate tells
  // which of both it is. No stream makes it read or write out of bounds.
  bool inflate(std::span<const std::uint8_t> stream, std::span<std::uint8_t> out);
  // Two streams at once, in less time than one after the other; true for each that was accepted.
  std::array<bool, 2> inflate_two(const std::array<std::span<const std::uint8_t>, 2>& streams,
                                  const std::array<std::span<std::uint8_t>, 2>& outs);

 private:
  struct Stream;
  std::unique_ptr<Stream> first_;
  std::unique_ptr<Stream> second_;
};

}  // namespace wflow::converters
