// SPDX-License-Identifier: Apache-2.0
#include "trainer/inference/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/config.h"
#include "trainer/data/roles.h"
#include "trainer/inference/posterior.h"
#include "trainer/predict/predict.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kObservationsAtOnce = 16;  // observations of a forward pass

std::size_t density_head(const ExportedModel& model, const std::string& training) {
  const std::vector<ExportedModel::Head>& heads = model.heads();
  const auto found =
      std::ranges::find(heads, std::string(name_of(LossName::mixture)), &ExportedModel::Head::loss);
  if (found != heads.end()) return static_cast<std::size_t>(found - heads.begin());
  throw Error(ExitCode::data,
              fmt::format("the network of {} has learnt no density: train it with 'loss: mixture', with the "
                          "simulator's parameters as targets and what can be observed as inputs",
                          training));
}

// The range of each parameter in the training samples.
PriorBox prior_box(const fs::path& data, const std::vector<std::string>& names) {
  const DatasetInfo info = read_dataset_info(data);
  PriorBox box;
  for (const std::string& name : names) {
    const auto label = label_called(name, info);
    if (!label || *label >= info.label_range.size()) return {};
    box.emplace_back(info.label_range[*label].least, info.label_range[*label].most);
  }
  return box;
}

// The observations of a command, and the densities that the network gives them.
class Observations {
 public:
  explicit Observations(const InferOptions& options)
      : model_(open_exported_model(fs::path(options.training) / "model.pt")),
        head_(density_head(*model_, options.training)) {
    PredictOptions predict;
    predict.model = options.training;
    predict.data =
        options.observe.empty() ? data_of_training(options.training, options.data).string() : options.observe;
    predict.split = options.split;
    rows_ = rows_of(predict, *model_);
    if (rows_->size() == 0)
      throw Error(ExitCode::data, fmt::format("there is no observation in {}", predict.data));
    if (options.bounded)
      box_ =
          prior_box(data_of_training(options.training, options.data), names_in_data(model_->heads()[head_]));
  }

  std::size_t size() const { return rows_->size(); }
  std::int64_t id(std::size_t row) const { return rows_->id(row); }
  std::vector<std::int64_t> ids() const {
    std::vector<std::int64_t> all;
    for (std::size_t row = 0; row < size(); ++row) all.push_back(id(row));
    return all;
  }
  const std::vector<std::string>& parameters() const { return model_->heads()[head_].targets; }
  const PriorBox& box() const { return box_; }
  bool has_truths() const { return rows_->has_truths(head_); }
  std::vector<double> truth(std::size_t row) const { return rows_->truths(head_, row, 1); }

  std::vector<MixtureDensity> densities(std::size_t first, std::size_t count) {
    const ModelArray output = model_->run(rows_->inputs(first, count)).at(head_);
    const std::size_t values = output.values.size() / count;
    std::vector<MixtureDensity> all;
    for (std::size_t n = 0; n < count; ++n)
      all.emplace_back(std::span(output.values).subspan(n * values, values),
                       MixtureDensity::components_of(values, parameters().size()), parameters().size());
    return all;
  }

 private:
  std::unique_ptr<ExportedModel> model_;
  std::size_t head_;
  std::unique_ptr<PredictionRows> rows_;
  PriorBox box_;
};

// posterior.h5: the draws of each observation.
class DrawsFile {
 public:
  DrawsFile(const fs::path& path, const Observations& observations, const InferOptions& options)
      : file_(path, observations.ids()) {
    const auto draws = static_cast<std::int64_t>(options.draws);
    file_.number("wflow_format", kInferenceFormat);
    file_.text("producer", {fmt::format("wflow {}", kVersion)});
    file_.text("parameters", observations.parameters());
    draws_ =
        file_.add("draws", std::vector<std::int64_t>{draws, std::ssize(observations.parameters())}, true);
    log_density_ = file_.add("log_density", std::vector<std::int64_t>{draws}, true);
    if (observations.has_truths())
      truth_ = file_.add("truth", std::vector<std::int64_t>{std::ssize(observations.parameters())}, true);
  }
  void write(std::size_t row, const PosteriorDraws& draws, const std::vector<double>& truth) {
    file_.write(draws_, row, draws.values);
    file_.write(log_density_, row, draws.log_density);
    if (!truth.empty()) file_.write(truth_, row, truth);
  }
  void publish() { file_.publish(); }

 private:
  RowFile file_;
  std::size_t draws_ = 0;
  std::size_t log_density_ = 0;
  std::size_t truth_ = 0;
};

