// SPDX-License-Identifier: Apache-2.0
// A campaign's provenance as an RO-Crate 1.1 (https://www.researchobject.org/ro-crate/specification/1.1/):
// the program, its inputs, the user, and the outputs.
#pragma once

#include <filesystem>

#include "engine/monitor/status.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

// Creates the folder `crate`, which must not exist, with ro-crate-metadata.json, the study in each of its
// versions, its table of samples, and status.json. Outputs stay where they are: the crate names them by path,
// size and SHA-256. `license`: licence of the crate, a URI or an SPDX name. Throws Error{usage} or
// Error{system}.
void write_ro_crate(const specs::Plan& plan, const engine::CampaignStatus& status, const std::string& license,
                    const std::filesystem::path& crate);

}  // namespace wflow::cli
