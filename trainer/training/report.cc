// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

// The user chooses label names: quotes them for CSV where necessary.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Null where the measurements of the epoch give no estimate.
nlohmann::json noise_json(const NoiseSums& noise) {
  const std::optional<double> scale = noise.scale();
  return scale ? nlohmann::json(*scale) : nlohmann::json();
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
  for (const std::string& label : labels) {
    out += fmt::format(",{0},{1},{2}", csv_field("validation_mae/" + label),
                       csv_field("validation_mse/" + label), csv_field("validation_mae_ratio/" + label));
  }
  out += ",samples_per_second,seconds,batch\n";
  for (const EpochRow& row : history) {
    const bool validated = !row.validation.targets.empty();
    out += fmt::format("{},{},{},{},{}", row.epoch, row.step, text::from_real(row.learning_rate),
                       text::from_real(row.train_loss),
                       validated ? text::from_real(row.validation.loss) : std::string());
    if (!validated) out += std::string(3 * labels.size(), ',');
    for (const TargetErrors& t : row.validation.targets) {
      out += fmt::format(",{},{},{}", text::from_real(t.mae), text::from_real(t.mse),
                         t.ratio() ? text::from_real(*t.ratio()) : std::string());
    }
    out += fmt::format(",{:.1f},{:.3f},{}\n", row.samples_per_second, row.seconds,
                       row.batch > 0 ? std::to_string(row.batch) : "");
  }
  return out;
}

std::string metrics_jsonl(const std::vector<EpochRow>& history) {
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
    }
    out += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return out;
}

std::string number_text(double value, bool wide) {
  return wide ? text::from_real(value) : fmt::format("{:.9g}", value);
}

void write_result(const std::filesystem::path& output, nlohmann::json result) {
  for (const char* name :
       {"model.pt", "model.onnx", "predictions.h5", "predictions.csv", "metrics.csv", "metrics.jsonl"}) {
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
      for (const TargetErrors& t : part.targets) line += fmt::format(" {} {}", t.label, ratio_text(t));
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

std::string head_lines(const Evaluation& evaluation, const std::string& title) {
  const bool classes = evaluation.classes;
  std::string out =
      fmt::format("{:<24} {:>14} {:>14} {:>18} {:>8} {:>8}\n", title,
                  classes ? "error rate" : "mean abs error", classes ? "" : "rms error",
                  classes ? "most common class" : "always the mean", "ratio", classes ? "" : "R2");
  for (const TargetErrors& t : evaluation.targets) {
    const std::optional<double> r2 = t.r2();
    out += fmt::format("{:<24} {:>14.6g} {:>14} {:>18.6g} {:>8} {:>8}\n", t.label, t.mae,
                       classes ? std::string() : fmt::format("{:.6g}", t.rmse()), t.mean_guess_mae,
                       ratio_text(t),
                       classes ? std::string()
                       : r2    ? fmt::format("{:.4f}", *r2)
                               : "-");
  }
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
