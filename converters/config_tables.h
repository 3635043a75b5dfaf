// SPDX-License-Identifier: Apache-2.0
// What the tables of the convert: block give besides reading it: its JSON schema and the tables of
// docs/convert.md. The tables of fields are in fields.cc, the others in config.cc.
#pragma once

#include <vector>

#include "base/config_table.h"
#include "converters/fields.h"

namespace wflow::converters {

config::Json convert_schema();
std::vector<config::Section> convert_sections();

// The keys of a field. The short form of the block has some of them.
const config::Table<FieldConfig>& field_table();
// The schema of `inputs` and of `targets`.
config::Json fields_schema();
std::vector<config::Section> field_sections();

}  // namespace wflow::converters
