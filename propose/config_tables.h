// SPDX-License-Identifier: Apache-2.0
// The keys of the propose: block as data: for the study's JSON schema and for docs/.
#pragma once

#include <vector>

#include "base/config_table.h"

namespace wflow::propose {

config::Json propose_schema();
std::vector<config::Section> propose_sections();

}  // namespace wflow::propose
