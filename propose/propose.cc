// SPDX-License-Identifier: Apache-2.0
#include "propose/propose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"
#include "propose/choose.h"

namespace wflow::propose {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The known samples as a model sees them: for a minimum.
struct Data {
  std::vector<Point> all;     // of every sample, also those without a value
  std::vector<Point> points;  // of those with a value
  std::vector<double> values;
  double sign = 1;  // -1 where the largest value is wanted
  double least = 0, largest = 0;
};

Data data_of(const ProposeConfig& config, const Known& known, const Space& space) {
  Data data;
  data.sign = config.goal == Goal::maximize ? -1 : 1;
  for (const KnownSample& sample : known.samples) {
    Point point = space.to_unit(sample.inputs);
    if (!std::ranges::all_of(point, [](double x) { return std::isfinite(x); }))
      throw Error(ExitCode::data, "a known sample has an input of 0 or below, whose range has 'log'");
    data.all.push_back(point);
    if (!sample.value) continue;
    data.points.push_back(std::move(point));
    data.values.push_back(data.sign * *sample.value);
  }
  if (data.values.empty()) return data;
  const auto [least, largest] = std::ranges::minmax(data.values);
  data.least = least;
  data.largest = largest;
  return data;
}

void check_data(const Known& known, const Data& data) {
  constexpr std::size_t kLeast = 2;
  if (data.values.size() < kLeast)
    throw Error(ExitCode::data,
                fmt::format("{} of {} known samples {} a value, and a model needs {}{}{}", data.values.size(),
                            known.samples.size(), data.values.size() == 1 ? "has" : "have", kLeast,
                            known.first_problem.empty() ? "" : ": ", known.first_problem));
  if (data.least == data.largest)
    throw Error(ExitCode::data,
                fmt::format("all {} known values are {}, which tells a model nothing; begin with "
                            "more samples, or choose by the rule maximin",
                            data.values.size(), data.sign * data.least));
}

json by_name(const Space& space, const std::vector<double>& values) {
  json result = json::object();
  for (std::size_t k = 0; k < values.size(); ++k) result[space.bounds()[k].name] = values[k];
  return result;
}

Chosen by_gaussian_process(const ProposeConfig& config, const Data& data, const Judge& judge,
                           const Space& space, const Wanted& wanted, json& record) {
  if (data.points.size() > kMostPoints)
    throw Error(ExitCode::data,
                fmt::format("{} samples have a value, and a Gaussian process takes {} at most; "
                            "name trained surrogates with 'models'",
                            data.points.size(), kMostPoints));
  GaussianProcess model(data.points, data.values, config.kernel, config.noise, wanted.seed);
  record["model"] = {{"kind", "gaussian_process"},
                     {"kernel", name_of(config.kernel)},
                     {"lengths_of_ranges", by_name(space, model.lengths())},
                     {"deviation", model.deviation()},
                     {"noise_deviation", model.deviation() * std::sqrt(model.noise())}};
  return choose(model, judge, space, data.all, wanted);
}

// The columns of a table that `wflow-train predict` writes.
struct ModelColumns {
  std::vector<double> means, deviations;  // deviations: empty if the model gives none
};

ModelColumns read_predictions(const fs::path& file, const std::string& target, const std::string& model) {
  csv::Reader reader(file);
  constexpr std::string_view kSuffix = "_predicted";
  std::vector<std::string> targets;
  for (const std::string& name : reader.header()) {
    if (name.ends_with(kSuffix)) targets.push_back(name.substr(0, name.size() - kSuffix.size()));
  }
  if (target.empty() && targets.size() != 1)
    throw Error(ExitCode::data, fmt::format("the model {} predicts {}; select one with 'target'", model,
                                            text::join(targets, ", ")));
  const std::string name = target.empty() ? targets.front() : target;
  const auto mean = reader.column(name + std::string(kSuffix));
  if (!mean)
    throw Error(ExitCode::data, fmt::format("the model {} does not predict '{}'{}", model, name,
                                            text::suggestion(name, targets)));
  const auto deviation = reader.column(name + "_deviation");
  ModelColumns result;
  std::vector<std::string> cells;
  while (reader.next(cells)) {
    result.means.push_back(text::to_real(cells[*mean]).value_or(NAN));
    if (deviation) result.deviations.push_back(text::to_real(cells[*deviation]).value_or(NAN));
  }
  return result;
}

ModelColumns predicted_by(const std::string& model, const fs::path& table, const fs::path& output,
                          const std::string& target) {
  SpawnRequest request;
  request.argv = {sibling_program("wflow-train"), "predict", model, table.string(), "-o", output.string()};
  const CommandResult result = run_command(request);
  if (result.status != 0)
    throw Error(ExitCode::data, fmt::format("wflow predict failed with the model {}: {}", model,
                                            text::trim(result.err.empty() ? result.out : result.err)));
  return read_predictions(output, target, model);
}

std::string csv_of(const Space& space, const std::vector<Point>& points, bool header) {
  std::string text;
  const auto add = [&](std::size_t k, const std::string& cell) { text += (k > 0 ? "," : "") + cell; };
  if (header) {
    for (std::size_t k = 0; k < space.dimensions(); ++k) add(k, csv::cell(space.bounds()[k].name));
    text += '\n';
  }
  for (const Point& point : points) {
    const std::vector<double> values = space.from_unit(point);
    for (std::size_t k = 0; k < values.size(); ++k) add(k, fmt::format("{}", values[k]));
    text += '\n';
  }
  return text;
}

// Mean and deviation of the mixture of all models with equal weights (Lakshminarayanan, Pritzel and Blundell
// 2017, "Simple and scalable predictive uncertainty estimation using deep ensembles", section 2.4).
std::vector<Prediction> mixture(const std::vector<ModelColumns>& models, double sign) {
  std::vector<Prediction> predictions;
  const auto count = static_cast<double>(models.size());
  for (std::size_t i = 0; i < models.front().means.size(); ++i) {
    double mean = 0, variance = 0;
    for (const ModelColumns& model : models) mean += model.means[i] / count;
    for (const ModelColumns& model : models) {
      const double own = model.deviations.empty() ? 0 : model.deviations[i];
      const double apart = model.means[i] - mean;
      variance += (own * own + apart * apart) / count;
    }
    predictions.push_back({sign * mean, std::sqrt(variance)});
  }
  return predictions;
}

Chosen by_models(const ProposeConfig& config, const Data& data, const Judge& judge, const Space& space,
                 const Wanted& wanted, const fs::path& folder, json& record) {
  const std::vector<Point> points = candidates(space, wanted.candidates, wanted.seed);
  const fs::path table = folder / "candidates.csv";
  write_file_durably(table, csv_of(space, points, true));
  std::vector<ModelColumns> models;
  for (std::size_t i = 0; i < config.models.size(); ++i) {
    const fs::path output = folder / fmt::format("predictions-{}.csv", i + 1);
    models.push_back(predicted_by(config.models[i], table, output, config.target));
    if (models.back().means.size() != points.size())
      throw Error(ExitCode::data, fmt::format("the model {} predicted {} of {} candidates", config.models[i],
                                              models.back().means.size(), points.size()));
  }
  if (models.size() == 1 && models.front().deviations.empty())
    throw Error(ExitCode::data,
                fmt::format("the model {} gives no deviation; train an ensemble ('members'), or "
                            "name several models",
                            config.models.front()));
  record["model"] = {{"kind", "trained"}, {"models", config.models}};
  return choose_listed(points, mixture(models, data.sign), judge, data.all, wanted);
}

json bounds_json(const std::vector<Bound>& bounds) {
  json list = json::array();
  for (const Bound& bound : bounds)
    list.push_back({{"name", bound.name},
                    {"low", bound.low},
                    {"high", bound.high},
                    {"log", bound.log},
                    {"integer", bound.integer}});
  return list;
}

const char* words_of(Rule rule) {
  switch (rule) {
    case Rule::expected_improvement:
      return "expected improvement";
    case Rule::upper_confidence_bound:
      return "improvement by the bound";
    case Rule::variance:
      return "largest deviation";
    case Rule::maximin:
      break;
  }
  return "largest distance";
}

void record_best(const ProposeConfig& config, const Known& known, const Space& space, const Data& data,
                 json& record) {
  if (data.values.empty()) return;
  const KnownSample* best = nullptr;
  for (const KnownSample& sample : known.samples) {
    if (sample.value && data.sign * *sample.value == data.least && best == nullptr) best = &sample;
  }
  record["best"] = {{"value", *best->value}, {"inputs", by_name(space, best->inputs)}};
  record["goal"] = name_of(config.goal);
}

std::string sentence_of(const ProposeConfig& config, const Known& known, const Data& data,
                        const Proposal& proposal) {
  const std::size_t missing = known.samples.size() - data.values.size();
  std::string text = fmt::format("{} samples", known.samples.size());
  if (config.rule != Rule::maximin) {
    if (missing > 0) text += fmt::format(", {} of them without a value ({})", missing, known.first_problem);
    text +=
        fmt::format("; the {} value is {:.6g}", data.sign > 0 ? "least" : "largest", data.sign * data.least);
  }
  return text + fmt::format("; {} {:.3g}", words_of(config.rule), proposal.promised);
}

}  // namespace

