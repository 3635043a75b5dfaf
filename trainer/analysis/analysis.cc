// SPDX-License-Identifier: Apache-2.0
#include "trainer/analysis/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/csv.h"
#include "base/program_file.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kShownPairs = 10;
constexpr double kTrustedR2 = 0.9;          // below, the table warns
constexpr double kShownInteraction = 0.01;  // a smaller share of the variance is not in the table

double low(const Estimate& estimate) {
  return estimate.value - kIntervalDeviations * estimate.deviation;
}
double high(const Estimate& estimate) {
  return estimate.value + kIntervalDeviations * estimate.deviation;
}

nlohmann::json to_json(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", low(estimate)}, {"high", high(estimate)}};
}

nlohmann::json to_json(const ModelAnalysis& model, const std::vector<InputRange>& inputs) {
  const SobolIndices& indices = model.indices;
  nlohmann::json of_inputs = nlohmann::json::array();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    nlohmann::json& one = of_inputs.emplace_back();
    one = {{"name", inputs[i].name}, {"main_effect", model.effects[i]}};
    if (!indices.first.empty()) one["first"] = to_json(indices.first[i]);
    if (!indices.total.empty()) one["total"] = to_json(indices.total[i]);
    if (!model.gradients.empty()) one["gradient"] = to_json(model.gradients[i]);
  }
  nlohmann::json interactions = nlohmann::json::array();
  for (std::size_t k = 0; k < indices.second.size(); ++k) {
    const auto [i, j] = indices.pairs[k];
    interactions.push_back(to_json(indices.second[k]));
    interactions.back()["inputs"] = {inputs[i].name, inputs[j].name};
  }
  return {{"mean", indices.mean},
          {"variance", indices.variance},
          {"inputs", std::move(of_inputs)},
          {"interactions", std::move(interactions)},
          {"errors", model.errors}};
}

// Lines of a table: the first column is aligned left, the others right.
class Lines {
 public:
  explicit Lines(std::vector<std::string> headings) { add(std::move(headings)); }
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string text() const {
    std::vector<std::size_t> widths(rows_.front().size(), 0);
    for (const auto& row : rows_)
      for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], row[k].size());
    std::string text;
    for (const auto& row : rows_) {
      std::string line = fmt::format("  {:<{}}", row[0], widths[0]);
      for (std::size_t k = 1; k < row.size(); ++k) line += fmt::format("   {:>{}}", row[k], widths[k]);
      text += line + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string index_text(const Estimate& estimate) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", estimate.value, low(estimate), high(estimate));
}

// The pairs by falling share, the largest first, without those that are nothing.
std::vector<std::size_t> shown_pairs(const SobolIndices& indices) {
  std::vector<std::size_t> order(indices.pairs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t k) {
    return indices.second[k].value < kShownInteraction || low(indices.second[k]) <= 0;
  });
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t k) { return indices.second[k].value; });
  if (order.size() > kShownPairs) order.resize(kShownPairs);
  return order;
}

std::string table_of(const ModelAnalysis& model, const Analysis& analysis, const std::string& output) {
  const SobolIndices& indices = model.indices;
  std::string text = fmt::format("{} by the {}: mean {:.6g}, standard deviation {:.6g}\n", output,
                                 model.model == "network" ? "network" : "Gaussian process", indices.mean,
                                 std::sqrt(indices.variance));
  if (indices.variance == 0) return text + "  constant over these ranges: no input matters\n\n";
  std::vector<std::string> headings = {"input", "alone [95 %]", "with interactions [95 %]"};
  if (!model.gradients.empty()) headings.emplace_back("|dy/dx| x range [95 %]");
  Lines lines(std::move(headings));
  for (std::size_t i = 0; i < analysis.inputs.size(); ++i) {
    std::vector<std::string> cells = {analysis.inputs[i].name, index_text(indices.first[i]),
                                      index_text(indices.total[i])};
    if (!model.gradients.empty())
      cells.push_back(fmt::format("{:.4g} [{:.4g}, {:.4g}]", model.gradients[i].value,
                                  low(model.gradients[i]), high(model.gradients[i])));
    lines.add(std::move(cells));
  }
  text += lines.text();
  for (const std::size_t k : shown_pairs(indices))
    text += fmt::format("  {} and {} together: {}\n", analysis.inputs[indices.pairs[k].first].name,
                        analysis.inputs[indices.pairs[k].second].name, index_text(indices.second[k]));
  for (const auto& [name, value] : model.errors.items())
    if (value.is_number()) text += fmt::format("  {}: {:.4g}\n", name, value.get<double>());
  const nlohmann::json r2 =
      model.errors.is_object() ? model.errors.value("test_r2", nlohmann::json()) : nlohmann::json();
  if (r2.is_number() && r2.get<double>() < kTrustedR2)
    text += fmt::format(
        "  R2 of the test samples is {:.2f}: these are the indices of the network, which may be "
        "far from those of the simulation\n",
        r2.get<double>());
  return text + "\n";
}

}  // namespace

