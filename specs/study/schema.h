// SPDX-License-Identifier: Apache-2.0
// The study language as JSON Schema (draft 2020-12), for editors: `wflow schema`.
#pragma once

#include <string>

namespace wflow::specs {

// Made of specs/study/study.schema.json, converters/convert.schema.json and trainer/train.schema.json, which
// stand beside the readers of the same keys. tests/schema_test.py holds them together.
std::string study_schema();

}  // namespace wflow::specs
