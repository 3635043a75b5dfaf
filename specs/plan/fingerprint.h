// SPDX-License-Identifier: Apache-2.0
// The basis of a task array: all settings that decide its outputs, except its inputs. If the bases of an
// array are equal in two plans, the array writes the same outputs for equal rows of samples and equal inputs.
// Not part of it: retries, time-outs, resources, priorities, workers, batch systems, descriptions, checks of
// outputs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::specs {

struct Basis {
  // Name ("cmd", "shell", "settings", "depends", ...) and text, always in the same order for a kind of step.
  // The text has $(CAMPAIGN) for the campaign's own path and $(LAUNCHER) for a launcher.
  std::vector<std::pair<std::string, std::string>> parts;
  // The columns of the samples whose values it uses.
  std::vector<std::string> columns;
};

Basis basis_of(const Plan& plan, ArrayId array);

// The hash of the basis and of the signatures of its columns, 32 hex digits.
std::string fingerprint_of(const Plan& plan, ArrayId array);

// The names of the parts that differ.
std::vector<std::string> differing_parts(const Basis& from, const Basis& to);

}  // namespace wflow::specs
