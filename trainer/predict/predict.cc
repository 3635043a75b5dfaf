// SPDX-License-Identifier: Apache-2.0
#include "trainer/predict/predict.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "trainer/config.h"
#include "trainer/formula.h"
#include "trainer/model/exported_model.h"
#include "trainer/training/formula_loss.h"
#include "trainer/training/metrics.h"
#include "trainer/training/objective.h"
#include "trainer/training/prediction_file.h"
#include "trainer/training/report.h"
#include "trainer/training/row_file.h"

namespace wflow::trainer {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTransformed = "transformed";
constexpr double kMeanRounding = 1e-12;  // relative rounding error of a mean

// A model's output by its parts, each [rows, channels, cells].
struct Predicted {
  std::size_t rows = 0;
  std::size_t channels = 0;          // in `prediction`
  std::vector<std::int64_t> extent;  // shape of a channel; empty for numbers
  std::size_t cells = 1;
  std::vector<double> prediction;   // for classes their numbers, in one channel
  std::vector<double> deviation;    // for a gaussian loss
  std::vector<double> probability;  // for classes and for a detection
  std::size_t classes = 0;
  std::size_t object_classes = 0;  // for a detection, which has the probabilities of these
  std::vector<double> physical;    // and the whole output
  std::vector<double> quantile;    // for a quantile loss: the first quantile of all channels, then the second
  std::vector<double> quantiles;   // and which they are
  bool wide = false;               // float64
  bool has_channels = true;        // a field has an axis of channels
};

// Channels [from, from + count) of every row.
std::vector<double> channels_of(const ModelArray& output, std::size_t from, std::size_t count,
                                std::size_t all, std::size_t cells) {
  std::vector<double> part;
  const std::size_t rows = output.values.size() / (all * cells);
  for (std::size_t n = 0; n < rows; ++n) {
    const auto begin = output.values.begin() + static_cast<std::ptrdiff_t>((n * all + from) * cells);
    part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(count * cells));
  }
  return part;
}

bool is_class_loss(const std::string& loss) {
  const std::array names = {LossName::cross_entropy, LossName::dice, LossName::focal};
  return std::ranges::any_of(names, [&](LossName name) { return loss == name_of(name); });
}

void choose_classes(Predicted& predicted) {
  predicted.channels = 1;
  for (std::size_t n = 0; n < predicted.rows; ++n) {
    for (std::size_t cell = 0; cell < predicted.cells; ++cell) {
      const auto share = [&](std::size_t k) {
        return predicted.probability[(n * predicted.classes + k) * predicted.cells + cell];
      };
      std::size_t best = 0;
      for (std::size_t k = 1; k < predicted.classes; ++k)
        if (share(k) > share(best)) best = k;
      predicted.prediction.push_back(static_cast<double>(best));
    }
  }
}

void choose_boxes(Predicted& predicted, ModelArray output, std::size_t channels, std::size_t targets) {
  predicted.channels = targets;
  predicted.object_classes = channels + 1 - targets;
  predicted.probability = channels_of(output, 1, predicted.object_classes, channels, predicted.cells);
  const DetectionChannels of_cell = {predicted.object_classes, targets / 2 - 1};
  predicted.physical = std::move(output.values);
  const std::size_t values = channels * predicted.cells;
  for (std::size_t n = 0; n < predicted.rows; ++n) {
    const std::vector<double> row =
        of_cell.prediction(std::span(predicted.physical).subspan(n * values, values));
    predicted.prediction.insert(predicted.prediction.end(), row.begin(), row.end());
  }
}

