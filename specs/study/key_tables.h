// SPDX-License-Identifier: Apache-2.0
// The JSON schemas and the tables of docs/ for the blocks that a table describes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config_table.h"

namespace wflow::specs {

// The configuration of a block whose keys other code reads.
struct KnownKeys {};
// A key of such a block.
config::Key<KnownKeys> known_key(std::string name, config::Json schema, std::string meaning);

// A definition of the schema.
config::Json schema_named(std::string_view definition);
// A mapping with any keys, whose values have this schema; or nothing.
config::Json mapping_of(config::Json values);

// The schema and the documentation of a block.
struct BlockTables {
  config::Json definitions;  // of the JSON schema, by name
  std::vector<config::Section> sections;
};
BlockTables env_tables();
BlockTables batch_tables();  // batch:, workers: and merlin:
BlockTables samples_tables();
BlockTables step_tables();
BlockTables plugin_tables();
BlockTables parameter_tables();
BlockTables iterate_tables();
BlockTables hook_tables();  // on: and metrics:

}  // namespace wflow::specs
