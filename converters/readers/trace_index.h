// SPDX-License-Identifier: Apache-2.0
// The traces of a bundle of samples (plugin/trace_host.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "converters/readers/reader.h"
#include "traces/distribution.h"

namespace wflow::converters {

bool is_trace_index(const std::filesystem::path& path);
std::unique_ptr<InputReader> open_trace_index(const std::filesystem::path& path);
// The rows of a sample, by a reader of open_trace_index(): traces::kRowValues numbers each.
std::vector<double> read_trace(InputReader& reader, std::uint64_t row);

}  // namespace wflow::converters