// The deviations of the predictions of a mixture density.
std::vector<double> density_deviations(const ModelArray& output, std::size_t targets, std::size_t channels) {
  std::vector<double> all;
  for (std::size_t begin = 0; begin < output.values.size(); begin += channels) {
    const std::span<const double> values = std::span(output.values).subspan(begin, channels);
    const std::vector<double> own =
        MixtureDensity(values, MixtureDensity::components_of(channels, targets), targets).deviations();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// A layer's values have neither loss nor quantiles nor targets.
Predicted predicted_of(ModelArray output, const std::string& loss, const std::vector<double>& quantiles,
                       std::size_t targets) {
  Predicted predicted;
  predicted.wide = output.wide;
  predicted.rows = static_cast<std::size_t>(output.shape.front());
  if (output.shape.size() == 1) output.shape.push_back(1);
  predicted.extent.assign(output.shape.begin() + 2, output.shape.end());
  predicted.cells = static_cast<std::size_t>(std::accumulate(predicted.extent.begin(), predicted.extent.end(),
                                                             std::int64_t{1}, std::multiplies<>()));
  if (predicted.cells == 1) predicted.extent.clear();
  const auto channels = static_cast<std::size_t>(output.shape[1]);
  if (loss == name_of(LossName::gaussian)) {
    predicted.channels = channels / 2;
    predicted.prediction = channels_of(output, 0, channels / 2, channels, predicted.cells);
    predicted.deviation = channels_of(output, channels / 2, channels / 2, channels, predicted.cells);
  } else if (loss == name_of(LossName::mixture) && targets > 0 && channels > targets) {
    predicted.channels = targets;
    predicted.prediction = channels_of(output, 0, targets, channels, predicted.cells);
    predicted.deviation = density_deviations(output, targets, channels);
  } else if (const std::size_t count = quantiles.size(); count > 0 && channels % count == 0) {
    predicted.channels = channels / count;
    predicted.quantiles = quantiles;
    predicted.prediction = channels_of(output, nearest_to_median(predicted.quantiles) * predicted.channels,
                                       predicted.channels, channels, predicted.cells);
    predicted.quantile = std::move(output.values);
  } else if (is_class_loss(loss)) {
    predicted.classes = channels;
    predicted.probability = std::move(output.values);
    choose_classes(predicted);
  } else if (loss == name_of(LossName::detection) && targets >= 4 && channels >= targets) {
    choose_boxes(predicted, std::move(output), channels, targets);
  } else {
    predicted.channels = channels;
    predicted.prediction = std::move(output.values);
  }
  return predicted;
}

// The stored axes of a predicted field; a network may predict it on another grid than in training.
void use_own_axes(Predicted& predicted, const ExportedModel::Head& head) {
  if (predicted.extent.empty()) return;
  const std::size_t axes = head.grid.size();
  if (axes == 0 || axes > predicted.extent.size()) return;
  const auto own = predicted.extent.end() - static_cast<std::ptrdiff_t>(axes);
  if (std::any_of(predicted.extent.begin(), own, [](std::int64_t n) { return n != 1; })) return;
  predicted.extent.erase(predicted.extent.begin(), own);
  predicted.has_channels = head.has_channels;
}

// Sums over all rows for a table of errors.
class Errors {
 public:
  // `guesses`: one a target (PredictionRows::guesses). `metrics`: those of a model of numbers.
  Errors(std::vector<std::string> names, std::vector<double> guesses, std::span<const MetricConfig> metrics)
      : names_(std::move(names)), means_(std::move(guesses)), sums_(names_.size()) {
    for (const MetricConfig& metric : metrics)
      if (TargetFormula::fits(target_formula(metric.formula, "metric"), names_))
        metrics_.push_back({UserMetric(metric, names_, {}, {}), {}});
  }

  void add(const Predicted& predicted, std::span<const double> truths) {
    if (predicted.object_classes > 0) return add_objects(predicted, truths);
    add_metrics(predicted, truths);
    classes_ = predicted.classes;
    counts_.resize(classes_ > 0 ? class_count_size(classes_) : 0);
    within_.resize(predicted.deviation.empty() ? 0 : names_.size() * kIntervals.size());
    for (std::size_t i = 0; i < truths.size(); ++i) {
      Sums& sums = sums_[i / predicted.cells % names_.size()];
      const double truth = truths[i];
      if (std::isnan(truth)) continue;  // padding
      const double error = std::abs(predicted.prediction[i] - truth);
      sums.absolute += classes_ > 0 ? (error > 0.5 ? 1.0 : 0.0) : error;
      sums.squared += error * error;
      const double guess = means_[i / predicted.cells % names_.size()];
      const double off = std::abs(guess - truth);
      if (classes_ > 0) {
        count_cell(predicted, i, truth);
        sums.guess += off > 0.5 ? 1 : 0;
      } else if (off >
                 kMeanRounding * std::abs(guess)) {  // a constant target equals its mean but for rounding
        sums.guess += off;
      }
      for (std::size_t k = 0; k < within_.size() / names_.size(); ++k)
        if (error <= kIntervals[k].deviations * predicted.deviation[i])
          ++within_[i / predicted.cells % names_.size() * kIntervals.size() + k];
      // Welford (1962): the variance without a difference of large sums.
      ++sums.count;
      const double step = truth - sums.mean;
      sums.mean += step / sums.count;
      sums.spread += step * (truth - sums.mean);
    }
  }

  Evaluation evaluation() const {
    if (objects_) return evaluate(*objects_, std::vector<double>(names_.size(), 1.0), records_, counts_);
    Evaluation evaluation;
    evaluation.classes = classes_ > 0;
    for (std::size_t t = 0; t < names_.size(); ++t) {
      const Sums& sums = sums_[t];
      const double count = std::max(1.0, sums.count);
      TargetErrors& errors = evaluation.targets.emplace_back();
      errors.label = names_[t];
      errors.mae = sums.absolute / count;
      errors.mse = classes_ > 0 ? errors.mae : sums.squared / count;
      errors.mean_guess_mae = sums.guess / count;
      errors.variance = classes_ > 0 ? 0 : sums.spread / count;
      if (classes_ > 0) errors.classification = classification_of(classes_, counts_);
      for (std::size_t k = 0; k < within_.size() / names_.size(); ++k)
        errors.calibration.emplace_back(kIntervals[k].name,
                                        static_cast<double>(within_[t * kIntervals.size() + k]) / count);
    }
    for (const Metric& metric : metrics_)
      for (std::size_t mean = 0; 2 * mean < metric.sums.size(); ++mean)
        evaluation.targets[mean].more.push_back(
            {metric.metric.name(), UserMetric::mean_of(metric.sums[2 * mean], metric.sums[2 * mean + 1])});
    return evaluation;
  }

 private:
  void add_metrics(const Predicted& predicted, std::span<const double> truths) {
    const std::size_t values = names_.size() * predicted.cells;
    for (Metric& metric : metrics_) {
      metric.sums.resize(metric.metric.record_size());
      for (std::size_t begin = 0; begin + values <= truths.size(); begin += values) {
        std::vector<double> record;
        metric.metric.record(std::span(predicted.prediction).subspan(begin, values),
                             truths.subspan(begin, values), record);
        for (std::size_t k = 0; k < record.size(); ++k) metric.sums[k] += record[k];
      }
    }
  }

  void add_objects(const Predicted& predicted, std::span<const double> truths) {
    if (!objects_) {
      LossConfig loss;
      loss.name = LossName::detection;
      TargetShape shape;
      shape.labels = names_;
      shape.cells = static_cast<std::int64_t>(predicted.cells);
      shape.classes = static_cast<std::int64_t>(predicted.object_classes);
      shape.grid = predicted.extent;
      objects_.emplace(loss, std::move(shape));
      counts_.resize(objects_->count_size());
    }
    const std::size_t values = objects_->truth_count();
    const std::size_t outputs = objects_->output_count();
    for (std::size_t n = 0; n < predicted.rows; ++n)
      objects_->record_detected(std::span(predicted.physical).subspan(n * outputs, outputs),
                                truths.subspan(n * values, values), records_, counts_);
  }

  // Truths that name no class of the model count as errors only.
  void count_cell(const Predicted& predicted, std::size_t i, double truth) {
    if (truth < 0 || truth >= static_cast<double>(classes_)) return;
    std::vector<double> probabilities(classes_);
    const std::size_t begin = i / predicted.cells * classes_ * predicted.cells + i % predicted.cells;
    for (std::size_t k = 0; k < classes_; ++k)
      probabilities[k] = predicted.probability[begin + k * predicted.cells];
    count_class(static_cast<std::size_t>(std::round(truth)), probabilities, counts_);
  }

  struct Sums {
    double absolute = 0;
    double squared = 0;
    double guess = 0;
    double count = 0;
    double mean = 0;
    double spread = 0;
  };
  struct Metric {
    UserMetric metric;
    std::vector<double> sums;  // of the records
  };
  std::vector<std::string> names_;
  std::vector<Metric> metrics_;
  std::vector<double> means_;
  std::vector<Sums> sums_;
  std::size_t classes_ = 0;
  std::vector<std::uint64_t> counts_;  // count_class(), or of a detection
  std::optional<Objective> objects_;   // of a detection
  std::vector<double> records_;        // and its records
  std::vector<std::uint64_t> within_;  // for each target the truths within each of kIntervals
};

// One head of the model, or the layer that was asked for, with the rows of one pass.
struct Part {
  std::string name;  // empty where there is one only
  std::vector<std::string> targets;
  std::string units;
  Predicted predicted;
  bool has_truths = false;
  std::vector<double> truths = {};
};

class Output {
 public:
  virtual ~Output() = default;
  virtual void write(std::size_t first, std::span<const Part> parts) = 0;
  virtual void publish() = 0;
};

class CsvOutput final : public Output {
 public:
  CsvOutput(const PredictOptions& options, const PredictionRows& rows, std::span<const Part> parts)
      : rows_(rows) {
    for (const Part& part : parts) {
      if (part.predicted.cells == 1) continue;
      throw Error(ExitCode::usage,
                  fmt::format("the model predicts fields{}, which do not fit into a table: name a file for "
                              "them, -o predictions.h5{}",
                              part.name.empty() ? "" : fmt::format(" ('{}')", part.name),
                              parts.size() > 1 ? ", or one output of numbers, --layer NAME" : ""));
    }
    if (!options.output.empty()) {
      file_.emplace(options.output);
      fd_ = open_file(file_->temporary(), O_WRONLY | O_CREAT | O_TRUNC);
    }
    std::string line = "id";
    for (const std::string& name : rows.column_names()) line += "," + csv::cell(name);
    for (const Part& part : parts) {
      for (const std::string& name : part.targets) {
        if (part.has_truths) line += "," + csv::cell(name);
        line += "," + csv::cell(name + "_predicted");
        if (!part.predicted.deviation.empty()) line += "," + csv::cell(name + "_deviation");
        for (const double q : part.predicted.quantiles)
          line += "," + csv::cell(fmt::format("{}_q{}", name, q));
      }
    }
    put(line + "\n");
  }

  void write(std::size_t first, std::span<const Part> parts) override {
    std::string lines;
    for (std::size_t n = 0; n < parts.front().predicted.rows; ++n) {
      lines += std::to_string(rows_.id(first + n));
      for (const std::string& cell : rows_.columns(first + n)) lines += "," + csv::cell(cell);
      for (const Part& part : parts) add_cells(part, n, lines);
      lines += '\n';
    }
    put(lines);
  }

  void publish() override {
    if (!file_) return;
    if (::fsync(fd_.get()) != 0) throw system_error(errno, "cannot write " + file_->temporary().string());
    file_->publish();
  }

 private:
  static void add_cells(const Part& part, std::size_t row, std::string& line) {
    const Predicted& predicted = part.predicted;
    for (std::size_t i = row * predicted.channels; i < (row + 1) * predicted.channels; ++i) {
      if (!part.truths.empty()) line += "," + text::from_real(part.truths[i]);
      line += "," + number_text(predicted.prediction[i], predicted.wide);
      if (!predicted.deviation.empty()) line += fmt::format(",{:.9g}", predicted.deviation[i]);
      const std::size_t count = predicted.quantiles.size();
      for (std::size_t k = 0; k < count; ++k) {
        const std::size_t at = (row * count + k) * predicted.channels + i - row * predicted.channels;
        line += "," + number_text(predicted.quantile[at], predicted.wide);
      }
    }
  }

  void put(const std::string& bytes) {
    if (file_) return write_all(fd_.get(), bytes, file_->temporary());
    // By stdio, which makes control characters visible on a terminal.
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::fflush(stdout) != 0)
      throw system_error(errno, "cannot write standard output");
  }

  const PredictionRows& rows_;
  std::optional<DurableFile> file_;
  FileDescriptor fd_;
};

class Hdf5Output final : public Output {
 public:
  Hdf5Output(const PredictOptions& options, const PredictionRows& rows, std::span<const Part> parts)
      : file_(options.output, ids_of(rows)) {
    file_.number("wflow_format", kPredictionFormat);
    file_.text("producer", {fmt::format("wflow {}", kVersion)});
    file_.text("data_hash", {rows.data_hash()});
    if (parts.size() > 1) {
      std::vector<std::string> names;
      for (const Part& part : parts) names.push_back(part.name);
      file_.text("heads", names);
    }
    for (const Part& part : parts) {
      if (parts.size() > 1) file_.use_group(part.name);
      add_datasets(part);
    }
  }

  void write(std::size_t first, std::span<const Part> parts) override {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const Datasets& to = datasets_[k];
      const Predicted& predicted = parts[k].predicted;
      file_.write(to.truth, first, parts[k].truths);
      file_.write(to.prediction, first, predicted.prediction);
      file_.write(to.deviation, first, predicted.deviation);
      file_.write(to.probability, first, predicted.probability);
      file_.write(to.quantile, first, predicted.quantile);
      if (has_mask(predicted.classes, predicted.cells))
        file_.write(to.mask, first, mask_of(predicted.prediction));
    }
  }
  void publish() override { file_.publish(); }

 private:
  struct Datasets {
    std::size_t truth = 0;
    std::size_t prediction = 0;
    std::size_t deviation = 0;
    std::size_t probability = 0;
    std::size_t mask = 0;
    std::size_t quantile = 0;
  };

  static std::vector<std::int64_t> ids_of(const PredictionRows& rows) {
    std::vector<std::int64_t> ids;
    for (std::size_t i = 0; i < rows.size(); ++i) ids.push_back(rows.id(i));
    return ids;
  }

  void add_datasets(const Part& part) {
    const Predicted& first = part.predicted;
    file_.text("targets", part.targets);
    file_.text("units", {part.units});
    const auto shape = [&](std::vector<std::int64_t> before, std::size_t channels) {
      return dataset_shape(std::move(before), static_cast<std::int64_t>(channels), first.has_channels,
                           first.extent);
    };
    const auto add = [&](const char* name, std::size_t channels, bool wide = false) {
      return file_.add(name, shape({}, channels), wide);
    };
    Datasets& datasets = datasets_.emplace_back();
    if (part.has_truths) datasets.truth = add("truth", first.channels, first.wide || first.cells == 1);
    datasets.prediction = add("prediction", first.channels, first.wide);
    if (!first.deviation.empty()) datasets.deviation = add("deviation", first.channels);
    if (const std::size_t classes = std::max(first.classes, first.object_classes); classes > 0)
      datasets.probability = add("probability", classes);
    if (has_mask(first.classes, first.cells)) datasets.mask = file_.add_bytes("mask", first.extent);
    if (first.quantiles.empty()) return;
    file_.reals("quantiles", first.quantiles);
    datasets.quantile =
        file_.add("quantile", shape({std::ssize(first.quantiles)}, first.channels), first.wide);
  }

  RowFile file_;
  std::vector<Datasets> datasets_;  // one for each part
};

