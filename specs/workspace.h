// SPDX-License-Identifier: Apache-2.0
// The campaign directory: made once, read again by every resume.
#pragma once

#include <filesystem>
#include <string_view>

#include "specs/plan.h"
#include "specs/study.h"

namespace wflow::specs {

// Stands where a campaign has no time yet (wflow validate, wflow plan).
inline constexpr std::string_view kNoTimestamp = "YYYYMMDD-HHMMSS";

// OUTPUT_PATH/<name with blanks as _>_<timestamp>, absolute.
std::filesystem::path campaign_directory(const Study& study, std::string_view timestamp);

// Makes `plan.campaign()`: merlin_info/ with the three copies of the study and the sample file,
// .wflow/spec/ with what read_campaign() needs, git dependencies, and the sample file where the study has a
// command for it. Gives the plan to run: read back from the directory, so that every resume has the same one,
// and with the number of samples known. Throws Error{usage} when the directory is a campaign already.
[[nodiscard]] Plan create_campaign(const Plan& plan);

// The study of a campaign, with the options it was created with.
Study read_campaign(const std::filesystem::path& campaign);

}  // namespace wflow::specs
