// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program_file.h"
#include "base/text.h"
#include "trainer/model/exported_model.h"
#include "trainer/model/model_export.h"
#include "trainer/training/metrics.h"
#include "trainer/training/objective.h"
#include "trainer/training/prediction_file.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kValuesAtOnce = std::size_t{1} << 20;  // values of each member's predictions in memory

fs::path member_folder(const std::string& output, std::int64_t member) {
  return fs::path(output) / fmt::format("member-{}", member + 1);
}

TrainConfig config_of_member(const TrainConfig& config, std::int64_t member) {
  TrainConfig own = config;
  own.members = 1;
  own.seed = config.seed + static_cast<std::uint64_t>(member);
  own.output = member_folder(config.output, member).string();
  // From another ensemble, take the same member.
  if (config.init_from.empty() || config.init_from == kInitFromLast) return own;
  const fs::path begin = member_folder(config.init_from, member);
  if (fs::is_directory(begin)) own.init_from = begin.string();
  return own;
}

// Called before the first member, so that a run that is killed later finds no old checkpoint of the others.
void forget_members(const TrainConfig& config) {
  for (std::int64_t member = 0; member < config.members; ++member) {
    fs::remove_all(member_folder(config.output, member) / "checkpoints");
    fs::remove(member_folder(config.output, member) / "initial.wfck");
  }
}

// Writes the lines of all members so far as if each training continued the one before, for `wflow curves`.
// Returns the last step.
std::uint64_t write_metrics_of_all(const TrainConfig& config, std::int64_t newest) {
  std::string lines;
  std::int64_t last_step = 0;
  for (std::int64_t member = 0; member <= newest; ++member) {
    const std::string own = read_file(member_folder(config.output, member) / "metrics.jsonl");
    for (const std::string& line : text::split(own, '\n')) {
      if (line.empty()) continue;
      nlohmann::json row = nlohmann::json::parse(line);
      const auto epoch = row.at("epoch").get<std::int64_t>();
      const auto step = row.at("step").get<std::int64_t>();
      last_step = member * config.epochs * (step / epoch) + step;
      row["member"] = member + 1;
      row["epoch"] = member * config.epochs + epoch;
      row["step"] = last_step;
      lines += row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    }
  }
  write_file_durably(fs::path(config.output) / "metrics.jsonl", lines);
  return static_cast<std::uint64_t>(last_step);
}

// One head of the ensemble: the members' predictions of the test samples combined, and their errors.
class HeadCombination {
 public:
  // `files`: predictions.h5 of each member; `results`: their result.json.
  HeadCombination(const std::vector<RowFileReader>& files, const std::vector<nlohmann::json>& results,
                  const ExportedModel::Head& head, const LossConfig& loss);

  const std::string& name() const { return name_; }
  const LossConfig& loss() const { return loss_; }
  bool in_table() const { return cells() == 1; }  // predictions.csv has numbers, and no fields
  std::size_t most_values() const;                // of a sample in a dataset
  bool same_shape(const RowFileReader& file) const {
    return file.shape(path("prediction").c_str()) == shape_;
  }

  // The datasets of the head, in the group that the file uses.
  void begin(RowFile& file);
  // Combines `count` rows. Adds the cells of each to `lines`, one a sample, if in_table().
  void write(RowFile& file, std::size_t first, std::size_t count, std::span<std::string> lines);
  std::string heading() const;
  Evaluation evaluation() const;
  void add_calibration(nlohmann::json& shares) const;
  // For each target the range of the members' errors, and the calibration.
  std::string describe(const Evaluation& test) const;

 private:
  // Sums for one target over the test samples.
  struct Sums {
    double absolute = 0;
    double squared = 0;
    double mean = 0;  // mean of the truths; spread: their squared deviation from it
    double spread = 0;
    double within_one = 0;  // within one deviation of the prediction
    double within_two = 0;
    std::array<double, kIntervals.size()> within = {};
    double variance = 0;  // sum of the predictions' variances
    double count = 0;
    // The root of the mean variance over that of the mean squared error.
    double spread_over_error() const { return squared > 0 ? std::sqrt(variance / squared) : 0; }
  };
  struct Rows {
    std::size_t count = 0;
    std::vector<double> truth{};
    std::vector<double> prediction{};
    std::vector<double> deviation{};    // not for classes
    std::vector<double> probability{};  // for classes
    std::vector<double> each{};         // [samples, members, targets], for numbers in a table
  };
  // Numbers of the datasets in the ensemble's file.
  struct Datasets {
    std::size_t truth = 0;
    std::size_t prediction = 0;
    std::size_t certainty = 0;
    std::optional<std::size_t> mask{};
    std::optional<std::size_t> each{};
  };

