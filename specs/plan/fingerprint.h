// SPDX-License-Identifier: Apache-2.0
// What decides the outputs of a task array, apart from what it reads: of two plans whose bases of an array
// are equal, the array leaves the same outputs for equal rows of samples and equal inputs. Not in it:
// retries, time-outs, resources, priorities, workers, batch systems, descriptions, checks of outputs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "specs/plan/plan.h"

namespace wflow::specs {

struct Basis {
  // Name ("cmd", "shell", "settings", "depends", ...) and text, always in the same order for a kind of step.
  // The campaign's own path stands as $(CAMPAIGN) in it, a launcher as $(LAUNCHER).
  std::vector<std::pair<std::string, std::string>> parts;
  // Columns of the samples whose values it uses.
  std::vector<std::string> columns;
};

Basis basis_of(const Plan& plan, ArrayId array);

// 32 hex digits of all of it, with the signatures of its columns.
std::string fingerprint_of(const Plan& plan, ArrayId array);

// The names of the parts that differ.
std::vector<std::string> differing_parts(const Basis& from, const Basis& to);

}  // namespace wflow::specs
