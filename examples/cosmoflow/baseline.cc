// SPDX-License-Identifier: Apache-2.0
#include "baseline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>

#include "error.h"
#include "ridge.h"
#include "shard_reader.h"
#include "summary_statistics.h"

namespace cola {
namespace {

// Features and targets of one split.
struct Table {
  Matrix power, power_and_one_point, targets;
  std::vector<std::string> labels;
  Shape shape;
};

Matrix matrix_of(const std::vector<std::vector<double>>& rows) {
  Matrix m(rows.size(), rows.empty() ? 0 : rows[0].size());
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy(rows[i].begin(), rows[i].end(), m.row(i));
  return m;
}

// `statistics` is made from the first sample seen, that of the training split.
Table read_table(const std::string& folder, std::optional<SummaryStatistics>& statistics,
                 std::optional<Shape>& expected) {
  std::vector<std::vector<double>> power, both;
  const Split split = read_split(folder, [&](std::size_t, const Shape& shape, std::span<const float> sample) {
    if (!statistics) statistics.emplace(shape, channel_means(shape, sample));
    if (!expected) expected = shape;
    if (shape != *expected)
      throw Error(ExitCode::input, folder + ": its samples have another shape than those of train.");
    statistics->append_log_power(sample, power.emplace_back());
    both.push_back(power.back());
    statistics->append_one_point(sample, both.back());
    for (double feature : both.back()) {
      if (!std::isfinite(feature)) {
        throw Error(ExitCode::input,
                    folder + ": sample " + std::to_string(power.size() - 1) +
                        " has negative or non-finite values; the baselines need the density itself, "
                        "untransformed.");
      }
    }
  });
  if (power.empty()) throw Error(ExitCode::input, folder + " has no samples.");
  Table table{matrix_of(power), matrix_of(both), Matrix(power.size(), split.labels.size()), split.labels,
              split.shape};
  table.targets.values = split.targets;
  return table;
}

std::vector<double> errors_of(const Matrix& prediction, const Matrix& targets) {
  std::vector<double> mae(targets.columns);
  for (std::size_t i = 0; i < targets.rows; ++i) {
    for (std::size_t j = 0; j < targets.columns; ++j) {
      mae[j] += std::abs(prediction.row(i)[j] - targets.row(i)[j]) / static_cast<double>(targets.rows);
    }
  }
  return mae;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string blank(text.size() < width ? width - text.size() : 0, ' ');
  return left ? text + blank : blank + text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    char escape[8];
    if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result += '"';
}

template <typename Values, typename Show>
std::string list(const Values& values, const Show& show) {
  std::string result = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) result += ", ";
    result += show(values[i]);
  }
  return result += "]";
}

}  // namespace

BaselineReport measure_baselines(const std::string& data) {
  std::optional<SummaryStatistics> statistics;
  std::optional<Shape> shape;
  const Table train = read_table(data + "/train", statistics, shape);
  const Table validation = read_table(data + "/validation", statistics, shape);
  const Table test = read_table(data + "/test", statistics, shape);
  for (const Table* table : {&validation, &test}) {
    if (table->labels != train.labels)
      throw Error(ExitCode::input, data + ": its splits have different labels.");
  }

  BaselineReport report{train.labels, train.power.rows, validation.power.rows, test.power.rows, {}, {}};
  Matrix mean_guess(test.targets.rows, test.targets.columns);
  for (std::size_t j = 0; j < mean_guess.columns; ++j) {
    double mean = 0;
    for (std::size_t i = 0; i < train.targets.rows; ++i) mean += train.targets.row(i)[j];
    mean /= static_cast<double>(train.targets.rows);
    for (std::size_t i = 0; i < mean_guess.rows; ++i) mean_guess.row(i)[j] = mean;
  }
  report.mean_guess_mae = errors_of(mean_guess, test.targets);

  struct Recipe {
    const char* name;
    Matrix Table::*features;
    int degree;
  };
  for (const Recipe& recipe :
       {Recipe{"ridge, log P(k), degree 1", &Table::power, 1},
        Recipe{"ridge, log P(k), degree 2", &Table::power, 2},
        Recipe{"ridge, log P(k) + one-point, degree 2", &Table::power_and_one_point, 2}}) {
    const RidgeResult result = ridge(train.*recipe.features, train.targets, validation.*recipe.features,
                                     validation.targets, test.*recipe.features, recipe.degree);
    Baseline baseline{recipe.name, errors_of(result.prediction, test.targets), {}, result.strength};
    for (std::size_t j = 0; j < baseline.mae.size(); ++j) {
      baseline.ratio.push_back(baseline.mae[j] / report.mean_guess_mae[j]);
    }
    report.baselines.push_back(std::move(baseline));
  }
  return report;
}