  std::string path(const char* dataset) const { return name_.empty() ? dataset : name_ + "/" + dataset; }
  std::vector<double> read(const RowFileReader& file, const char* dataset, std::size_t first,
                           std::size_t count) const {
    return file.read(path(dataset).c_str(), first, count);
  }
  std::vector<std::int64_t> shape_of(const char* dataset) const {
    return files_.front().shape(path(dataset).c_str()).value();
  }
  bool classes() const { return is_classification(loss_.name); }
  std::size_t cells() const;
  Rows combined(std::size_t first, std::size_t count) const;
  void combine_numbers(Rows& rows, std::size_t first) const;
  void combine_classes(Rows& rows, std::size_t first) const;
  void add(const Rows& rows);
  void count_cell(const Rows& rows, std::size_t i);

  const std::vector<RowFileReader>& files_;
  const std::vector<nlohmann::json>& results_;
  std::string name_;  // empty where there is one head only
  LossConfig loss_;
  std::vector<std::string> targets_;
  std::string units_;
  std::vector<std::int64_t> shape_;  // of a prediction
  bool wide_truth_;                  // the truths are float64
  bool wide_;                        // and the predictions
  Datasets datasets_;
  std::vector<Sums> sums_;
  std::vector<std::uint64_t> counts_;  // for classes: count_class()
};

HeadCombination::HeadCombination(const std::vector<RowFileReader>& files,
                                 const std::vector<nlohmann::json>& results, const ExportedModel::Head& head,
                                 const LossConfig& loss)
    : files_(files),
      results_(results),
      name_(head.name),
      loss_(loss),
      targets_(head.targets),
      units_(head.units.empty() ? "physical" : head.units),
      shape_(shape_of("prediction")),
      wide_truth_(files.front().is_wide(path("truth").c_str())),
      wide_(files.front().is_wide(path("prediction").c_str())),
      sums_(targets_.size()) {}

std::size_t HeadCombination::cells() const {
  std::size_t values = 1;  // per sample; one channel has no axis if the data have none
  for (const std::int64_t length : shape_) values *= static_cast<std::size_t>(length);
  return values / std::max<std::size_t>(1, targets_.size());
}

std::size_t HeadCombination::most_values() const {
  std::size_t values = 1;
  for (const std::int64_t n : classes() ? shape_of("probability") : shape_)
    values *= static_cast<std::size_t>(n);
  return std::max<std::size_t>(1, values);
}

