// SPDX-License-Identifier: Apache-2.0
// Posteriors as JSON and as tables: the common part of `wflow infer` with a density and with traces.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/inference/posterior.h"

namespace wflow::trainer {

inline constexpr std::size_t kJsonObservations = 20;  // in inference.json
inline constexpr std::size_t kTableObservations = 5;  // on standard output

// An observation in inference.json: `truth` may be empty.
nlohmann::json posterior_json(std::int64_t id, const PosteriorDraws& draws,
                              std::vector<ParameterSummary> summaries, const std::vector<std::string>& names,
                              const std::vector<double>& truth);
std::string posterior_table(const nlohmann::json& one);

// `joint`: the calibration has the densities of draws and truths.
nlohmann::json calibration_json(const Calibration& calibration, const std::vector<std::string>& names,
                                bool joint);
std::string calibration_table(const nlohmann::json& calibration);

}  // namespace wflow::trainer
