// SPDX-License-Identifier: Apache-2.0
// Runs of a simulator that speaks PPX, with the draws and observations that it asks for handed to wflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "program.h"
#include "wflow_plugin.h"
#include "wflow_trace.h"

namespace wflow::ppx {

// Messages of PPX (ppx.fbs): what a simulator asks, as values, and wflow's answers as bytes.

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

class Session {
 public:
  Session(std::string command, std::string directory);

  // The arrays that a run from the prior observes. std::runtime_error if it observes none, and as run().
  std::vector<::wflow_array> describe();
  // One run; the program is started where none is there. std::runtime_error with a sentence about the
  // program, which has then been ended. It is ended, too, after a mistake that `trace` knows of.
  void run(::wflow_trace& trace);

 private:
  // The messages of a run that observe an array.
  struct Seen {
    std::uint64_t values = 0;
    std::uint64_t messages = 0;
    std::vector<std::int32_t> shape;  // of the first message
  };

  void start();
  void follow(::wflow_trace& trace);
  Bytes answer(const Request& request, ::wflow_trace& trace);
  Array sample(const Request& request, ::wflow_trace& trace);
  void observe(const Request& request, ::wflow_trace& trace);
  static void tag(const std::string& name, const Array& array, ::wflow_trace& trace);

  std::string command_;
  std::string directory_;
  std::unique_ptr<Program> program_;
  std::map<std::string, Seen, std::less<>> observed_;               // in this run
  std::map<std::string, std::uint64_t, std::less<>> uncontrolled_;  // draws of this run
  std::vector<std::string> names_;                                  // of describe()'s arrays
};

}  // namespace wflow::ppx
