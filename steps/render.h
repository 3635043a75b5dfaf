// SPDX-License-Identifier: Apache-2.0
// Commands with the values of one sample put in.
#pragma once

#include <string>
#include <string_view>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"

namespace wflow::steps {

// Whether the text differs from sample to sample.
bool has_sample_tokens(const specs::Pieces& pieces);

// Throws Error{data} when `pieces` name a column or row that `samples` lacks.
void check_columns(const specs::Pieces& pieces, const specs::SampleTable* samples);

// The samples of one process of a bundled step.
struct BundleRows {
  std::string file;  // absolute path of samples_csv()
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

std::string render(const specs::Pieces& pieces, const specs::SampleTable* samples, std::uint64_t row,
                   std::string_view sample_path, const BundleRows* bundle = nullptr);

// The rows of a process: MERLIN_SAMPLE_ID and all columns, after a line with their names. Cells as commands
// get them.
std::string samples_csv(const specs::SampleTable& samples, std::uint64_t first, std::uint64_t count);

}  // namespace wflow::steps
