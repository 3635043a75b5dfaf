// SPDX-License-Identifier: Apache-2.0
#include "specs/study/schema.h"

#include <nlohmann/json.hpp>

#include "specs/study/schema_text.h"

namespace wflow::specs {

std::string study_schema() {
  using Json = nlohmann::ordered_json;
  Json schema = Json::parse(kStudySchema);
  Json& definitions = schema["$defs"];
  // They stand in run: or beside it. Merged here, because few editors know unevaluatedProperties.
  const Json keys = definitions["step_keys"];
  definitions.erase("step_keys");
  for (const char* home : {"run", "step"}) definitions[home]["properties"].update(keys);
  definitions["convert"] = Json::parse(kConvertSchema);
  definitions["train"] = Json::parse(kTrainSchema);
  return schema.dump(2) + "\n";
}

}  // namespace wflow::specs