// `known`, the model's names of a head's targets, or else "output0" and so on.
std::vector<std::string> target_names(const std::vector<std::string>& known, std::size_t channels,
                                      const std::string& stem) {
  if (known.size() == channels) return known;
  std::vector<std::string> names;
  for (std::size_t c = 0; c < channels; ++c) names.push_back(fmt::format("{}{}", stem, c));
  return names;
}

// Axes of one cell may be left out, and a network without dense layers accepts other grids: only the channels
// must be the same.
void check_shapes(const ExportedModel& model, std::span<const ModelArray> inputs, const std::string& data) {
  for (std::size_t i = 0; i < std::min(model.shapes().size(), inputs.size()); ++i) {
    const std::vector<std::int64_t>& trained = model.shapes()[i];
    if (trained.empty() || inputs[i].shape.size() < 2 || inputs[i].shape[1] == trained[0]) continue;
    throw Error(
        ExitCode::data,
        fmt::format("the model was trained with {} of {} channels or numbers, and {} has {}: predict from "
                    "data that were converted as those of the training",
                    model.inputs().at(i), trained[0], data, inputs[i].shape[1]));
  }
}

// The reason for a model's failure: the shapes, if they differ from those of the training.
[[noreturn]] void explain(const ExportedModel& model, std::span<const ModelArray> inputs,
                          const std::string& data, const Error& error) {
  for (std::size_t i = 0; i < std::min(model.shapes().size(), inputs.size()); ++i) {
    std::vector<std::int64_t> trained = model.shapes()[i];
    std::vector<std::int64_t> found(inputs[i].shape.begin() + 1, inputs[i].shape.end());
    const auto drop_flat = [](std::vector<std::int64_t>& shape) {
      while (shape.size() > 1 && shape[1] == 1) shape.erase(shape.begin() + 1);
    };
    drop_flat(trained);
    drop_flat(found);
    if (trained.empty() || trained == found) continue;
    throw Error(
        ExitCode::data,
        fmt::format(
            "the model was trained with {} of {} (channels x cells), and in {} it is {}: predict from "
            "data of the same shape",
            model.inputs().at(i), extents_text(trained), data, extents_text(found)));
  }
  throw error;
}

