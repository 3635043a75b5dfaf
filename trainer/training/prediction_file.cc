// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/prediction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/csv.h"
#include "base/error.h"
#include "base/program_file.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {

// The datasets of one head.
class PredictionFile::HeadRows {
 public:
  HeadRows(RowFile& file, const Heads::Head& head, const OutputUnits& units, std::vector<double> truths);

  void write(std::size_t first, std::span<const float> truths, std::span<const float> outputs);
  // The columns and a row's cells of predictions.csv, each with a comma before it.
  std::string columns() const;
  const std::string& line(std::size_t row) const { return lines_[row]; }

 private:
  std::size_t cells() const { return static_cast<std::size_t>(objective_.shape().cells); }
  std::size_t targets() const { return objective_.shape().labels.size(); }
  bool classes() const { return is_classification(objective_.name()); }
  bool wide() const { return units_.needs_double(); }
  bool wide_truth() const { return wide() || !known_.empty(); }
  std::size_t dataset(const char* name, std::int64_t channels, bool wide = false);
  std::vector<double> physical_truths(std::size_t first, std::span<const float> truths) const;
  // The predictions of some rows, in physical units.
  struct Predicted {
    std::vector<double> values;
    std::vector<double> deviations = {};  // with a gaussian loss
    std::vector<double> quantiles =
        {};  // with a quantile loss: the first one of all targets, then the second
  };
  void add_lines(std::size_t first, std::span<const double> truths, const Predicted& predicted);
  std::string number_cells(double truth, const Predicted& predicted, std::size_t row,
                           std::size_t target) const;
  Predicted write_classes(std::size_t first, std::size_t count, std::span<const float> outputs);
  Predicted write_numbers(std::size_t first, std::size_t count, std::span<const float> outputs);
  Predicted write_objects(std::size_t first, std::size_t count, std::span<const float> outputs);
  void add_object_lines(std::size_t first, std::span<const double> truths, std::span<const double> predicted);
  bool with_mask() const {
    return classes() && has_mask(static_cast<std::size_t>(objective_.shape().classes), cells());
  }

  RowFile& file_;
  const Objective objective_;
  const OutputUnits units_;
  const std::vector<double> known_;  // truths of numbers, physical
  std::size_t truth_ = 0;            // numbers of the file's datasets
  std::size_t prediction_ = 0;
  std::size_t deviation_ = 0;
  std::size_t probability_ = 0;
  std::size_t mask_ = 0;
  std::size_t quantile_ = 0;
  std::vector<std::string> lines_;
};

PredictionFile::HeadRows::HeadRows(RowFile& file, const Heads::Head& head, const OutputUnits& units,
                                   std::vector<double> truths)
    : file_(file), objective_(head.objective), units_(units), known_(std::move(truths)) {
  file.text("targets", objective_.shape().labels);
  file.text("units", {units.keeps_transform() ? "transformed" : "physical"});
  const auto channels = static_cast<std::int64_t>(targets());
  truth_ = dataset("truth", channels, wide_truth());
  prediction_ = dataset("prediction", channels, wide());
  if (predicts_deviations(objective_.name())) deviation_ = dataset("deviation", channels);
  if (classes() || objective_.detection() != nullptr)
    probability_ = dataset("probability", objective_.shape().classes);
  lines_.resize(file.rows());
  if (with_mask()) mask_ = file.add_bytes("mask", units_.grid);
  if (objective_.name() != LossName::quantile) return;
  file.reals("quantiles", units_.quantiles);
  quantile_ = file.add(
      "quantile", dataset_shape({std::ssize(units_.quantiles)}, channels, units_.has_channels, units_.grid),
      wide());
}

std::vector<std::int64_t> dataset_shape(std::vector<std::int64_t> before, std::int64_t channels,
                                        bool has_channels, std::span<const std::int64_t> grid) {
  if (channels > 1 || has_channels) before.push_back(channels);
  before.insert(before.end(), grid.begin(), grid.end());
  return before;
}

std::vector<std::uint8_t> mask_of(std::span<const double> classes) {
  std::vector<std::uint8_t> mask;
  mask.reserve(classes.size());
  for (const double number : classes) mask.push_back(static_cast<std::uint8_t>(number));
  return mask;
}

std::size_t PredictionFile::HeadRows::dataset(const char* name, std::int64_t channels, bool wide) {
  return file_.add(name, dataset_shape({}, channels, units_.has_channels, units_.grid), wide);
}

std::string PredictionFile::HeadRows::number_cells(double truth, const Predicted& predicted, std::size_t row,
                                                   std::size_t target) const {
  const std::size_t at = row * targets() + target;
  std::string cells =
      "," + number_text(truth, wide_truth()) + "," + number_text(predicted.values[at], wide());
  if (!predicted.deviations.empty()) cells += "," + number_text(predicted.deviations[at], false);
  const std::size_t count = predicted.quantiles.empty() ? 0 : units_.quantiles.size();
  for (std::size_t k = 0; k < count; ++k)
    cells += "," + number_text(predicted.quantiles[(row * count + k) * targets() + target], wide());
  return cells;
}

