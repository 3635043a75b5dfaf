// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/missing.h"

#include "cli/campaign/selection.h"

namespace wflow::cli {

std::vector<std::pair<specs::ArrayId, engine::Range>> missing_parts(const specs::Plan& plan, engine::Client& client) {
  SelectionOptions selection;
  selection.states = {"missing"};
  std::vector<std::pair<specs::ArrayId, engine::Range>> parts;
  select_tasks(plan, client, selection, [&](const TaskRow& row) {
    const bool joins =
        !parts.empty() && parts.back().first == row.array && parts.back().second.last + 1 == row.element;
    joins ? void(parts.back().second.last = row.element) : parts.push_back({row.array, {row.element, row.element}});
    return true;
  });
  return parts;
}

}  // namespace wflow::cli