// Counts the rows with a number outside the range of the training samples.
class RangeCheck {
 public:
  explicit RangeCheck(const ExportedModel& model) : model_(model), counts_(model.ranges().size()) {}

  void add(std::span<const ModelArray> inputs) {
    for (std::size_t i = 0; i < std::min(counts_.size(), inputs.size()); ++i) {
      const std::vector<double>& range = model_.ranges()[i];
      const ModelArray& array = inputs[i];
      // Only numbers are counted: every field has its own extremes.
      if (array.shape.size() != 2 || range.size() != 2 * static_cast<std::size_t>(array.shape[1])) continue;
      for (std::size_t row = 0; row < static_cast<std::size_t>(array.shape[0]); ++row) {
        bool outside = false;
        for (std::size_t c = 0; c < range.size() / 2; ++c) {
          const double margin = kMargin * (range[2 * c + 1] - range[2 * c]);
          const double value = array.values[row * range.size() / 2 + c];
          outside = outside || value < range[2 * c] - margin || value > range[2 * c + 1] + margin;
        }
        counts_[i] += outside ? 1 : 0;
      }
    }
  }

  void report(std::size_t rows) const {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0) continue;
      const std::vector<double>& range = model_.ranges()[i];
      const std::vector<std::string>& columns = model_.columns().at(i);
      std::vector<std::string> known;
      for (std::size_t c = 0; c < range.size() / 2; ++c)
        known.push_back(fmt::format("{} {:.9g} to {:.9g}",
                                    c < columns.size() ? columns[c] : model_.inputs().at(i), range[2 * c],
                                    range[2 * c + 1]));
      std::fprintf(
          stderr,
          "wflow-train: warning: %zu of %zu rows lie outside the training samples (%s), where a network "
          "only guesses: add samples there\n",
          counts_[i], rows, visible(text::join(known, ", ")).c_str());
    }
  }

 private:
  // The extremes of a few training samples lie within the range that they were drawn from.
  static constexpr double kMargin = 0.05;
  const ExportedModel& model_;
  std::vector<std::size_t> counts_;  // one per input
};