// Padding has no truth and no error.
void PredictionFile::HeadRows::add_lines(std::size_t first, std::span<const double> truths,
                                         const Predicted& predicted) {
  const std::vector<double>& predictions = predicted.values;
  const std::size_t values = targets() * cells();
  for (std::size_t n = 0; n < truths.size() / values; ++n) {
    std::string line;
    for (std::size_t t = 0; t < targets(); ++t) {
      const std::size_t begin = n * values + t * cells();
      if (cells() == 1) {
        line += number_cells(truths[begin], predicted, n, t);
        continue;
      }
      double truth = 0, prediction = 0, absolute = 0, squared = 0, count = 0;
      for (std::size_t i = begin; i < begin + cells(); ++i) {
        if (std::isnan(truths[i])) continue;
        const double error = predictions[i] - truths[i];
        truth += truths[i];
        prediction += predictions[i];
        absolute += classes() ? (error != 0 ? 1 : 0) : std::abs(error);
        squared += error * error;
        ++count;
      }
      count = std::max(1.0, count);
      if (classes()) {
        line += "," + number_text(absolute / count, false);
        continue;
      }
      line += "," + number_text(truth / count, wide()) + "," + number_text(prediction / count, wide()) + "," +
              number_text(absolute / count, false) + "," + number_text(std::sqrt(squared / count), false);
    }
    lines_[first + n] = std::move(line);
  }
}

PredictionFile::HeadRows::Predicted PredictionFile::HeadRows::write_classes(std::size_t first,
                                                                            std::size_t count,
                                                                            std::span<const float> outputs) {
  const auto most = static_cast<std::size_t>(objective_.shape().classes);
  std::vector<double> likeliest(count * cells());
  std::vector<float> shares(outputs.begin(), outputs.end());
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t cell = 0; cell < cells(); ++cell) {
      const auto at = [&](std::size_t k) -> float& { return shares[(n * most + k) * cells() + cell]; };
      std::size_t best = 0;
      for (std::size_t k = 1; k < most; ++k)
        if (at(k) > at(best)) best = k;
      const float top = at(best);
      double sum = 0;
      for (std::size_t k = 0; k < most; ++k) sum += std::exp(static_cast<double>(at(k)) - top);
      for (std::size_t k = 0; k < most; ++k)
        at(k) = static_cast<float>(std::exp(static_cast<double>(at(k)) - top) / sum);
      likeliest[n * cells() + cell] = static_cast<double>(best);
    }
  }
  file_.write(prediction_, first, likeliest);
  file_.write(probability_, first, shares);
  if (with_mask()) file_.write(mask_, first, mask_of(likeliest));
  return {std::move(likeliest)};
}

PredictionFile::HeadRows::Predicted PredictionFile::HeadRows::write_objects(std::size_t first,
                                                                            std::size_t count,
                                                                            std::span<const float> outputs) {
  const Detection& detection = *objective_.detection();
  const auto begin = static_cast<std::ptrdiff_t>(cells());
  const auto end = begin + static_cast<std::ptrdiff_t>(detection.channels().classes * cells());
  const std::size_t values = objective_.output_count();
  Predicted predicted;
  std::vector<double> shares;
  for (std::size_t n = 0; n < count; ++n) {
    const std::vector<double> physical = detection.physical(outputs.subspan(n * values, values));
    const std::vector<double> as_targets = detection.channels().prediction(physical);
    predicted.values.insert(predicted.values.end(), as_targets.begin(), as_targets.end());
    shares.insert(shares.end(), physical.begin() + begin, physical.begin() + end);
  }
  file_.write(prediction_, first, predicted.values);
  file_.write(probability_, first, shares);
  return predicted;
}

void PredictionFile::HeadRows::add_object_lines(std::size_t first, std::span<const double> truths,
                                                std::span<const double> predicted) {
  const std::size_t values = targets() * cells();
  for (std::size_t n = 0; n < truths.size() / values; ++n) {
    const auto count = [&](std::span<const double> from) {
      const std::span<const double> confidence = from.subspan(n * values, cells());
      return std::ranges::count_if(confidence, [](double value) { return value >= kConfident; });
    };
    lines_[first + n] = fmt::format(",{},{}", count(truths), count(predicted));
  }
}

