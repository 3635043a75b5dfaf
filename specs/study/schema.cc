// SPDX-License-Identifier: Apache-2.0
#include "specs/study/schema.h"

#include <nlohmann/json.hpp>

#include "specs/study/schema_text.h"
#include "trainer/config_tables.h"

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
  definitions["train"] = trainer::train_schema();
  return schema.dump(2) + "\n";
}

std::string key_tables() {
  std::string text;
  for (const config::Section& section : trainer::train_sections())
    text += "## " + section.name + "\n\n" + config::markdown(section.rows) + "\n";
  return text;
}

}  // namespace wflow::specs