std::unique_ptr<PredictionRows> rows_of(const PredictOptions& options, const ExportedModel& model,
                                        const std::vector<std::string>& inputs,
                                        const std::vector<std::vector<std::string>>& columns) {
  const fs::path data = options.data;
  if (fs::is_directory(data)) {
    std::vector<std::vector<std::string>> targets;
    // Truths in other units than the predictions are not used.
    for (const ExportedModel::Head& head : model.heads())
      targets.push_back(head.units == kTransformed ? std::vector<std::string>{} : names_in_data(head));
    return rows_of_dataset(data, inputs, targets, options.split);
  }
  if (data.extension() == ".csv") return rows_of_table(data, inputs, columns);
  const bool is_file = data.extension() == ".h5" || data.extension() == ".hdf5";
  if (is_file && !model.shapes().empty() && inputs.size() == model.inputs().size())
    return rows_of_file(data, inputs, model.shapes());
  throw Error(
      ExitCode::data,
      fmt::format("{} is neither a data set (a folder with manifest.json) nor a table (.csv){}", options.data,
                  model.shapes().empty() ? "" : " nor a file with the model's inputs (.h5)"));
}

}  // namespace

std::string extents_text(std::span<const std::int64_t> shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::vector<std::string> names_in_data(const ExportedModel::Head& head) {
  std::vector<std::string> names;
  for (const std::string& name : head.targets) {
    const bool prefixed = !head.name.empty() && name.starts_with(head.name + "/");
    names.push_back(prefixed ? name.substr(head.name.size() + 1) : name);
  }
  return names;
}

std::unique_ptr<PredictionRows> rows_of(const PredictOptions& options, const ExportedModel& model) {
  if (model.random_inputs().empty()) return rows_of(options, model, model.inputs(), model.columns());
  std::vector<std::string> others;
  std::vector<std::vector<std::string>> columns;
  RandomNumbers random = {{}, options.seed};
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    const bool drawn =
        std::ranges::find(model.random_inputs(), model.inputs()[i]) != model.random_inputs().end();
    random.sizes.push_back(drawn ? static_cast<std::size_t>(model.shapes().at(i).at(0)) : 0);
    if (drawn) continue;
    others.push_back(model.inputs()[i]);
    columns.push_back(model.columns()[i]);
  }
  const auto count = text::to_integer(options.data);
  if (others.empty() && (!count || *count < 1))
    throw Error(ExitCode::usage,
                fmt::format("{} reads random numbers only: give a number of samples in place of {}",
                            options.model, options.data));
  if (others.empty())
    return rows_with_random_inputs(nullptr, static_cast<std::size_t>(*count), std::move(random));
  return rows_with_random_inputs(rows_of(options, model, others, columns), 0, std::move(random));
}