Proposal propose(const ProposeConfig& config, const Known& known, const fs::path& folder, json& record) {
  const Space space(config.bounds);
  const Data data = data_of(config, known, space);
  Wanted wanted{config.count, config.candidates, hash64(config.seed, known.samples.size())};
  const Judge judge{config.rule, data.least, config.kappa};
  record = {{"version", 1},
            {"rule", name_of(config.rule)},
            {"seed", config.seed},
            {"known", known.samples.size()},
            {"without_value", known.samples.size() - data.values.size()},
            {"bounds", bounds_json(config.bounds)}};
  if (config.rule == Rule::maximin) record.erase("without_value");
  Chosen chosen;
  if (config.rule == Rule::maximin) {
    chosen = choose_far(space, data.all, wanted);
  } else {
    check_data(known, data);
    chosen = config.models.empty() ? by_gaussian_process(config, data, judge, space, wanted, record)
                                   : by_models(config, data, judge, space, wanted, folder, record);
    record_best(config, known, space, data, record);
  }
  Proposal proposal;
  for (std::size_t i = 0; i < chosen.points.size(); ++i) {
    proposal.inputs.push_back(space.from_unit(chosen.points[i]));
    record["proposed"].push_back(
        {{"inputs", by_name(space, proposal.inputs.back())}, {"worth", chosen.worth[i]}});
  }
  if (!chosen.worth.empty() && std::isfinite(chosen.worth.front())) proposal.promised = chosen.worth.front();
  const double limit = config.until.value_or(0) * (config.relative ? data.largest - data.least : 1);
  const bool begins = known.samples.empty();  // maximin: every point is equally good
  proposal.converged = chosen.points.empty() || (config.until && !begins && proposal.promised < limit);
  proposal.sentence = sentence_of(config, known, data, proposal);
  record["promised"] = proposal.promised;
  if (config.until) record["until"] = limit;
  record["converged"] = proposal.converged;
  return proposal;
}