// The mean and variance of the mixture of the members' predictions: the variance of their means and, with a
// gaussian loss, the mean of the variances that they predict (Lakshminarayanan et al. 2017, section 2.4).
void HeadCombination::combine_numbers(Rows& rows, std::size_t first) const {
  const bool spread_known = predicts_deviations(loss_.name);
  const auto members = static_cast<double>(files_.size());
  std::vector<double> sum(rows.truth.size());
  std::vector<double> expected(spread_known ? sum.size() : 0);
  std::vector<std::vector<double>> each;
  for (const RowFileReader& file : files_) {
    each.push_back(read(file, "prediction", first, rows.count));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += each.back()[i];
    if (!spread_known) continue;
    const std::vector<double> deviations = read(file, "deviation", first, rows.count);
    for (std::size_t i = 0; i < sum.size(); ++i) expected[i] += deviations[i] * deviations[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double mean = sum[i] / members;
    double spread = 0;
    for (const std::vector<double>& values : each) spread += (values[i] - mean) * (values[i] - mean);
    const double variance = (spread + (spread_known ? expected[i] : 0)) / members;
    rows.prediction.push_back(mean);
    rows.deviation.push_back(std::sqrt(variance));
  }
  if (!in_table()) return;
  for (std::size_t n = 0; n < rows.count; ++n)
    for (const std::vector<double>& values : each) {
      const auto row = values.begin() + static_cast<std::ptrdiff_t>(n * targets_.size());
      rows.each.insert(rows.each.end(), row, row + static_cast<std::ptrdiff_t>(targets_.size()));
    }
}

void HeadCombination::combine_classes(Rows& rows, std::size_t first) const {
  std::vector<double> sum;
  for (const RowFileReader& file : files_) {
    const std::vector<double> shares = read(file, "probability", first, rows.count);
    sum.resize(shares.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += shares[i];
  }
  for (const double share : sum) rows.probability.push_back(share / static_cast<double>(files_.size()));
  const std::size_t cells = this->cells();
  const std::size_t classes = sum.size() / std::max<std::size_t>(1, rows.count * cells);
  for (std::size_t i = 0; i < rows.count * cells; ++i) {
    const std::size_t begin = i / cells * classes * cells + i % cells;
    std::size_t likeliest = 0;
    for (std::size_t k = 1; k < classes; ++k)
      if (sum[begin + k * cells] > sum[begin + likeliest * cells]) likeliest = k;
    rows.prediction.push_back(static_cast<double>(likeliest));
  }
}

HeadCombination::Rows HeadCombination::combined(std::size_t first, std::size_t count) const {
  Rows rows = {count, read(files_.front(), "truth", first, count)};
  if (classes()) {
    combine_classes(rows, first);
  } else {
    combine_numbers(rows, first);
  }
  return rows;
}

void HeadCombination::add(const Rows& rows) {
  for (std::size_t i = 0; i < rows.truth.size(); ++i) {
    Sums& sums = sums_[i / cells() % sums_.size()];
    const double truth = rows.truth[i];
    if (std::isnan(truth)) continue;  // padding
    const double error = std::abs(rows.prediction[i] - truth);
    ++sums.count;
    if (classes()) {
      sums.absolute += error > 0.5 ? 1 : 0;
      count_cell(rows, i);
      continue;
    }
    sums.absolute += error;
    sums.squared += error * error;
    // Welford (1962), as predict does.
    const double step = truth - sums.mean;
    sums.mean += step / sums.count;
    sums.spread += step * (truth - sums.mean);
    sums.within_one += error <= rows.deviation[i] ? 1 : 0;
    sums.within_two += error <= 2 * rows.deviation[i] ? 1 : 0;
    for (std::size_t k = 0; k < kIntervals.size(); ++k)
      sums.within[k] += error <= kIntervals[k].deviations * rows.deviation[i] ? 1 : 0;
    sums.variance += rows.deviation[i] * rows.deviation[i];
  }
}

void HeadCombination::count_cell(const Rows& rows, std::size_t i) {
  const std::size_t classes = rows.probability.size() / std::max<std::size_t>(1, rows.truth.size());
  counts_.resize(class_count_size(classes));
  std::vector<double> probabilities(classes);
  const std::size_t begin = i / cells() * classes * cells() + i % cells();
  for (std::size_t k = 0; k < classes; ++k) probabilities[k] = rows.probability[begin + k * cells()];
  count_class(static_cast<std::size_t>(std::round(rows.truth[i])), probabilities, counts_);
}

std::string HeadCombination::heading() const {
  std::string line;
  for (const std::string& target : targets_) {
    line += fmt::format(",{},{}", csv::cell(target), csv::cell(target + "_predicted"));
    if (!classes()) line += "," + csv::cell(target + "_deviation");
  }
  return line;
}

void HeadCombination::begin(RowFile& file) {
  file.text("targets", targets_);
  file.text("units", {units_});
  datasets_.truth = file.add("truth", shape_, wide_truth_);
  datasets_.prediction = file.add("prediction", shape_, wide_);
  const std::vector<std::int64_t> second = classes() ? shape_of("probability") : shape_;
  datasets_.certainty = file.add(classes() ? "probability" : "deviation", second);
  if (has_mask(classes() ? static_cast<std::size_t>(second.at(0)) : 0, cells()))
    datasets_.mask = file.add_bytes("mask", std::span(second).subspan(1));
  const std::vector<std::int64_t> of_members = {std::ssize(files_), shape_.at(0)};
  if (in_table() && !classes()) datasets_.each = file.add("member_prediction", of_members, wide_);
}

void HeadCombination::write(RowFile& file, std::size_t first, std::size_t count,
                            std::span<std::string> lines) {
  const Rows rows = combined(first, count);
  file.write(datasets_.truth, first, rows.truth);
  file.write(datasets_.prediction, first, rows.prediction);
  file.write(datasets_.certainty, first, classes() ? rows.probability : rows.deviation);
  if (datasets_.each) file.write(*datasets_.each, first, rows.each);
  if (datasets_.mask) file.write(*datasets_.mask, first, mask_of(rows.prediction));
  add(rows);
  if (!in_table()) return;
  for (std::size_t i = 0; i < rows.truth.size(); ++i) {
    std::string& line = lines[i / targets_.size()];
    line += "," + number_text(rows.truth[i], wide_truth_) + "," + number_text(rows.prediction[i], wide_);
    if (!classes()) line += fmt::format(",{:.9g}", rows.deviation[i]);
  }
}

Evaluation HeadCombination::evaluation() const {
  Evaluation evaluation;
  evaluation.classes = classes();
  if (files_.front().ids().empty()) return evaluation;
  const nlohmann::json& one = results_.front().at("test").at("targets");
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    const Sums& sums = sums_[t];
    const double count = std::max(1.0, sums.count);
    TargetErrors& errors = evaluation.targets.emplace_back();
    errors.label = targets_[t];
    errors.mae = sums.absolute / count;
    errors.mse = (classes() ? sums.absolute : sums.squared) / count;
    errors.variance = sums.spread / count;
    if (classes() && !counts_.empty())
      errors.classification =
          classification_of(static_cast<std::size_t>(shape_of("probability").at(0)), counts_);
    for (std::size_t k = 0; k < kIntervals.size() && !classes(); ++k)
      errors.calibration.emplace_back(kIntervals[k].name, sums.within[k] / count);
    // The same for every member: it depends only on the data.
    const nlohmann::json guess =
        one.value(targets_[t], nlohmann::json::object()).value("mean_guess_mae", nlohmann::json());
    errors.mean_guess_mae = guess.is_number() ? guess.get<double>() : 0;
  }
  return evaluation;
}

void HeadCombination::add_calibration(nlohmann::json& shares) const {
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    if (classes() || sums_[t].count == 0) continue;
    shares[targets_[t]] = {{"within_1_deviation", sums_[t].within_one / sums_[t].count},
                           {"within_2_deviations", sums_[t].within_two / sums_[t].count},
                           {"spread_over_error", sums_[t].spread_over_error()}};
  }
}

