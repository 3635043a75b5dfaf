// SPDX-License-Identifier: Apache-2.0
// The results of each sample: its targets in the data set and, if it belongs to the test split, the
// predictions of a training.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/query/client.h"
#include "specs/plan/plan.h"

namespace wflow::cli {

class TargetRows;
class PredictionRows;

// Reads forward only: a data set of any size takes little memory.
class SampleResults {
 public:
  // `step`: the step whose tasks are listed; `convert`: the conversion of its samples. `training`: the name
  // of a training; empty: the best one on these data that has predictions. Error{usage} if there is none of
  // that name. `plan` must outlive this.
  SampleResults(const specs::Plan& plan, const specs::PlannedStep& step, const specs::PlannedStep& convert,
                engine::Client& client, std::string training);
  SampleResults(SampleResults&&) noexcept;
  ~SampleResults();

  // The targets ("y"); then "y_predicted" and "y_error" (predicted - true) of each, if a training has
  // predictions, and what else they hold; at last "training", its task. Empty before there is a data set.
  const std::vector<std::string>& columns() const { return columns_; }
  // One cell a column; empty where the value does not exist. Arrays and samples in ascending order.
  std::vector<std::string> of(specs::ArrayId array, specs::Element sample);

 private:
  void open(specs::ArrayId array);

  const specs::Plan& plan_;
  const specs::PlannedStep& step_;
  const specs::PlannedStep& convert_;
  std::string training_;
  std::map<std::string, std::string, std::less<>> predictions_;  // data set -> training that predicts best
  std::map<std::string, std::string, std::less<>> files_;        // training -> its predictions.csv
  specs::ArrayId array_ = 0;
  std::unique_ptr<TargetRows> targets_;
  std::unique_ptr<PredictionRows> predicted_;
  std::size_t targets_count_ = 0;  // columns
  std::vector<std::string> columns_;
};

}  // namespace wflow::cli