Baseline read_network(const std::string& predictions, const BaselineReport& report) {
  const auto fail = [&](const std::string& why) -> Error {
    return Error(ExitCode::input, "Cannot use the predictions in " + predictions + ": " + why + ".");
  };
  std::ifstream file(predictions);
  if (!file) throw fail("the file can't be opened");
  const auto cells_of = [](const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells_of(line);
  std::vector<std::pair<std::size_t, std::size_t>> columns;  // targets, prediction
  for (const std::string& label : report.labels) {
    const auto targets = std::find(header.begin(), header.end(), label);
    const auto guess = std::find(header.begin(), header.end(), label + "_predicted");
    if (targets == header.end() || guess == header.end()) throw fail("it has no columns for " + label);
    columns.emplace_back(targets - header.begin(), guess - header.begin());
  }
  Baseline network{"network", std::vector<double>(report.labels.size()), {}, {}};
  std::size_t rows = 0;
  for (; std::getline(file, line); ++rows) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != header.size())
      throw fail("line " + std::to_string(rows + 2) + " has another number of cells");
    for (std::size_t l = 0; l < columns.size(); ++l) {
      network.mae[l] += std::abs(std::strtod(cells[columns[l].first].c_str(), nullptr) -
                                 std::strtod(cells[columns[l].second].c_str(), nullptr));
    }
  }
  if (rows != report.test)
    throw fail("it has " + std::to_string(rows) + " samples, the test split " + std::to_string(report.test));
  for (std::size_t l = 0; l < columns.size(); ++l) {
    network.mae[l] /= static_cast<double>(rows);
    network.ratio.push_back(network.mae[l] / report.mean_guess_mae[l]);
  }
  return network;
}

std::string as_table(const BaselineReport& report) {
  std::size_t width = 10;
  for (const std::string& label : report.labels) width = std::max(width, label.size());
  const std::size_t first = 38;
  std::string text = "samples: " + std::to_string(report.train) + " train, " +
                     std::to_string(report.validation) + " validation, " + std::to_string(report.test) +
                     " test\n\n";
  const auto line = [&](const std::string& name, const auto& cells) {
    text += padded(name, first, true);
    for (const std::string& cell : cells) text += "  " + padded(cell, width, false);
    text += "\n";
  };
  std::vector<std::string> header = report.labels;
  header.push_back("mean");
  line("test MAE / MAE of the mean guess", header);
  const auto ratio_line = [&](const std::string& name, const std::vector<double>& ratios) {
    std::vector<std::string> cells;
    char cell[32];
    for (double ratio : ratios) {
      std::snprintf(cell, sizeof cell, "%.3f", ratio);
      cells.emplace_back(cell);
    }
    std::snprintf(cell, sizeof cell, "%.3f",
                  std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size()));
    cells.emplace_back(cell);
    line(name, cells);
  };
  for (const Baseline& baseline : report.baselines) ratio_line(baseline.name, baseline.ratio);
  text += "\n";
  const auto mae_line = [&](const std::string& name, const std::vector<double>& values) {
    std::vector<std::string> cells;
    for (double value : values) cells.push_back(number(value));
    line(name, cells);
  };
  line("test MAE", report.labels);
  mae_line("mean guess", report.mean_guess_mae);
  for (const Baseline& baseline : report.baselines) mae_line(baseline.name, baseline.mae);
  return text;
}

std::string as_json(const BaselineReport& report) {
  std::string text =
      "{\n  \"version\": 1,\n  \"samples\": {\"train\": " + std::to_string(report.train) +
      ", \"validation\": " + std::to_string(report.validation) +
      ", \"test\": " + std::to_string(report.test) + "},\n  \"labels\": " + list(report.labels, quoted) +
      ",\n  \"mean_guess_mae\": " + list(report.mean_guess_mae, number) + ",\n  \"baselines\": [";
  for (std::size_t i = 0; i < report.baselines.size(); ++i) {
    const Baseline& b = report.baselines[i];
    text += std::string(i > 0 ? "," : "") + "\n    {\"name\": " + quoted(b.name) +
            ", \"mae\": " + list(b.mae, number) + ", \"ratio\": " + list(b.ratio, number) +
            ", \"ridge_strength\": " + list(b.strength, number) + "}";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace cola
