// SPDX-License-Identifier: Apache-2.0
// The JSON schemas and the tables of docs/ for the blocks that a table describes.
#pragma once

#include <vector>

#include "base/config_table.h"

namespace wflow::specs {

// The schema and the documentation of a block.
struct BlockTables {
  config::Json definitions;  // of the JSON schema, by name
  std::vector<config::Section> sections;
};
BlockTables batch_tables();  // batch: and workers:
BlockTables samples_tables();
BlockTables step_tables();
BlockTables plugin_tables();
BlockTables parameter_tables();
BlockTables iterate_tables();
BlockTables hook_tables();  // on: and metrics:

}  // namespace wflow::specs
