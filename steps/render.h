// SPDX-License-Identifier: Apache-2.0
// Commands with the values of one sample put in.
#pragma once

#include <string>
#include <string_view>

#include "specs/samples.h"
#include "specs/template.h"

namespace wflow::steps {

// Whether the text differs from sample to sample.
bool has_sample_tokens(const specs::Pieces& pieces);

// Throws Error{data} when `pieces` name a column or row that `samples` lacks.
void check_columns(const specs::Pieces& pieces, const specs::SampleTable* samples);

std::string render(const specs::Pieces& pieces, const specs::SampleTable* samples, std::uint64_t row,
                   std::string_view sample_path);

}  // namespace wflow::steps
