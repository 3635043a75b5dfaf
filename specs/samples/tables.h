// SPDX-License-Identifier: Apache-2.0
// The kinds of sample table behind open_samples().
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "specs/samples/samples.h"

namespace wflow::specs {

std::unique_ptr<const SampleTable> computed_table(const SampleDesign& design);  // uniform .. list
std::unique_ptr<const SampleTable> text_table(const SampleDesign& design);      // .csv, .tsv, .tab, .lines
std::unique_ptr<const SampleTable> npy_table(const SampleDesign& design);       // .npy
std::unique_ptr<const SampleTable> parts_table(const SampleDesign& design);  // several, one behind the other

// The names of `found` columns of a file: the design's, completed by numbers if it names too few.
std::vector<std::string> column_names(const SampleDesign& design, std::size_t found);

}  // namespace wflow::specs
