// SPDX-License-Identifier: Apache-2.0
// What `wflow analyze` found of a training (docs/analyze.md).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kOutputs = 8;  // with figures
constexpr std::size_t kInputs = 15;  // of one figure or table, those that matter most
constexpr std::size_t kEffects = 6;  // curves in one plot

std::string interval(const nlohmann::json& input, const char* key) {
  if (!input.contains(key)) return "";
  const nlohmann::json& estimate = input.at(key);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", estimate.at("value").get<double>(),
                     estimate.at("low").get<double>(), estimate.at("high").get<double>());
}

double value(const nlohmann::json& input, const char* key) {
  return input.at(key).at("value").get<double>();
}

// The inputs by their total index, the largest first.
std::vector<nlohmann::json> ordered_inputs(const nlohmann::json& model) {
  std::vector<nlohmann::json> inputs = model.at("inputs");
  std::ranges::stable_sort(
      inputs, [](const auto& a, const auto& b) { return value(a, "total") > value(b, "total"); });
  if (inputs.size() > kInputs) inputs.resize(kInputs);
  return inputs;
}

void add_shares(const std::string& name, const std::vector<nlohmann::json>& inputs, Page& page) {
  plot::Figure figure{.id = plot::figure_id("shares-" + name),
                      .kind = plot::Kind::bars,
                      .title = fmt::format("{}: share of the variance", name)};
  figure.x = {.name = "share of the variance"};
  figure.series = {{.name = "alone"}, {.name = "in interactions"}};
  for (const nlohmann::json& input : inputs) {
    figure.categories.push_back(input.at("name").get<std::string>());
    const double alone = std::max(0.0, value(input, "first"));
    figure.series[0].y.push_back(alone);
    figure.series[1].y.push_back(std::max(0.0, value(input, "total") - alone));
  }
  page.figure(std::move(figure));
}

void add_effects(const std::string& name, const std::vector<nlohmann::json>& inputs, Page& page) {
  plot::Figure figure{.id = plot::figure_id("effects-" + name),
                      .kind = plot::Kind::lines,
                      .title = fmt::format("{}: main effects", name)};
  figure.caption = "The mean of the output over all other inputs.";
  figure.x = {.name = "place in the range of the input"};
  figure.y = {.name = name};
  for (std::size_t i = 0; i < std::min(inputs.size(), kEffects); ++i) {
    plot::Series series{.name = inputs[i].at("name").get<std::string>(),
                        .y = inputs[i].at("main_effect").get<std::vector<double>>()};
    for (std::size_t k = 0; k < series.y.size(); ++k)
      series.x.push_back((static_cast<double>(k) + 0.5) / static_cast<double>(series.y.size()));
    figure.series.push_back(std::move(series));
  }
  page.figure(std::move(figure));
}

void add_model(const std::string& name, const nlohmann::json& model, Page& page) {
  if (model.at("variance").get<double>() == 0) return page.paragraph(name + " is constant.");
  const std::vector<nlohmann::json> inputs = ordered_inputs(model);
  add_shares(name, inputs, page);
  add_effects(name, inputs, page);
  PageTable table{{"input", "alone [95 %]", "with interactions [95 %]", "|dy/dx| x range [95 %]"},
                  {false, true, true, true},
                  {}};
  for (const nlohmann::json& input : inputs)
    table.rows.push_back({input.at("name").get<std::string>(), interval(input, "first"),
                          interval(input, "total"), interval(input, "gradient")});
  page.table(table);
}

}  // namespace

void write_analysis(const TrainingResult& training, Page& page) {
  const nlohmann::json& outputs = training.analysis.at("outputs");
  page.heading(fmt::format("{}: what matters", training.task));
  const nlohmann::json checksums = training.result.value("checksums", nlohmann::json::object());
  if (training.analysis.value("model_checksum", nlohmann::json()) !=
      checksums.value("model.pt", nlohmann::json()))
    page.note(
        fmt::format("The analysis of {} is of an earlier model: run wflow analyze again.", training.task));
  for (std::size_t k = 0; k < std::min(outputs.size(), kOutputs); ++k) {
    const nlohmann::json& output = outputs[k];
    const std::string name = fmt::format("{} {}", training.task, output.at("name").get<std::string>());
    add_model(name, output.at("network"), page);
    if (output.contains("gaussian_process"))
      add_model(name + " (Gaussian process)", output.at("gaussian_process"), page);
  }
  if (outputs.size() > kOutputs)
    page.paragraph(fmt::format("The first {} of {} outputs.", kOutputs, outputs.size()));
}

}  // namespace wflow::cli::report
