// SPDX-License-Identifier: Apache-2.0
// The JSON schemas and the tables of docs/spec.md for the blocks that a table describes.
#pragma once

#include <vector>

#include "base/config_table.h"

namespace wflow::specs {

// Adds batch, pool_batch and worker to the schema's definitions.
void add_batch_schemas(config::Json& definitions);
std::vector<config::Section> batch_sections();

}  // namespace wflow::specs
