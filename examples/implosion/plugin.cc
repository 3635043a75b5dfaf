// SPDX-License-Identifier: Apache-2.0
// The simulator as a plugin of wflow (docs/plugins.md).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "simulation.h"
#include "wflow_plugin.h"

namespace {

using implosion::Capsule;
using implosion::ProfileTable;

constexpr std::array<std::pair<std::string_view, double Capsule::*>, 5> kParameters = {{
    {"laser_energy", &Capsule::laser_energy_mj},
    {"thickness", &Capsule::thickness_um},
    {"adiabat", &Capsule::adiabat},
    {"p2", &Capsule::p2},
    {"p4", &Capsule::p4},
}};

const wflow_array kArrays[] = {
    {"scalars", WFLOW_FLOAT64, 1, {implosion::kScalars}},
    {"images", WFLOW_FLOAT32, 3, {implosion::kBands, implosion::kPixels, implosion::kPixels}},
};

// The state of a process from sample to sample.
struct Simulator {
  ProfileTable table;
  std::vector<double Capsule::*> columns;  // where each parameter goes
};

void tell(char* error, std::size_t bytes, const char* sentence) {
  std::snprintf(error, bytes, "%s", sentence);
}

int begin(const wflow_context* context, void** state, char* error, std::size_t error_bytes) try {
  auto simulator = std::make_unique<Simulator>();
  for (std::uint32_t k = 0; k < context->parameters; ++k) {
    const auto found = std::find_if(kParameters.begin(), kParameters.end(), [&](const auto& parameter) {
      return parameter.first == context->parameter_names[k];
    });
    if (found != kParameters.end()) simulator->columns.push_back(found->second);
  }
  if (context->parameters != kParameters.size() || simulator->columns.size() != kParameters.size()) {
    tell(error, error_bytes, "the parameters must be laser_energy, thickness, adiabat, p2 and p4");
    return 1;
  }
  *state = simulator.release();
  return 0;
} catch (const std::exception& problem) {
  tell(error, error_bytes, problem.what());
  return 1;
}

int run(void* state, std::uint64_t, const double* parameters, void* const* results, char* error,
        std::size_t error_bytes) try {
  const auto& simulator = *static_cast<const Simulator*>(state);
  Capsule capsule;
  for (std::size_t k = 0; k < simulator.columns.size(); ++k) capsule.*simulator.columns[k] = parameters[k];
  implosion::simulate(capsule, simulator.table, {static_cast<double*>(results[0]), implosion::kScalars},
                      {static_cast<float*>(results[1]), implosion::kImageValues});
  return 0;
} catch (const std::exception& problem) {
  tell(error, error_bytes, problem.what());
  return 1;
}

void end(void* state) {
  delete static_cast<Simulator*>(state);
}

const struct wflow_plugin kPlugin = {WFLOW_PLUGIN_ABI, 2, kArrays, begin, run, end, nullptr};

}  // namespace

extern "C" const struct wflow_plugin* wflow_plugin(void) {
  return &kPlugin;
}
