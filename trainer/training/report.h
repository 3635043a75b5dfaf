// SPDX-License-Identifier: Apache-2.0
// What a run leaves for people and programs: metrics.csv, metrics.jsonl, predictions.csv, and one line an
// epoch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/training/training_state.h"

namespace wflow::trainer {

std::string metrics_csv(const std::vector<std::string>& labels, const std::vector<EpochRow>& history);
// The same, and each target's RMSE and R2: a JSON object a line, an epoch a line. Values that JSON has no
// number for are null.
std::string metrics_jsonl(const std::vector<EpochRow>& history);

// A value of a table: with all digits of a float64, or those of a float32.
std::string number_text(double value, bool wide);

// ids: [samples]; truths: [samples, targets], physical; outputs: [samples, channels], the network's. Beside
// each truth stands the prediction; of a gaussian loss its standard deviation too, of classes the likeliest.
std::string predictions_csv(const Objective& objective, const Normalisation& normalisation,
                            std::span<const std::int64_t> ids, std::span<const double> truths,
                            std::span<const float> outputs);

// Of a whole training: means over the time of its epochs.
struct Performance {
  double samples_per_second = 0;  // of all ranks, as the next
  double gflops = 0;
  double data_wait = 0;                         // share of the training time, on rank 0
  double exposed_communication = 0;             // the same
  std::vector<std::uint64_t> peak_memory = {};  // resident bytes of each rank's process
};
Performance performance_of(const std::vector<EpochRow>& history, std::int64_t flops_of_sample);
nlohmann::json to_json(const Performance& performance);
std::string performance_line(const Performance& performance);

// result.json of the folder, with the checksums of the files that lie there, and its own (base/checksum.h).
void write_result(const std::filesystem::path& output, nlohmann::json result);

// "-" where there is none.
std::string ratio_text(const TargetErrors& errors);
std::string epoch_line(const EpochRow& row, std::int64_t epochs);
// A table of errors; `title` says of what.
std::string test_lines(const Evaluation& evaluation, std::string_view title = "test");

}  // namespace wflow::trainer
