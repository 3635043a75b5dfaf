// SPDX-License-Identifier: Apache-2.0
// Normalising by the statistics of the training samples, as a field's manifest says (Normalisation), and
// back.
#pragma once

#include <span>

#include "converters/shards/shard_reader.h"

namespace wflow::converters {

// `values`: of the channels `first` to `first + count` of the field, as many of each, one channel behind the
// other. A constant channel becomes 0 (of min_max: low).
void apply_normalisation(const FieldInfo& field, std::span<float> values, std::size_t first,
                         std::size_t count);
void apply_normalisation(const FieldInfo& field, std::span<float> values);
// What apply_normalisation was given; beyond the training values (quantile: their least and greatest) it
// can't know.
void undo_normalisation(const FieldInfo& field, std::span<float> values);

}  // namespace wflow::converters
