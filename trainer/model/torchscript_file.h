// SPDX-License-Identifier: Apache-2.0
// The members of an exported module besides its network, for export_model() and for export_module().
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/model/model_export.h"

namespace wflow::trainer {

// Scale of an input or an output; kept in float64 where `wide`. `shape` broadcasts over samples and cells.
struct ModuleScale {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
  bool wide = false;
};

using ModuleAttribute =
    std::variant<bool, std::string, std::vector<bool>, std::vector<std::int64_t>, std::vector<double>,
                 std::vector<std::string>, std::vector<std::vector<std::int64_t>>,
                 std::vector<std::vector<double>>, std::vector<std::vector<std::string>>>;

struct ModuleMembers {
  std::vector<ModuleScale> scales;
  std::vector<std::pair<std::string, ModuleAttribute>> attributes;
};

// The members that export_model() adds to the network: normalisation, and the description of inputs and
// outputs.
ModuleMembers members_of(const ModelGraph& graph, const ExportedUnits& units);

}  // namespace wflow::trainer