std::string HeadCombination::describe(const Evaluation& test) const {
  std::string out;
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    std::vector<double> single;
    for (const nlohmann::json& one : results_)
      if (const auto& ratio = one.at("test").at("targets").at(targets_[t]).at("mae_ratio"); ratio.is_number())
        single.push_back(ratio.get<double>());
    if (single.empty()) continue;  // the guess is always right
    const auto [least, most] = std::minmax_element(single.begin(), single.end());
    out += fmt::format("{}: ratio {} of the mean, {:.3f} to {:.3f} of single members\n", targets_[t],
                       ratio_text(test.targets[t]), *least, *most);
    if (classes()) continue;
    out += fmt::format(
        "  within 1 deviation {:.1f} % of the truths (68.3 % of a normal distribution), within 2 "
        "{:.1f} % (95.4 %); the deviation is {:.2f} times the error\n",
        100 * sums_[t].within_one / sums_[t].count, 100 * sums_[t].within_two / sums_[t].count,
        sums_[t].spread_over_error());
  }
  return out;
}

// Combines the trained members to the ensemble; on rank 0.
class Combination {
 public:
  Combination(const TrainConfig& config, std::uint64_t last_step);
  void write();

 private:
  void check_same_samples() const;
  void write_predictions();
  bool has_table() const { return std::ranges::any_of(heads_, &HeadCombination::in_table); }
  bool is_tested() const { return !files_.front().ids().empty(); }
  Evaluation evaluation() const;
  nlohmann::json result(const Evaluation& test) const;
  void print(const Evaluation& test) const;

