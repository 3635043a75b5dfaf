// SPDX-License-Identifier: Apache-2.0
// The user's campaigns, wherever they lie: a list of directories in $XDG_STATE_HOME/wflow/campaigns
// (~/.local/state/wflow/campaigns), for `wflow status --all`. A convenience: what goes wrong with it is not
// told, because no run may fail for it.
#pragma once

#include <filesystem>
#include <vector>

namespace wflow::cli {

void remember_campaign(const std::filesystem::path& campaign);

// Those that are still there, in the order in which they began; the others are forgotten.
std::vector<std::filesystem::path> remembered_campaigns();

}  // namespace wflow::cli
