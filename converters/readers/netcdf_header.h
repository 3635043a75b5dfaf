// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "converters/input/input.h"

namespace wflow::converters {

// Walks through the header of a classic NetCDF file (CDF-1, 2 and 5; "The NetCDF Classic Format
// Specification") and throws Error{data} where it claims more than the file holds. libnetcdf believes such
// claims: it takes gigabytes for a list of two thousand million names. Other files pass.
void check_classic_header(const InputFile& file);

}  // namespace wflow::converters
