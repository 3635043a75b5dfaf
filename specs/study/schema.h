// SPDX-License-Identifier: Apache-2.0
// The study language as JSON Schema (draft 2020-12), for editors: `wflow schema`.
#pragma once

#include <string>

namespace wflow::specs {

// Made of specs/study/study.schema.json and converters/convert.schema.json, which stand beside the readers of the same
// keys (tests/schema_test.py compares them), and of the tables in trainer/config.cc.
std::string study_schema();

// The keys of blocks as Markdown tables, a section a block: scripts/docs puts them into docs/.
std::string key_tables();

}  // namespace wflow::specs
