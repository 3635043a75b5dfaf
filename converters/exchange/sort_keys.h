// SPDX-License-Identifier: Apache-2.0
// The keys of `wflow shards sort` for the samples of a shard.
#pragma once

#include <string>
#include <vector>

#include "converters/shards/shard_file.h"

namespace wflow::converters {

// For each key, the values of all rows. A key is a field of one number, a number of a list by its name, or
// `length`: that of the data set's one ragged field; `length(NAME)` names one of several. Error{usage} if
// there is no such key.
std::vector<std::vector<double>> sort_keys(const ShardFile& shard, const Manifest& manifest,
                                           const std::vector<std::string>& keys);

}  // namespace wflow::converters
