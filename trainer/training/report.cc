// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/checksum.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

// Null where the measurements of the epoch give no estimate.
nlohmann::json noise_json(const NoiseSums& noise) {
  const std::optional<double> scale = noise.scale();
  return scale ? nlohmann::json(*scale) : nlohmann::json();
}

constexpr std::array<const char*, 3> kErrorColumns = {"mae", "mse", "mae_ratio"};

// Names of the columns of a target's validation.
std::vector<std::string> validation_columns(const std::vector<EpochRow>& history, std::size_t target) {
  std::vector<std::string> names(kErrorColumns.begin(), kErrorColumns.end());
  const auto has = [&](const EpochRow& row) { return row.validation.targets.size() > target; };
  const auto last = std::find_if(history.rbegin(), history.rend(), has);
  if (last == history.rend()) return names;
  for (const NamedMetric& metric : main_metrics_of(last->validation.targets[target]))
    names.push_back(metric.name);
  return names;
}

std::string real_or_empty(const std::optional<double>& value) {
  return value ? text::from_real(*value) : std::string();
}

// A detection, which has its metrics at its first target; the guess is that there is no object.
bool is_detection(const Evaluation& evaluation) {
  return !evaluation.targets.empty() &&
         std::ranges::find(evaluation.targets.front().more, "map", &NamedMetric::name) !=
             evaluation.targets.front().more.end();
}

std::string real_or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}

}  // namespace

nlohmann::json noise_result(const std::vector<EpochRow>& history) {
  NoiseSums late;
  for (std::size_t i = history.size() / 2; i < history.size(); ++i) {
    late.trace += history[i].noise.trace;
    late.square += history[i].noise.square;
    late.count += history[i].noise.count;
  }
  nlohmann::json epochs = nlohmann::json::array();
  for (const EpochRow& row : history) epochs.push_back(noise_json(row.noise));
  return {{"second_half", noise_json(late)}, {"measurements", late.count}, {"epochs", epochs}};
}

std::string metrics_csv(const std::vector<std::string>& labels, const std::vector<EpochRow>& history) {
  std::string out = "epoch,step,learning_rate,train_loss,validation_loss";
  std::size_t columns = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const std::string& name : validation_columns(history, i)) {
      out += "," + csv::cell(fmt::format("validation_{}/{}", name, labels[i]));
      ++columns;
    }
  }
  out += ",samples_per_second,seconds,batch\n";
  for (const EpochRow& row : history) {
    const bool validated = !row.validation.targets.empty();
    out += fmt::format("{},{},{},{},{}", row.epoch, row.step, text::from_real(row.learning_rate),
                       text::from_real(row.train_loss),
                       validated ? text::from_real(row.validation.loss) : std::string());
    if (!validated) out += std::string(columns, ',');
    for (std::size_t i = 0; i < row.validation.targets.size(); ++i) {
      const TargetErrors& t = row.validation.targets[i];
      out +=
          fmt::format(",{},{},{}", text::from_real(t.mae), text::from_real(t.mse), real_or_empty(t.ratio()));
      const std::vector<NamedMetric> metrics = main_metrics_of(t);
      for (const NamedMetric& metric : metrics) out += "," + real_or_empty(metric.value);
      // A row of an earlier revision has none.
      if (metrics.empty())
        out += std::string(validation_columns(history, i).size() - kErrorColumns.size(), ',');
    }
    out += fmt::format(",{:.1f},{:.3f},{}\n", row.samples_per_second, row.seconds,
                       row.batch > 0 ? std::to_string(row.batch) : "");
  }
  return out;
}