namespace {

std::unique_ptr<Output> output_of(const PredictOptions& options, const PredictionRows& rows,
                                  std::span<const Part> parts) {
  if (fs::path(options.output).extension() == ".h5")
    return std::make_unique<Hdf5Output>(options, rows, parts);
  return std::make_unique<CsvOutput>(options, rows, parts);
}

void check_output(const std::string& output) {
  const std::string extension = fs::path(output).extension().string();
  if (output.empty() || extension == ".csv" || extension == ".h5") return;
  throw Error(ExitCode::usage,
              fmt::format("-o {}: predictions go to a file that ends in .csv or .h5", output));
}

// Runs the model over the rows, pass by pass.
class Passes {
 public:
  Passes(const PredictOptions& options, ExportedModel& model, const PredictionRows& rows)
      : options_(options), model_(model), rows_(rows) {
    const std::vector<ExportedModel::Head>& heads = model.heads();
    for (std::size_t h = 0; h < heads.size(); ++h)
      if (options.layer.empty() || options.layer == heads[h].name) heads_.push_back(h);
  }

  std::vector<Part> run(std::span<const ModelArray> inputs, std::size_t first, std::size_t count) {
    std::vector<Part> parts = outputs(inputs);
    for (std::size_t k = 0; k < heads_.size(); ++k) {
      Part& part = parts[k];
      part.has_truths = rows_.has_truths(heads_[k]);
      part.truths = rows_.truths(heads_[k], first, count);
      if (part.has_truths && part.truths.size() != part.predicted.prediction.size())
        throw Error(ExitCode::data, fmt::format("{} predicts {} values a sample, and {} has {} truths",
                                                options_.model, part.predicted.prediction.size() / count,
                                                options_.data, part.truths.size() / count));
    }
    check_equal_shapes(parts);
    return parts;
  }

