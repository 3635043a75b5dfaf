// SPDX-License-Identifier: Apache-2.0
#include "trainer/inference/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace wflow::trainer {
namespace {

constexpr std::size_t kCornerBins = 24;  // along each axis of a corner plot

// Counts of the draws in a grid over two parameters (or in bins over one), for a corner plot.
nlohmann::json histogram(const PosteriorDraws& draws, std::size_t parameters, std::size_t i, std::size_t j,
                         std::span<const std::pair<double, double>> ranges) {
  const auto bin = [&](std::size_t n, std::size_t of) {
    const auto [low, high] = ranges[of];
    const double place = (draws.values[n * parameters + of] - low) / (high - low);
    return static_cast<std::size_t>(std::clamp(place, 0.0, 1.0 - 1e-9) * kCornerBins);
  };
  std::vector<std::size_t> counts(i == j ? kCornerBins : kCornerBins * kCornerBins, 0);
  for (std::size_t n = 0; n < draws.count(); ++n)
    ++counts[i == j ? bin(n, i) : bin(n, i) * kCornerBins + bin(n, j)];
  return counts;
}

// Histograms of each parameter and of each pair of them, [i][j] with j <= i.
nlohmann::json corner_of(const PosteriorDraws& draws, const std::vector<ParameterSummary>& summaries) {
  std::vector<std::pair<double, double>> ranges;
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    double low = draws.values[i];
    double high = low;
    for (std::size_t n = 0; n < draws.count(); ++n) {
      low = std::min(low, draws.values[n * summaries.size() + i]);
      high = std::max(high, draws.values[n * summaries.size() + i]);
    }
    ranges.emplace_back(low, high > low ? high : low + 1);
  }
  nlohmann::json corner = {{"bins", kCornerBins}, {"ranges", ranges}, {"counts", nlohmann::json::array()}};
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    nlohmann::json& row = corner["counts"].emplace_back(nlohmann::json::array());
    for (std::size_t j = 0; j <= i; ++j) row.push_back(histogram(draws, summaries.size(), i, j, ranges));
  }
  return corner;
}

}  // namespace

nlohmann::json posterior_json(std::int64_t id, const PosteriorDraws& draws, std::vector<ParameterSummary> all,
                              const std::vector<std::string>& names, const std::vector<double>& truth) {
  nlohmann::json one = {{"id", id}, {"outside", draws.outside}, {"parameters", nlohmann::json::array()}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    nlohmann::json& entry = one["parameters"].emplace_back();
    entry = {{"name", names[i]},
             {"mean", all[i].mean},
             {"deviation", all[i].deviation},
             {"quantiles", all[i].quantiles}};
    if (!truth.empty()) entry["truth"] = truth[i];
  }
  if (draws.count() == 0) return one;
  one["correlations"] = correlations(draws, all);
  one["corner"] = corner_of(draws, all);
  return one;
}

std::string posterior_table(const nlohmann::json& one) {
  std::string out =
      fmt::format("observation {}\n{:<20}{:>12}{:>12}{:>12}{:>12}{:>12}", one["id"].get<std::int64_t>(),
                  "parameter", "mean", "deviation", "2.5 %", "median", "97.5 %");
  const bool known = std::ranges::any_of(one["parameters"],
                                         [](const nlohmann::json& entry) { return entry.contains("truth"); });
  out += known ? fmt::format("{:>12}\n", "truth") : "\n";
  for (const nlohmann::json& entry : one["parameters"]) {
    const std::vector<double> q = entry["quantiles"];
    out +=
        fmt::format("{:<20}{:>12.5g}{:>12.3g}{:>12.5g}{:>12.5g}{:>12.5g}", entry["name"].get<std::string>(),
                    entry["mean"].get<double>(), entry["deviation"].get<double>(), q[0], q[2], q[4]);
    out += entry.contains("truth") ? fmt::format("{:>12.5g}\n", entry["truth"].get<double>()) : "\n";
  }
  if (const double outside = one["outside"]; outside > 0.005)
    out += fmt::format(
        "{:.1f} % of the density lay outside of the training samples' range and was drawn again\n",
        100 * outside);
  return out;
}

namespace {

nlohmann::json json_of(const Calibration::Row& row, std::size_t samples) {
  const auto error = [&](double share) {
    return std::sqrt(share * (1 - share) / static_cast<double>(samples));
  };
  return {{"within_68", row.within_68}, {"within_68_error", error(0.68)},
          {"within_95", row.within_95}, {"within_95_error", error(0.95)},
          {"ranks", row.ranks},         {"p_value", row.p_value}};
}

}  // namespace

nlohmann::json calibration_json(const Calibration& calibration, const std::vector<std::string>& names,
                                bool joint) {
  nlohmann::json all = {{"samples", calibration.samples()}, {"parameters", nlohmann::json::array()}};
  for (std::size_t i = 0; i < names.size(); ++i) {
    nlohmann::json& entry =
        all["parameters"].emplace_back(json_of(calibration.parameter(i), calibration.samples()));
    entry["name"] = names[i];
    entry["mean_deviation"] = calibration.mean_deviation(i);
  }
  if (joint) all["joint"] = json_of(calibration.joint(), calibration.samples());
  return all;
}

std::string calibration_table(const nlohmann::json& calibration) {
  std::string out = fmt::format("calibration over {} samples\n{:<20}{:>18}{:>18}{:>18}{:>16}\n",
                                calibration["samples"].get<std::size_t>(), "parameter", "truths in 68 %",
                                "truths in 95 %", "ranks uniform: p", "mean deviation");
  const auto line = [&](const std::string& name, const nlohmann::json& row) {
    const auto share = [&](const char* key) {
      return fmt::format("{:.3f} +- {:.3f}", row[key].get<double>(),
                         row[std::string(key) + "_error"].get<double>());
    };
    out += fmt::format("{:<20}{:>18}{:>18}{:>18.3f}", name, share("within_68"), share("within_95"),
                       row["p_value"].get<double>());
    out += row.contains("mean_deviation") ? fmt::format("{:>16.4g}\n", row["mean_deviation"].get<double>())
                                          : "\n";
  };
  for (const nlohmann::json& row : calibration["parameters"]) line(row["name"], row);
  if (calibration["parameters"].size() > 1 && calibration.contains("joint"))
    line("all together", calibration["joint"]);
  return out;
}

}  // namespace wflow::trainer
