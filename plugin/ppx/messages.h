// SPDX-License-Identifier: Apache-2.0
// Messages of PPX (ppx.fbs): what a simulator asks, as values, and wflow's answers as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace wflow::ppx {

struct Array {
  std::vector<double> values;
  std::vector<std::int32_t> shape;
};

// Values that are drawn or observed together, each from a distribution of its own.
struct Values {
  std::uint32_t kind = 0;                       // of wflow_trace.h
  std::vector<std::vector<double>> parameters;  // of each value
  std::vector<std::int32_t> shape;
};

struct Request {
  enum class Kind { handshake_result, run_result, sample, observe, tag, reset };
  Kind kind = Kind::reset;
  std::string name;  // or, where it is empty, the address
  Values values;     // sample, observe
  bool control = true;
  bool replace = false;
  Array array;  // run_result, tag
};

// std::runtime_error with what is wrong if the bytes are no message that a simulator sends, or ask for what
// wflow has not.
Request parse_request(std::span<const std::uint8_t> bytes);

using Bytes = std::vector<std::uint8_t>;
Bytes handshake();
Bytes run();
Bytes sample_result(const Array& values);
Bytes observe_result();
Bytes tag_result();

}  // namespace wflow::ppx
