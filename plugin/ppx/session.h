// SPDX-License-Identifier: Apache-2.0
// Runs of a simulator that speaks PPX, with the draws and observations that it asks for handed to wflow.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "messages.h"
#include "program.h"
#include "wflow_plugin.h"
#include "wflow_trace.h"

namespace wflow::ppx {

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