  const TrainConfig& config_;
  const fs::path output_;
  const std::uint64_t last_step_;  // over all members
  std::vector<RowFileReader> files_;
  std::vector<nlohmann::json> results_;  // result.json of each member
  std::vector<HeadCombination> heads_;   // those of the exported models
};

Combination::Combination(const TrainConfig& config, std::uint64_t last_step)
    : config_(config), output_(config.output), last_step_(last_step) {
  for (std::int64_t member = 0; member < config.members; ++member) {
    const fs::path folder = member_folder(config.output, member);
    files_.emplace_back(folder / "predictions.h5");
    results_.push_back(nlohmann::json::parse(read_file(folder / "result.json")));
  }
  const auto model = open_exported_model(member_folder(config.output, 0) / "model.pt");
  const std::vector<HeadConfig> heads = heads_of(config);
  for (const ExportedModel::Head& head : model->heads()) {
    const auto own = std::ranges::find(heads, head.name, &HeadConfig::name);
    WFLOW_CHECK(own != heads.end());
    heads_.emplace_back(files_, results_, head, own->loss);
  }
  check_same_samples();
}

void Combination::check_same_samples() const {
  for (std::size_t k = 1; k < files_.size(); ++k) {
    const bool same_shapes =
        std::ranges::all_of(heads_, [&](const HeadCombination& head) { return head.same_shape(files_[k]); });
    if (files_[k].ids() == files_.front().ids() && same_shapes &&
        results_[k].at("data").at("hash") == results_.front().at("data").at("hash"))
      continue;
    throw Error(ExitCode::data,
                fmt::format("member-{} in {} is of other data than member-1: the data have changed while the "
                            "members were trained; --fresh-on-new-data trains those anew that need it",
                            k + 1, config_.output));
  }
}

void Combination::write_predictions() {
  RowFile file(output_ / "predictions.h5", files_.front().ids());
  file.number("wflow_format", kPredictionFormat);
  file.number("members", config_.members);
  file.text("producer", {fmt::format("wflow {}", kVersion)});
  file.text("data_hash", {results_.front().at("data").at("hash").get<std::string>()});
  if (heads_.size() > 1) {
    std::vector<std::string> names;
    for (const HeadCombination& head : heads_) names.push_back(head.name());
    file.text("heads", names);
  }
  std::size_t values = 1;
  std::string table = "id";
  for (HeadCombination& head : heads_) {
    if (heads_.size() > 1) file.use_group(head.name());
    head.begin(file);
    values = std::max(values, head.most_values());
    if (head.in_table()) table += head.heading();
  }
  table += '\n';
  const std::size_t most = std::max<std::size_t>(1, kValuesAtOnce / values);
  for (std::size_t first = 0; first < file.rows(); first += most) {
    const std::size_t count = std::min(most, file.rows() - first);
    std::vector<std::string> lines;
    for (std::size_t n = 0; n < count; ++n) lines.push_back(std::to_string(files_.front().ids()[first + n]));
    for (HeadCombination& head : heads_) head.write(file, first, count, lines);
    for (const std::string& line : lines) table += line + "\n";
  }
  file.publish();
  if (has_table()) write_file_durably(output_ / "predictions.csv", table);
}

Evaluation Combination::evaluation() const {
  if (heads_.size() == 1) return heads_.front().evaluation();
  Evaluation all;
  for (const HeadCombination& head : heads_) {
    const Evaluation own = head.evaluation();
    all.heads.push_back({head.name(), 0, own.targets.size(), own.classes});
    all.targets.insert(all.targets.end(), own.targets.begin(), own.targets.end());
  }
  return all;
}