std::string metrics_jsonl(const std::vector<EpochRow>& history, std::span<const Bout> bouts) {
  std::string out;
  for (const EpochRow& row : history) {
    nlohmann::json line = {{"epoch", row.epoch},
                           {"step", row.step},
                           {"learning_rate", row.learning_rate},
                           {"train_loss", row.train_loss},
                           {"samples_per_second", row.samples_per_second},
                           {"seconds", row.seconds},
                           {"data_wait", row.data_wait},
                           {"exposed_communication", row.exposed_communication}};
    if (row.batch > 0) line["batch"] = row.batch;
    if (row.ranks.ranks > 1) line["ranks"] = row.ranks.to_json();
    if (row.noise.count > 0) line["noise_scale"] = noise_json(row.noise);
    if (!row.validation.targets.empty()) line["validation_loss"] = row.validation.loss;
    for (const Evaluation::Head& head : row.validation.heads)
      line["validation_heads"][head.name] = {{"loss", head.loss}};
    for (const TargetErrors& t : row.validation.targets) {
      const std::optional<double> r2 = t.r2();
      const std::optional<double> ratio = t.ratio();
      line["validation"][t.label] = {{"mae", t.mae},
                                     {"rmse", t.rmse()},
                                     {"mae_ratio", ratio ? nlohmann::json(*ratio) : nlohmann::json()},
                                     {"r2", r2 ? nlohmann::json(*r2) : nlohmann::json()}};
      for (const NamedMetric& metric : metrics_of(t))
        line["validation"][t.label][metric.name] =
            metric.value ? nlohmann::json(*metric.value) : nlohmann::json();
    }
    for (const Bout& bout : bouts)
      if (bout.epoch == row.epoch) line["rounds"].push_back(to_json(bout));
    out += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return out;
}

std::string number_text(double value, bool wide) {
  return wide ? text::from_real(value) : fmt::format("{:.9g}", value);
}

void write_result(const std::filesystem::path& output, nlohmann::json result) {
  for (const char* name : {"model.pt", "model.onnx", "predictions.h5", "predictions.csv", "metrics.csv",
                           "metrics.jsonl", "pictures.json"}) {
    std::error_code none;
    if (std::filesystem::exists(output / name, none)) result["checksums"][name] = hash_file(output / name);
  }
  write_file_durably(output / "result.json", with_checksum(result.dump(2) + "\n"));
}

std::string ratio_text(const TargetErrors& errors) {
  const std::optional<double> ratio = errors.ratio();
  return ratio ? fmt::format("{:.3f}", *ratio) : "-";
}

std::string epoch_line(const EpochRow& row, std::int64_t epochs) {
  std::string line = fmt::format("epoch {}/{}  loss {:.4g}", row.epoch, epochs, row.train_loss);
  if (!row.validation.targets.empty()) {
    line += fmt::format("  validation {:.4g}", row.validation.loss);
    if (row.validation.heads.empty()) line += "  error/mean-guess";
    for (const auto& [head, part] : row.validation.by_head()) {
      if (!head.empty()) {
        const std::optional<double> ratio = part.mean_ratio();
        line += fmt::format("  {} {:.4g} ({})", head, part.loss, ratio ? fmt::format("{:.3f}", *ratio) : "-");
        continue;
      }
      for (const TargetErrors& t :
           std::span(part.targets).first(is_detection(part) ? 1 : part.targets.size())) {
        line += fmt::format(" {} {}", t.label, ratio_text(t));
        if (t.classification)
          line += fmt::format(" (mean IoU {})", real_or_dash(t.classification->mean_iou()));
        if (!t.more.empty())
          line += fmt::format(" ({} {})", t.more.front().name, real_or_dash(t.more.front().value));
      }
    }
  }
  return line + fmt::format("  {:.1f} samples/s  lr {:.3g}", row.samples_per_second, row.learning_rate);
}

Performance performance_of(const std::vector<EpochRow>& history, std::int64_t flops_of_sample) {
  Performance all;
  double seconds = 0;
  for (const EpochRow& row : history) {
    seconds += row.seconds;
    all.samples_per_second += row.samples_per_second * row.seconds;
    all.data_wait += row.data_wait * row.seconds;
    all.exposed_communication += row.exposed_communication * row.seconds;
  }
  if (seconds <= 0) return {};
  all.samples_per_second /= seconds;
  all.data_wait /= seconds;
  all.exposed_communication /= seconds;
  all.gflops = static_cast<double>(flops_of_sample) * all.samples_per_second * 1e-9;
  return all;
}

nlohmann::json to_json(const Performance& performance) {
  return {{"samples_per_second", performance.samples_per_second},
          {"gflops", performance.gflops},
          {"data_wait", performance.data_wait},
          {"exposed_communication", performance.exposed_communication},
          {"peak_memory_bytes", performance.peak_memory}};
}

std::string performance_line(const Performance& performance) {
  const std::vector<std::uint64_t>& memory = performance.peak_memory;
  const std::uint64_t most = memory.empty() ? 0 : *std::max_element(memory.begin(), memory.end());
  std::string line =
      fmt::format("training: {:.1f} samples/s, {:.1f} GFLOP/s, {:.1f} % of the time waiting for data",
                  performance.samples_per_second, performance.gflops, 100 * performance.data_wait);
  if (memory.size() > 1)
    line += fmt::format(", {:.1f} % for the other ranks", 100 * performance.exposed_communication);
  return line +
         fmt::format("; up to {} of memory{}", text::format_bytes(most), memory.size() > 1 ? " a rank" : "");
}

namespace {

// Metrics of a target below the table of errors; empty if it has none.
std::string metric_lines(const TargetErrors& errors) {
  std::string out;
  for (const auto& [name, share] : errors.calibration)
    out +=
        fmt::format("{}{} {:.3f}", out.empty() ? errors.label + ": share of the truths " : ", ", name, share);
  if (!out.empty()) out += '\n';
  std::string more;
  for (const NamedMetric& metric : errors.more)
    more += fmt::format("{}{} {}", more.empty() ? errors.label + ": " : ", ", metric.name,
                        real_or_dash(metric.value));
  if (!more.empty()) out += more + '\n';
  if (!errors.classification) return out;
  const Classification& all = *errors.classification;
  out += fmt::format("{}: accuracy {}, mean IoU {}, mean Dice {}, mean ROC AUC {}\n", errors.label,
                     real_or_dash(all.accuracy()), real_or_dash(all.mean_iou()),
                     real_or_dash(all.mean_dice()), real_or_dash(all.mean_auc()));
  if (all.classes.size() > kMostDetailedClasses) return out;
  out += fmt::format("{:<24} {:>14} {:>8} {:>8} {:>10} {:>8} {:>8}\n", "class", "cells", "IoU", "Dice",
                     "precision", "recall", "ROC AUC");
  for (std::size_t k = 0; k < all.classes.size(); ++k) {
    const ClassMetrics& one = all.classes[k];
    out += fmt::format("{:<24} {:>14.0f} {:>8} {:>8} {:>10} {:>8} {:>8}\n", k, one.truth,
                       real_or_dash(one.iou()), real_or_dash(one.dice()), real_or_dash(one.precision()),
                       real_or_dash(one.recall()), real_or_dash(one.auc));
  }
  return out;
}

std::string head_lines(const Evaluation& evaluation, const std::string& title) {
  const bool classes = evaluation.classes;
  std::string out = fmt::format("{:<24} {:>14} {:>14} {:>18} {:>8} {:>8}\n", title,
                                classes ? "error rate" : "mean abs error", classes ? "" : "rms error",
                                classes                    ? "most common class"
                                : is_detection(evaluation) ? "no object"
                                                           : "always the mean",
                                "ratio", classes ? "" : "R2");
  for (const TargetErrors& t : evaluation.targets) {
    const std::optional<double> r2 = t.r2();
    out += fmt::format("{:<24} {:>14.6g} {:>14} {:>18.6g} {:>8} {:>8}\n", t.label, t.mae,
                       classes ? std::string() : fmt::format("{:.6g}", t.rmse()), t.mean_guess_mae,
                       ratio_text(t),
                       classes ? std::string()
                       : r2    ? fmt::format("{:.4f}", *r2)
                               : "-");
  }
  for (const TargetErrors& t : evaluation.targets) out += metric_lines(t);
  return out;
}

}  // namespace

std::string test_lines(const Evaluation& all, std::string_view title) {
  std::string out;
  for (const auto& [head, part] : all.by_head())
    out += (out.empty() ? "" : "\n") +
           head_lines(part, head.empty() ? std::string(title) : fmt::format("{} {}", title, head));
  return out;
}

}  // namespace wflow::trainer
