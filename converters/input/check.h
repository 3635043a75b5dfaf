// SPDX-License-Identifier: Apache-2.0
// Checks that a file of a simulation matches the declaration of its step (outputs: of a study).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace wflow::converters {

struct OutputCheck {
  std::string file;
  std::string dataset;               // HDF5; empty: the only one of its root group
  std::vector<std::uint64_t> shape;  // slowest axis first; empty: any
  bool finite = false;               // neither NaN nor infinity
};

// [{"file": ..., "dataset": ..., "shape": [...], "finite": ...}, ...]; only `file` must be there. Throws
// Error{usage}.
std::vector<OutputCheck> checks_from_json(const std::string& text);

// Throws Error{data} with a sentence that names the file and the error.
void check(const OutputCheck& expected);

}  // namespace wflow::converters