PredictionFile::HeadRows::Predicted PredictionFile::HeadRows::write_numbers(std::size_t first,
                                                                            std::size_t count,
                                                                            std::span<const float> outputs) {
  const bool spread = predicts_deviations(objective_.name());
  const std::size_t values = targets() * cells();
  const std::size_t channels = objective_.output_count();
  const std::size_t begin = objective_.prediction_channel() * cells();
  Predicted predicted;
  std::vector<double>& means = predicted.values;
  std::vector<double>& deviations = predicted.deviations;
  std::vector<double>& quantiles = predicted.quantiles;
  means.resize(count * values);
  for (std::size_t n = 0; n < count; ++n) {
    for (std::size_t i = 0; i < values; ++i) {
      means[n * values + i] = units_.physical(outputs[n * channels + begin + i], i / cells());
    }
    if (!spread) continue;
    const std::vector<double> own = objective_.deviations(outputs.subspan(n * channels, channels));
    for (std::size_t i = 0; i < values; ++i) deviations.push_back(own[i] * units_.deviation[i / cells()]);
  }
  file_.write(prediction_, first, means);
  if (spread) file_.write(deviation_, first, deviations);
  if (objective_.name() == LossName::quantile) {
    quantiles.assign(outputs.begin(), outputs.end());
    for (std::size_t i = 0; i < quantiles.size(); ++i)
      quantiles[i] = units_.physical(quantiles[i], i / cells() % targets());
    file_.write(quantile_, first, quantiles);
  }
  return predicted;
}

std::vector<double> PredictionFile::HeadRows::physical_truths(std::size_t first,
                                                              std::span<const float> truths) const {
  std::vector<double> physical(truths.begin(), truths.end());
  if (!known_.empty()) {
    const auto begin = known_.begin() + static_cast<std::ptrdiff_t>(first * targets());
    std::copy_n(begin, physical.size(), physical.begin());
  } else if (!classes()) {
    for (std::size_t i = 0; i < physical.size(); ++i)
      physical[i] = units_.physical(physical[i], i / cells() % targets());
  }
  return physical;
}

void PredictionFile::HeadRows::write(std::size_t first, std::span<const float> truths,
                                     std::span<const float> outputs) {
  const std::size_t count = truths.size() / objective_.truth_count();
  WFLOW_CHECK(outputs.size() == count * objective_.output_count() && first + count <= file_.rows());
  const std::vector<double> physical = physical_truths(first, truths);
  file_.write(truth_, first, physical);
  if (objective_.detection() != nullptr) {
    add_object_lines(first, physical, write_objects(first, count, outputs).values);
    return;
  }
  add_lines(first, physical,
            classes() ? write_classes(first, count, outputs) : write_numbers(first, count, outputs));
}

std::string PredictionFile::HeadRows::columns() const {
  std::vector<std::string> suffixes = {"", "_predicted"};
  if (predicts_deviations(objective_.name())) suffixes.emplace_back("_deviation");
  for (const double q : units_.quantiles) suffixes.push_back(fmt::format("_q{}", q));
  if (cells() > 1) suffixes = {"_mean", "_mean_predicted", "_mae", "_rmse"};
  if (cells() > 1 && classes()) suffixes = {"_error_rate"};
  std::string out;
  const std::string& first = objective_.shape().labels.front();
  if (objective_.detection() != nullptr)
    return "," + csv::cell(first + "_objects") + "," + csv::cell(first + "_objects_predicted");
  for (const std::string& name : objective_.shape().labels)
    for (const std::string& suffix : suffixes) out += "," + csv::cell(name + suffix);
  return out;
}

struct PredictionFile::State {
  RowFile file;
  std::vector<std::int64_t> ids;
  std::vector<HeadRows> heads = {};
};

PredictionFile::PredictionFile(const std::filesystem::path& target, const Heads& heads,
                               const std::vector<OutputUnits>& units,
                               const PredictionFileDescription& description,
                               std::span<const std::int64_t> ids)
    : state_(new State{RowFile(target, ids), {ids.begin(), ids.end()}}) {
  RowFile& file = state_->file;
  file.number("wflow_format", kPredictionFormat);
  file.number("epoch", description.epoch);
  file.text("producer", {fmt::format("wflow {}", kVersion)});
  file.text("data_hash", {description.data_hash});
  if (heads.all().size() > 1) {
    std::vector<std::string> names;
    for (const Heads::Head& head : heads.all()) names.push_back(head.name);
    file.text("heads", names);
  }
  state_->heads.reserve(heads.all().size());
  for (std::size_t h = 0; h < heads.all().size(); ++h) {
    if (heads.all().size() > 1) file.use_group(heads.all()[h].name);
    state_->heads.emplace_back(file, heads.all()[h], units[h], description.truths.at(h));
  }
}

PredictionFile::~PredictionFile() = default;

void PredictionFile::write(std::size_t head, std::size_t first, std::span<const float> truths,
                           std::span<const float> outputs) {
  state_->heads.at(head).write(first, truths, outputs);
}

std::string PredictionFile::table() const {
  std::string out = "id";
  for (const HeadRows& head : state_->heads) out += head.columns();
  out += '\n';
  for (std::size_t n = 0; n < state_->ids.size(); ++n) {
    out += std::to_string(state_->ids[n]);
    for (const HeadRows& head : state_->heads) out += head.line(n);
    out += '\n';
  }
  return out;
}

void PredictionFile::publish() {
  state_->file.publish();
}

}  // namespace wflow::trainer
