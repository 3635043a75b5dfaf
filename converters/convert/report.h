// SPDX-License-Identifier: Apache-2.0
// What wflow-convert tells about a finished data set.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// One line: role, shape, type, and what the axes were taken for.
std::string describe_field(const FieldInfo& field);

// A summary for people: form, splits, statistics, missing samples and why.
std::string describe_dataset(const std::filesystem::path& data_directory);

struct Verification {
  std::size_t shards = 0;
  std::vector<std::string> problems;  // one sentence each
};

// Reads every byte: compares checksums with the manifest, and where they differ finds the damaged samples.
Verification verify_dataset(const std::filesystem::path& data_directory);

}  // namespace wflow::converters
