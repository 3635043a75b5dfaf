// SPDX-License-Identifier: Apache-2.0
// Makes one data set of the converted blocks: checks them against each other and writes the manifest.
#pragma once

#include "converters/convert/block.h"
#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// The manifest depends on the records in order of block number alone. Error{data} where a block has not been
// converted, was converted with another configuration, lost
// a shard, or where more samples are missing than max_missing allows.
// A block whose samples have another form than most samples of the data set is left out: `outvoted`, where
// given, gets these samples.
Manifest finish_conversion(const Conversion& conversion, std::vector<MissingSample>* outvoted = nullptr);

}  // namespace wflow::converters
