// SPDX-License-Identifier: Apache-2.0
// The studies that schedules run, made from YAML once a process, and the image of each one's new database.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/coordinate/machine.h"
#include "specs/plan/plan.h"

namespace wflow::simulation {

struct SimulatedStudy {
  std::string name;
  specs::Plan plan;
  std::vector<engine::ArraySpec> arrays = {};
  std::string database = {};  // bytes of the file that Store::create() makes
  std::vector<engine::LocalGroup> groups = {};
  // Stages of trainings that follow their data set: they may report that it is enough.
  std::set<engine::ArrayId> stages = {};
  std::uint64_t elements = 0;
  bool gangs = false;  // some of its tasks take several workers of one allocation
};

struct Studies {
  std::vector<std::unique_ptr<SimulatedStudy>> all;
  std::size_t first_later = 0;            // those from here on were added later
  std::unique_ptr<SimulatedStudy> large;  // if there is one, all schedules run it
  const SimulatedStudy& of(std::uint64_t seed) const;
};

// In a temporary directory, which is gone when they are returned.
// With `workers`, all schedules run a study that is large enough for so many.
Studies make_studies(std::size_t workers = 0);

}  // namespace wflow::simulation
