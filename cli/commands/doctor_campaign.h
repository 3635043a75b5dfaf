// SPDX-License-Identifier: Apache-2.0
// wflow doctor CAMPAIGN: what is wrong with a campaign that nobody runs, and the mending of it.
#pragma once

#include <string>

namespace wflow::cli {

struct DoctorOptions {
  std::string campaign;
  bool yes = false;  // mend without asking
  bool json = false;
};

// Gives the exit code: 0 where nothing is wrong (any more), 4 where something is left.
int examine_campaign(const DoctorOptions& options);

}  // namespace wflow::cli