  void add_errors(std::span<const Part> parts) {
    for (std::size_t k = 0; k < heads_.size(); ++k) {
      if (!parts[k].has_truths) continue;
      auto& errors = errors_[k];
      if (!errors) {
        const bool numbers = parts[k].predicted.classes == 0 && parts[k].predicted.object_classes == 0;
        errors.emplace(parts[k].targets, rows_.guesses(heads_[k], parts[k].predicted.classes > 0),
                       numbers ? std::span(model_.metrics()) : std::span<const MetricConfig>());
      }
      errors->add(parts[k].predicted, parts[k].truths);
    }
  }

  std::string error_tables() const {
    std::string tables;
    for (const auto& [k, errors] : errors_) {
      const std::string& head = model_.heads()[heads_[k]].name;
      tables += test_lines(errors->evaluation(), head.empty() ? options_.split : options_.split + " " + head);
    }
    return tables;
  }

 private:
  std::vector<Part> outputs(std::span<const ModelArray> inputs) {
    std::vector<Part> parts;
    try {
      if (heads_.empty()) {
        Part part{
            options_.layer, {}, "network", predicted_of(model_.run_layer(inputs, options_.layer), "", {}, 0)};
        part.targets = target_names({}, part.predicted.channels, options_.layer);
        return {std::move(part)};
      }
      std::vector<ModelArray> arrays = model_.run(inputs);
      for (const std::size_t h : heads_) {
        const ExportedModel::Head& head = model_.heads()[h];
        const std::string units = head.units == kTransformed ? "transformed" : "physical";
        Part part{head.name,
                  {},
                  units,
                  predicted_of(std::move(arrays[h]), head.loss, head.quantiles, head.targets.size())};
        use_own_axes(part.predicted, head);
        part.targets = target_names(head.targets, part.predicted.channels, "output");
        parts.push_back(std::move(part));
      }
    } catch (const Error& error) {
      explain(model_, inputs, options_.data, error);
    }
    return parts;
  }