nlohmann::json to_json(const Analysis& analysis) {
  nlohmann::json inputs = nlohmann::json::array();
  for (const InputRange& input : analysis.inputs)
    inputs.push_back({{"name", input.name}, {"low", input.low}, {"high", input.high}});
  nlohmann::json outputs = nlohmann::json::array();
  for (const OutputAnalysis& output : analysis.outputs) {
    nlohmann::json& one = outputs.emplace_back();
    one["name"] = output.name;
    for (const ModelAnalysis& model : output.models) one[model.model] = to_json(model, analysis.inputs);
  }
  return {{"wflow_format", kAnalysisFormat}, {"producer", fmt::format("wflow {}", kVersion)},
          {"model", analysis.model},         {"model_checksum", analysis.checksum},
          {"points", analysis.points},       {"evaluations", analysis.evaluations},
          {"seed", analysis.seed},           {"resamples", analysis.resamples},
          {"members", analysis.members},     {"level", 0.95},
          {"inputs", std::move(inputs)},     {"outputs", std::move(outputs)}};
}

std::string csv_of(const Analysis& analysis) {
  std::string text = "output,model,quantity,input,other_input,value,low,high\n";
  for (const OutputAnalysis& output : analysis.outputs) {
    for (const ModelAnalysis& model : output.models) {
      const auto add = [&](const char* quantity, std::size_t input, const std::string& other,
                           const Estimate& estimate) {
        text += fmt::format("{},{},{},{},{},{:.9g},{:.9g},{:.9g}\n", csv::cell(output.name), model.model,
                            quantity, csv::cell(analysis.inputs[input].name), csv::cell(other),
                            estimate.value, low(estimate), high(estimate));
      };
      const SobolIndices& indices = model.indices;
      for (std::size_t i = 0; i < indices.first.size(); ++i) add("first", i, "", indices.first[i]);
      for (std::size_t i = 0; i < indices.total.size(); ++i) add("total", i, "", indices.total[i]);
      for (std::size_t i = 0; i < model.gradients.size(); ++i) add("gradient", i, "", model.gradients[i]);
      for (std::size_t k = 0; k < indices.second.size(); ++k)
        add("second", indices.pairs[k].first, analysis.inputs[indices.pairs[k].second].name,
            indices.second[k]);
    }
  }
  return text;
}

std::string table_of(const Analysis& analysis) {
  std::string text = fmt::format(
      "{}: {} points ({} evaluations), inputs uniform and independent over the "
      "ranges of the training samples:\n",
      analysis.model, analysis.points, analysis.evaluations);
  for (const InputRange& input : analysis.inputs)
    text += fmt::format("  {}  {:.6g} to {:.6g}\n", input.name, input.low, input.high);
  if (analysis.members > 0)
    text += fmt::format("intervals: of the points and of {} members\n", analysis.members);
  if (analysis.field_means) text += "of fields, the mean over the cells\n";
  text += "\n";
  for (const OutputAnalysis& output : analysis.outputs)
    for (const ModelAnalysis& model : output.models) text += table_of(model, analysis, output.name);
  return text;
}

}  // namespace wflow::trainer
