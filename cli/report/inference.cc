// SPDX-License-Identifier: Apache-2.0
// The posteriors that `wflow infer` found with a training (docs/infer.md).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/report/report.h"

namespace wflow::cli::report {

namespace {

constexpr std::size_t kCornerParameters = 6;  // in a corner plot
constexpr std::size_t kPosteriors = 3;        // with plots

std::string parameter_name(const nlohmann::json& posterior, std::size_t i) {
  return posterior.at("parameters").at(i).at("name").get<std::string>();
}

std::size_t shown_parameters(const nlohmann::json& posterior) {
  return std::min(kCornerParameters, posterior.at("parameters").size());
}

void add_marginal(const std::string& title, const nlohmann::json& posterior, std::size_t i, Page& page) {
  const nlohmann::json& entry = posterior.at("parameters").at(i);
  const nlohmann::json& corner = posterior.at("corner");
  const auto bins = corner.at("bins").get<std::size_t>();
  const auto range = corner.at("ranges").at(i).get<std::vector<double>>();
  plot::Figure figure{
      .id = plot::figure_id(fmt::format("posterior-{}-{}", title, parameter_name(posterior, i))),
      .kind = plot::Kind::histogram,
      .title = fmt::format("{}: {}", title, parameter_name(posterior, i))};
  figure.x = {.name = parameter_name(posterior, i)};
  figure.y = {.name = "draws"};
  for (std::size_t k = 0; k <= bins; ++k)
    figure.edges.push_back(range.at(0) +
                           (range.at(1) - range.at(0)) * static_cast<double>(k) / static_cast<double>(bins));
  figure.series = {{.name = "draws", .y = corner.at("counts").at(i).at(i).get<std::vector<double>>()}};
  if (entry.contains("truth"))
    figure.references.push_back({entry.at("truth").get<double>(), false, "the known value"});
  page.figure(std::move(figure));
}

// The densities of all pairs of parameters. Rows of a picture are those of the first parameter, upwards.
void add_pairs(const std::string& title, const nlohmann::json& posterior, Page& page) {
  const nlohmann::json& corner = posterior.at("corner");
  const auto bins = corner.at("bins").get<std::uint32_t>();
  plot::Figure figure{.id = plot::figure_id("posterior-pairs-" + title),
                      .kind = plot::Kind::images,
                      .title = title + ": pairs of parameters"};
  figure.caption =
      "The number of draws, over the ranges of the histograms: the first parameter upwards, the "
      "second to the right.";
  for (std::size_t i = 1; i < shown_parameters(posterior); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto counts = corner.at("counts").at(i).at(j).get<std::vector<float>>();
      plot::Image image{
          .name = fmt::format("{}, {}", parameter_name(posterior, i), parameter_name(posterior, j)),
          .columns = bins,
          .rows = bins};
      for (std::uint32_t row = bins; row-- > 0;)
        for (std::uint32_t column = 0; column < bins; ++column)
          image.values.push_back(counts.at(row * bins + column));
      figure.images.push_back(std::move(image));
    }
  }
  if (!figure.images.empty()) page.figure(std::move(figure));
}

void add_ranks(const std::string& task, const std::string& name, const nlohmann::json& row, double samples,
               Page& page) {
  const auto ranks = row.at("ranks").get<std::vector<double>>();
  plot::Figure figure{.id = plot::figure_id(fmt::format("ranks-{}-{}", task, name)),
                      .kind = plot::Kind::histogram,
                      .title = fmt::format("{}: ranks of {}", task, name)};
  figure.x = {.name = name == "all together" ? "share of the draws with a higher density than the truth"
                                             : "share of the draws below the truth"};
  figure.y = {.name = "samples", .low = 0};
  for (std::size_t k = 0; k <= ranks.size(); ++k)
    figure.edges.push_back(static_cast<double>(k) / static_cast<double>(ranks.size()));
  figure.series = {{.name = "samples", .y = ranks}};
  figure.references.push_back({samples / static_cast<double>(ranks.size()), true, "a right posterior"});
  page.figure(std::move(figure));
}

std::string share_text(const nlohmann::json& row, const char* key) {
  return fmt::format("{:.3f} +- {:.3f}", row.at(key).get<double>(),
                     row.at(std::string(key) + "_error").get<double>());
}

void add_calibration(const std::string& task, const nlohmann::json& calibration, Page& page) {
  const auto samples = calibration.at("samples").get<double>();
  PageTable table{{"parameter", "truths in 68 %", "truths in 95 %", "ranks uniform: p", "mean deviation"},
                  {false, true, true, true, true},
                  {}};
  const auto add = [&](const std::string& name, const nlohmann::json& row) {
    table.rows.push_back({name, share_text(row, "within_68"), share_text(row, "within_95"),
                          fmt::format("{:.3f}", row.at("p_value").get<double>()),
                          row.contains("mean_deviation")
                              ? fmt::format("{:.4g}", row.at("mean_deviation").get<double>())
                              : ""});
    add_ranks(task, name, row, samples, page);
  };
  for (const nlohmann::json& row : calibration.at("parameters")) add(row.at("name"), row);
  if (calibration.at("parameters").size() > 1 && calibration.contains("joint"))
    add("all together", calibration.at("joint"));
  page.table(table);
}

// Posterior predictive checks: observed values, and what the simulator makes with draws of the posterior.
void add_predictive(const std::string& title, const nlohmann::json& predictive, Page& page) {
  for (const nlohmann::json& array : predictive.at("arrays")) {
    const std::string name = array.at("name");
    plot::Figure figure{.id = plot::figure_id(fmt::format("predictive-{}-{}", title, name)),
                        .kind = plot::Kind::lines,
                        .title = fmt::format("{}: {} and its replicas", title, name)};
    figure.caption = "Replicas are values that the simulator draws with the posterior's traces.";
    figure.x = {.name = "value of " + name};
    figure.y = {.name = name};
    const auto add = [&](const char* label, const char* key, bool marks) {
      plot::Series series{.name = label, .y = array.at(key).get<std::vector<double>>(), .marks = marks};
      for (std::size_t i = 0; i < series.y.size(); ++i) series.x.push_back(static_cast<double>(i));
      figure.series.push_back(std::move(series));
    };
    add("observed", "observed", true);
    add("replicas: 5 %", "low", false);
    add("replicas: median", "median", false);
    add("replicas: 95 %", "high", false);
    page.figure(std::move(figure));
  }
  page.paragraph(predictive.at("sentence").get<std::string>() + ".");
}

// How good the weighted traces of a simulator are, or its chains.
std::string trace_text(const nlohmann::json& posterior) {
  const auto traces = posterior.at("traces").get<std::size_t>();
  if (!posterior.contains("effective_samples")) {
    double worst = 0;
    for (const nlohmann::json& entry : posterior.at("parameters"))
      worst = std::max(worst, entry.value("r_hat", 0.0));
    return fmt::format("{} states of the chains, largest R-hat {:.3f}.", traces, worst);
  }
  const nlohmann::json& evidence = posterior.at("log_evidence");
  return fmt::format("{} traces, {:.1f} effective; log evidence {}.", traces,
                     posterior.at("effective_samples").get<double>(),
                     evidence.is_null() ? "unknown" : fmt::format("{:.3f}", evidence.get<double>()));
}

void add_posterior(const std::string& task, const nlohmann::json& posterior, Page& page) {
  const std::string title = fmt::format("{}, observation {}", task, posterior.at("id").get<std::int64_t>());
  PageTable table{{"parameter", "mean", "deviation", "2.5 %", "median", "97.5 %", "known value"},
                  {false, true, true, true, true, true, true},
                  {}};
  const auto number = [](double value) { return fmt::format("{:.5g}", value); };
  for (std::size_t i = 0; i < posterior.at("parameters").size(); ++i) {
    const nlohmann::json& entry = posterior.at("parameters").at(i);
    const auto q = entry.at("quantiles").get<std::vector<double>>();
    table.rows.push_back({parameter_name(posterior, i), number(entry.at("mean")),
                          number(entry.at("deviation")), number(q.at(0)), number(q.at(2)), number(q.at(4)),
                          entry.contains("truth") ? number(entry.at("truth")) : ""});
    if (i < kCornerParameters && posterior.contains("corner")) add_marginal(title, posterior, i, page);
  }
  if (posterior.contains("corner")) add_pairs(title, posterior, page);
  page.table(table);
  if (posterior.contains("traces")) page.paragraph(trace_text(posterior));
  if (posterior.contains("predictive")) add_predictive(title, posterior.at("predictive"), page);
}

}  // namespace

void write_inference(const TrainingResult& training, Page& page) {
  const nlohmann::json& inference = training.inference;
  page.heading(fmt::format("{}: parameters of observations", training.task));
  const nlohmann::json checksums = training.result.value("checksums", nlohmann::json::object());
  if (inference.value("model_checksum", nlohmann::json()) != checksums.value("model.pt", nlohmann::json()))
    page.note(
        fmt::format("The posteriors of {} are of an earlier model: run wflow infer again.", training.task));
  if (inference.contains("calibration")) add_calibration(training.task, inference.at("calibration"), page);
  const nlohmann::json& posteriors = inference.at("posteriors");
  for (std::size_t k = 0; k < std::min(posteriors.size(), kPosteriors); ++k)
    add_posterior(training.task, posteriors.at(k), page);
  if (inference.at("observations").get<std::size_t>() > kPosteriors)
    page.paragraph(fmt::format("The first {} of {} observations; posterior.h5 has the draws of all.",
                               std::min(posteriors.size(), kPosteriors),
                               inference.at("observations").get<std::size_t>()));
}

}  // namespace wflow::cli::report
