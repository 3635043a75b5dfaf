// SPDX-License-Identifier: Apache-2.0
// Text of a run's results: metrics.csv, metrics.jsonl, result.json, and one line per epoch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config.h"
#include "trainer/model/network.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/evaluation.h"
#include "trainer/training/heads.h"
#include "trainer/training/run_report.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

std::string metrics_csv(const std::vector<std::string>& labels, const std::vector<EpochRow>& history);
// The same with each target's RMSE and R2, and with several heads the loss of each: one JSON object per epoch
// and line. NaN and infinity are null. An epoch with rounds of a tournament has `rounds`.
std::string metrics_jsonl(const std::vector<EpochRow>& history, std::span<const Bout> bouts = {});

// The gradient noise scale for result.json: of each epoch, and of the second half of them together, because
// it rises while the loss falls.
nlohmann::json noise_result(const std::vector<EpochRow>& history);

// A value for a table: with all digits of a float64 (`wide`) or of a float32.
std::string number_text(double value, bool wide);

// Performance of a whole training: means over the time of its epochs.
struct Performance {
  double samples_per_second = 0;  // over all ranks, as the next
  double gflops = 0;
  double data_wait = 0;                         // share of the training time, on rank 0
  double exposed_communication = 0;             // the same
  std::vector<std::uint64_t> peak_memory = {};  // resident bytes of each rank's process
};
Performance performance_of(const std::vector<EpochRow>& history, std::int64_t flops_of_sample);
nlohmann::json to_json(const Performance& performance);
std::string performance_line(const Performance& performance);

// Writes result.json with the checksums of the folder's other files and its own (base/checked_json.h).
void write_result(const std::filesystem::path& output, nlohmann::json result);

// "-" if there is no ratio.
std::string ratio_text(const TargetErrors& errors);
std::string epoch_line(const EpochRow& row, std::int64_t epochs);
// A table of errors with a title.
std::string test_lines(const Evaluation& evaluation, std::string_view title = "test");

// Results of a finished training: predictions and errors on the test split, models, metrics, result.json.

// Times of this run of the program; a training may take several.
struct SegmentTimes {
  Clock::time_point begin;
  double validation = 0;
  double data_wait = 0;
  double checkpoint_wait = 0;
  double outer_steps = 0;
  double step = 0;  // the median of a step; 0: there was none
  RankTimes ranks;
};

// A collective call; the evaluation weights stay in `state`.
void write_results(Session& session, const Heads& heads, TrainingState& state, const Network& network,
                   Evaluator& evaluator, const CheckpointDirectory& checkpoints, RunReport& report,
                   const SegmentTimes& times);

// The folder of a finished training, as the commands see it that ask a trained network.

// result.json of the training in the folder. Error{data} if none has finished there; if the folder holds
// several, with their names.
nlohmann::json finished_result(const std::filesystem::path& folder);
// The checksum of model.pt in a result, by which a report sees that a file is of an earlier model.
nlohmann::json model_checksum(const nlohmann::json& result);

// The settings of the training in the folder: train.yaml.
TrainConfig config_of_training(const std::filesystem::path& folder);

// The data set `given`, or if empty that of the training. Error{data} if it is not there.
std::filesystem::path data_of_training(const std::filesystem::path& folder, const std::string& given);

}  // namespace wflow::trainer
