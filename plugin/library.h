// SPDX-License-Identifier: Apache-2.0
// A simulator in a shared library, loaded and checked.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "plugin/wflow_plugin.h"

namespace wflow::plugin {

// C's tag and function of that name share it; C++ needs a name for the tag alone.
using Description = struct ::wflow_plugin;

// Loads the library (it stays loaded) and asks `symbol` for its description. Throws Error{spec} with file and
// reason.
const Description& load_library(const std::string& path, const std::string& symbol);

inline std::span<const wflow_array> arrays_of(const Description& plugin) {
  return {plugin.arrays, plugin.array_count};
}

// Values of one sample's array, and the bytes of one of them.
std::size_t values_of(const wflow_array& array);
std::size_t value_bytes(const wflow_array& array);

}  // namespace wflow::plugin
