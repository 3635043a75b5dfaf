// SPDX-License-Identifier: Apache-2.0
// The order of samples whose neighbours are alike, for batches of one type or of similar lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"

namespace wflow::trainer {

// The samples in the order of the keys, those of equal keys by their number: the order of `wflow shards
// sort`. A key is a label, an input of one number, a number of a list by its name, `length` (of the one
// ragged field) or `length(NAME)`. Empty without keys. Error{spec} if there is no such key.
std::vector<std::uint32_t> order_by(const std::vector<std::string>& keys, const DatasetInfo& info,
                                    const SampleSource& samples);

}  // namespace wflow::trainer