std::string rows_text(std::span<const double> values, std::size_t columns) {
  std::string rows;
  for (std::size_t i = 0; i < values.size(); ++i)
    rows += text::from_real(values[i]) + ((i + 1) % columns == 0 ? "\n" : ",");
  return rows;
}

// Samples for simulations that follow: from the posterior, or for the next round. Returns what was written.
std::string write_samples(const InferOptions& options, const Observations& observations,
                          const MixtureDensity& density, const PosteriorDraws& draws,
                          const fs::path& folder) {
  const std::size_t parameters = observations.parameters().size();
  std::string written;
  if (options.samples > 0) {
    const std::size_t count = std::min(options.samples, draws.count());
    write_file_durably(folder / "samples.csv",
                       rows_text(std::span(draws.values).first(count * parameters), parameters));
    written += fmt::format("samples.csv: {} draws of the posterior\n", count);
  }
  if (options.proposals > 0) {
    const Proposals proposals = propose(density, draws, observations.box(), options.proposals,
                                        hash64(options.seed, ~std::uint64_t{0}));
    write_file_durably(folder / "proposals.csv", rows_text(proposals.values, parameters));
    written += fmt::format("proposals.csv: {} samples, from {:.3g} % of the range of the training samples\n",
                           options.proposals, 100 * proposals.share);
  }
  return written;
}

void check_options(const InferOptions& options, const Observations& observations) {
  if (options.calibrate && !observations.has_truths())
    throw Error(ExitCode::usage,
                "--calibrate compares with known parameters, which these observations do not have: give the "
                "folder of a data set, or leave --observe out");
  if (options.samples + options.proposals > 0 && observations.size() != 1)
    throw Error(ExitCode::usage, fmt::format("--samples and --propose are for one observation, and there are "
                                             "{}: name it, --observe FILE",
                                             observations.size()));
  if (options.samples > options.draws)
    throw Error(ExitCode::usage, fmt::format("--samples {} are more than the {} draws: raise --draws",
                                             options.samples, options.draws));
}

}  // namespace

void infer(const InferOptions& options) {
  const nlohmann::json result = finished_result(options.training);
  Observations observations(options);
  check_options(options, observations);
  const fs::path folder = options.output.empty() ? options.training : options.output;
  fs::create_directories(folder);
  DrawsFile file(folder / "posterior.h5", observations, options);
  const std::vector<std::string>& names = observations.parameters();
  Calibration calibration(names.size());
  nlohmann::json found = nlohmann::json::array();
  std::string written;
  for (std::size_t first = 0; first < observations.size(); first += kObservationsAtOnce) {
    const std::size_t count = std::min(kObservationsAtOnce, observations.size() - first);
    const std::vector<MixtureDensity> densities = observations.densities(first, count);
    for (std::size_t n = 0; n < count; ++n) {
      const std::size_t row = first + n;
      const auto key = hash64(options.seed, static_cast<std::uint64_t>(observations.id(row)));
      const PosteriorDraws draws = draw_posterior(densities[n], observations.box(), options.draws, key);
      const std::vector<double> truth =
          observations.has_truths() ? observations.truth(row) : std::vector<double>();
      file.write(row, draws, truth);
      written += write_samples(options, observations, densities[n], draws, folder);
      if (options.calibrate)
        calibration.add(draws, truth, densities[n].log_density(truth) - std::log(1 - draws.outside));
      if (row < kJsonObservations)
        found.push_back(
            posterior_json(observations.id(row), draws, summaries(draws, names.size()), names, truth));
    }
  }
  nlohmann::json all = {{"wflow_format", kInferenceFormat},
                        {"producer", fmt::format("wflow {}", kVersion)},
                        {"model_checksum", model_checksum(result)},
                        {"parameters", names},
                        {"draws", options.draws},
                        {"seed", options.seed},
                        {"bounds", observations.box()},
                        {"observations", observations.size()},
                        {"posteriors", found}};
  if (options.calibrate) all["calibration"] = calibration_json(calibration, names, true);
  file.publish();
  write_file_durably(folder / "inference.json", all.dump(1) + "\n");
  std::string out;
  const std::size_t shown = options.calibrate ? 1 : std::min(kTableObservations, observations.size());
  for (std::size_t row = 0; row < shown; ++row) out += posterior_table(found[row]);
  if (shown < observations.size())
    out += fmt::format("{} more observations in posterior.h5\n", observations.size() - shown);
  if (options.calibrate) out += calibration_table(all["calibration"]);
  out += written;
  out += fmt::format("written: {}\n", (folder / "posterior.h5").string());
  std::fputs(visible(out).c_str(), stdout);
}

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
