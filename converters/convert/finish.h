// SPDX-License-Identifier: Apache-2.0
// Makes one data set of the converted blocks: checks them against each other and writes the manifest.
#pragma once

#include "converters/convert/block.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// The manifest depends on the records in order of block number alone. Error{data} where a block has not been
// converted, was converted with another configuration, disagrees with the others in shape or type, lost
// a shard, or where more samples are missing than max_missing allows.
Manifest finish_conversion(const Conversion& conversion);

}  // namespace wflow::converters
