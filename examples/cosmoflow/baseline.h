// SPDX-License-Identifier: Apache-2.0
// The yardsticks of the campaign: how well a regression on summary statistics finds the parameters, on the
// very split that the network is trained and tested on.
#pragma once

#include <string>
#include <vector>

namespace cola {

struct Baseline {
  std::string name;
  std::vector<double> mae;    // on the test split, one a label, in the label's unit
  std::vector<double> ratio;  // over the mean guess's
  std::vector<double> strength;
};

struct BaselineReport {
  std::vector<std::string> labels;
  std::size_t train = 0, validation = 0, test = 0;  // samples
  std::vector<double> mean_guess_mae;               // the training mean, on the test split
  std::vector<Baseline> baselines;
};

// Reads DATA/train, DATA/validation and DATA/test. Throws Error (input).
BaselineReport measure_baselines(const std::string& data);

// The row of a network: its predictions.csv (columns id, and for each label "<label>" and
// "<label>_predicted") of the test split, beside the baselines. Throws Error (input) when the file does not
// hold the report's labels and samples.
Baseline read_network(const std::string& predictions, const BaselineReport& report);

std::string as_table(const BaselineReport& report);
std::string as_json(const BaselineReport& report);

}  // namespace cola
