// SPDX-License-Identifier: Apache-2.0
// The input of a report: the state of a campaign at one moment, running or at rest.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/monitor/overview.h"
#include "engine/monitor/status.h"
#include "engine/usage/step_usage.h"
#include "specs/plan/plan.h"
#include "specs/plan/versions.h"

namespace wflow::cli::report {

// Predictions for the test samples of one training; docs/formats/predictions.md.
struct Predictions {
  std::string task;
  std::vector<std::string> targets;
  std::vector<double> ids;
  std::vector<std::vector<double>> truths, predicted;  // a list per target
};

// Files that wflow-train leaves beside a model; null if they are absent.
struct TrainingResult {
  std::string task;
  nlohmann::json result;               // result.json
  nlohmann::json pictures;             // pictures.json
  nlohmann::json analysis = nullptr;   // analysis.json, of wflow analyze
  nlohmann::json inference = nullptr;  // inference.json, of wflow infer
};

// A figure or table that a task left for the report: report: of its step.
struct StudyFile {
  std::string task;                            // "simulate/12"
  std::string name;                            // relative to the directory of the task
  std::string bytes;                           // of a figure; empty for a table
  std::vector<std::vector<std::string>> rows;  // of a table, the first is its header
};

struct DataSet {
  std::string step;
  nlohmann::json summary;  // output of `wflow shards summary`
};

struct ReportData {
  explicit ReportData(specs::Plan plan_) : plan(std::move(plan_)) {}

  specs::Plan plan;
  double made_s = 0;  // Unix time
  bool live = false;  // a coordinator runs
  engine::CampaignStatus status;
  std::vector<engine::wire::WorkerView> workers;
  engine::wire::AllocationsAnswer allocations;
  engine::Overview overview;
  std::map<std::string, engine::StepUsage> usage;  // by step
  std::vector<DataSet> data_sets;
  std::vector<Predictions> predictions;
  std::vector<TrainingResult> results;
  std::vector<StudyFile> study_files;
  std::vector<std::string> study_notes;  // files that are left out, and why
  std::vector<specs::VersionInfo> versions;
  std::vector<std::string> notes;  // inputs that could not be read, and why
};

// Throws Error as engine::Client does. Copies a running campaign's record first (`wflow snapshot`), beside
// it, and removes the copy. Data sets and predictions that can't be read become notes.
ReportData gather(const std::filesystem::path& campaign);
// study_files.cc: a part of gather().
void read_study_files(ReportData& data);

}  // namespace wflow::cli::report