nlohmann::json Combination::result(const Evaluation& test) const {
  nlohmann::json members = nlohmann::json::array();
  double seconds = 0;
  for (std::size_t k = 0; k < results_.size(); ++k) {
    const nlohmann::json& one = results_[k];
    seconds += one.at("seconds").at("training").get<double>();
    nlohmann::json member = {{"folder", fmt::format("member-{}", k + 1)}};
    member["seed"] = one.at("seeds").at("seed");
    for (const char* key : {"epochs", "steps", "selected_epoch", "validation", "test"})
      member[key] = one.at(key);
    members.push_back(std::move(member));
  }
  const nlohmann::json& first = results_.front();
  nlohmann::json calibration = nlohmann::json::object();
  for (const HeadCombination& head : heads_) head.add_calibration(calibration);
  nlohmann::json all = {{"wflow_format", 1},
                        {"test", to_json(test)},
                        {"calibration", calibration},
                        {"members", members},
                        {"seconds", {{"training", seconds}}}};
  // Each member has its own losses.
  all["test"].erase("loss");
  if (all["test"].contains("heads"))
    for (nlohmann::json& head : all["test"]["heads"]) head.erase("loss");
  for (const char* key :
       {"data", "model", "ranks", "threads", "host", "device", "precision", "kernels", "versions"})
    all[key] = first.at(key);
  all["seeds"] = {
      {"seed", config_.seed}, {"members", config_.members}, {"shuffle_labels", config_.shuffle_labels}};
  return all;
}

void Combination::print(const Evaluation& test) const {
  std::string out = "\n" + test_lines(test, fmt::format("test, {} members", config_.members));
  const auto parts = test.by_head();
  for (std::size_t h = 0; h < heads_.size(); ++h) out += heads_[h].describe(parts[h].second);
  std::fputs(out.c_str(), stdout);
}

void Combination::write() {
  write_predictions();
  const Evaluation test = evaluation();
  std::vector<fs::path> models;
  for (std::int64_t member = 0; member < config_.members; ++member)
    models.push_back(member_folder(config_.output, member) / "model.pt");
  std::vector<LossConfig> losses;
  for (const HeadCombination& head : heads_) losses.push_back(head.loss());
  export_ensemble(models, losses, output_ / "model.pt");
  for (const char* name : {"model.onnx", "metrics.csv"})  // left by an earlier training without members
    fs::remove(output_ / name);
  write_file_durably(output_ / "train.yaml", yaml::emit(to_yaml(config_)));
  write_result(output_, result(test));
  if (is_tested()) print(test);
  std::fputs(fmt::format("results in {}: model.pt (of all members; each has a model.onnx of its own), "
                         "predictions.h5, {}metrics.jsonl, result.json\n",
                         config_.output, has_table() ? "predictions.csv, " : "")
                 .c_str(),
             stdout);
  std::fflush(stdout);
  EventWriter events = EventWriter::from_environment();
  for (const TargetErrors& errors : test.targets)
    if (is_tested() && errors.ratio())
      events.metric("test_mae_ratio/" + errors.label, *errors.ratio(),
                    static_cast<std::uint64_t>(config_.members * config_.epochs), last_step_);
  events.artifact("model", (output_ / "model.pt").string());
  events.artifact("predictions", (output_ / (has_table() ? "predictions.csv" : "predictions.h5")).string());
}

}  // namespace

Outcome train_members(const TrainConfig& config, Communicator& communicator, const RunOptions& options) {
  const bool leader = communicator.rank() == 0;
  const auto began = std::chrono::steady_clock::now();
  RunOptions own = options;
  own.members = config.members;
  own.stop_asked = [&] {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    return (config.max_seconds > 0 && seconds.count() >= config.max_seconds) ||
           (options.stop_asked && options.stop_asked());
  };
  if (options.fresh && leader) forget_members(config);
  std::uint64_t last_step = 0;
  own.metrics_written = [&] { last_step = write_metrics_of_all(config, own.member); };
  for (own.member = 0; own.member < config.members; ++own.member) {
    const TrainConfig member = config_of_member(config, own.member);
    if (leader) {
      std::fputs(
          fmt::format("\nmember {} of {}, seed {}\n", own.member + 1, config.members, member.seed).c_str(),
          stdout);
      std::fflush(stdout);
    }
    if (train(member, communicator, own) == Outcome::interrupted) return Outcome::interrupted;
    own.bit_flips.clear();  // each flip comes once
  }
  if (leader) Combination(config, last_step).write();
  return Outcome::finished;
}

}  // namespace wflow::trainer