std::vector<Bound> recorded_bounds(const fs::path& file) {
  std::vector<Bound> bounds;
  try {
    const json record = json::parse(read_file(file));
    for (const json& one : record.at("bounds"))
      bounds.push_back({one.at("name"), one.at("low"), one.at("high"), one.at("log"), one.at("integer")});
  } catch (const json::exception& error) {
    throw Error(ExitCode::data, fmt::format("{} is damaged: {}; run that step again with wflow redo",
                                            file.string(), error.what()));
  }
  return bounds;
}

void run(ProposeConfig config, const fs::path& samples) {
  const fs::path output = config.output.empty() ? fs::path(".") : fs::path(config.output);
  Known known;
  if (!config.previous.empty()) {
    const fs::path before = config.previous;
    if (config.bounds.empty()) config.bounds = recorded_bounds(before / kRecordFile);
    add_table(known, before / kValuesFile, config.bounds);
  }
  if (config.bounds.empty()) throw Error(ExitCode::spec, "'bounds' is missing: the inputs and their ranges");
  if (!samples.empty()) {
    add_samples(known, samples, config);
  } else if (!config.known.empty()) {
    add_table(known, config.known, config.bounds);
  } else if (config.rule != Rule::maximin) {
    throw Error(ExitCode::spec, "'known' is missing: the CSV with the inputs and values so far");
  }
  json record;
  fs::create_directories(output);
  const Proposal proposal = propose(config, known, output, record);
  const Space space(config.bounds);
  std::vector<Point> points;
  for (const std::vector<double>& inputs : proposal.inputs) points.push_back(space.to_unit(inputs));
  write_file_durably(output / kValuesFile, table_of(known, config.bounds));
  write_file_durably(output / kNewFile, csv_of(space, points, false));
  write_file_durably(output / kRecordFile, record.dump(2) + "\n");
  fmt::print("{}\n", proposal.sentence);
  EventWriter events = EventWriter::from_environment();
  events.note(proposal.sentence);
  if (proposal.converged && !config.event.empty())
    events.emit({{"type", config.event}, {"promised", proposal.promised}});
}

}  // namespace wflow::propose