  void check_equal_shapes(std::span<const Part> parts) {
    std::vector<std::array<std::size_t, 3>> shapes;
    for (const Part& part : parts)
      shapes.push_back({part.predicted.channels, part.predicted.cells, part.predicted.classes});
    if (shapes_.empty()) shapes_ = shapes;
    if (shapes_ != shapes)
      throw Error(ExitCode::data,
                  fmt::format("{} does not give outputs of one shape for all samples", options_.model));
  }

  const PredictOptions& options_;
  ExportedModel& model_;
  const PredictionRows& rows_;
  std::vector<std::size_t> heads_;                  // those that are predicted; none: a layer is
  std::vector<std::array<std::size_t, 3>> shapes_;  // of the first outputs
  std::map<std::size_t, std::optional<Errors>> errors_;
};

}  // namespace

void predict(const PredictOptions& options) {
  check_output(options.output);
  const fs::path model_path =
      fs::is_directory(options.model) ? fs::path(options.model) / "model.pt" : fs::path(options.model);
  const auto opened = open_exported_model(model_path);
  ExportedModel& model = *opened;
  const std::unique_ptr<PredictionRows> rows = rows_of(options, model);
  if (rows->size() == 0)
    throw Error(ExitCode::data,
                fmt::format("{} has no samples to predict (split: {})", options.data, options.split));
  std::unique_ptr<Output> output;
  RangeCheck ranges(model);
  Passes passes(options, model, *rows);
  for (std::size_t first = 0; first < rows->size(); first += options.batch) {
    const std::size_t count = std::min(options.batch, rows->size() - first);
    const std::vector<ModelArray> inputs = rows->inputs(first, count);
    check_shapes(model, inputs, options.data);
    ranges.add(inputs);
    const std::vector<Part> parts = passes.run(inputs, first, count);
    if (!output) output = output_of(options, *rows, parts);
    output->write(first, parts);
    passes.add_errors(parts);
  }
  output->publish();
  ranges.report(rows->size());
  std::fputs(visible(passes.error_tables()).c_str(), stderr);
}

}  // namespace wflow::trainer
