// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>

#include "base/clock.h"
#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/trainings.h"
#include "cli/campaign/update.h"
#include "cli/report/data.h"
#include "engine/monitor/status.h"
#include "engine/query/client.h"
#include "engine/query/queries.h"
#include "engine/store/store.h"

namespace wflow::cli::report {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDataSets = 4;
constexpr std::size_t kTrainings = 16;
constexpr std::size_t kPredictionsShown = 2000;  // per training

// A copy of a running campaign's record, beside it, which exists as long as this object.
class RecordCopy {
 public:
  // Delegates, so that the destructor removes the files of a failed snapshot.
  RecordCopy(engine::Client& client, const fs::path& campaign) : RecordCopy(campaign) {
    make_private_folder(folder_);
    make_private_folder(folder_ / ".wflow");
    client.snapshot(engine::store::database_path(folder_));
  }
  RecordCopy(const RecordCopy&) = delete;
  RecordCopy& operator=(const RecordCopy&) = delete;
  ~RecordCopy() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  const fs::path& folder() const { return folder_; }

 private:
  explicit RecordCopy(const fs::path& campaign)
      : folder_(campaign / ".wflow" / fmt::format("report-{}", ::getpid())) {}

  fs::path folder_;
};

void read_store(const fs::path& folder, ReportData& data) {
  engine::store::Store store(folder);
  for (const engine::store::WorkerRecord& row : store.workers()) data.workers.push_back(engine::view_of(row));
  data.allocations = engine::recorded_allocations(store.allocations());
  data.overview = store.overview({});
  data.usage = store.usage();
}

void read_record(const fs::path& campaign, ReportData& data) {
  engine::Client client(data.plan);
  data.status = client.status();
  take_searches(data.plan, data.status.metrics);
  data.live = client.live();
  if (!data.live) return;
  const RecordCopy copy(client, campaign);
  read_store(copy.folder(), data);
  const std::vector<engine::wire::WorkerView> living = client.workers();
  for (const engine::wire::WorkerView& worker : living) {
    const auto same = [&](const auto& known) { return known.id == worker.id; };
    if (const auto at = std::ranges::find_if(data.workers, same); at != data.workers.end()) *at = worker;
  }
}

// Keeps every second row.
void thin_out(Predictions& predictions) {
  const auto halve = [](std::vector<double>& values) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < values.size(); i += 2) values[kept++] = values[i];
    values.resize(kept);
  };
  halve(predictions.ids);
  for (auto* lists : {&predictions.truths, &predictions.predicted})
    for (std::vector<double>& values : *lists) halve(values);
}

// Reads predictions.csv, whose columns are id, then each target and the same name with "_predicted". Keeps an
// even selection of many rows.
Predictions predictions_of(const std::string& task, const fs::path& file) {
  csv::Reader reader(file);
  Predictions predictions{.task = task, .targets = {}, .ids = {}, .truths = {}, .predicted = {}};
  std::vector<std::pair<std::size_t, std::size_t>> columns;
  for (const std::string& name : reader.header()) {
    const auto predicted = reader.column(name + "_predicted");
    if (!predicted) continue;
    columns.emplace_back(*reader.column(name), *predicted);
    predictions.targets.push_back(name);
  }
  predictions.truths.resize(columns.size());
  predictions.predicted.resize(columns.size());
  const std::optional<std::size_t> id = reader.column("id");
  std::vector<std::string> row;
  std::size_t every = 1;
  for (std::size_t number = 0; reader.next(row); ++number) {
    if (number % every != 0) continue;
    const auto cell = [&](std::size_t column) { return text::to_real(row[column]).value_or(NAN); };
    predictions.ids.push_back(id ? cell(*id) : NAN);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      predictions.truths[k].push_back(cell(columns[k].first));
      predictions.predicted[k].push_back(cell(columns[k].second));
    }
    if (predictions.ids.size() < 2 * kPredictionsShown) continue;
    thin_out(predictions);
    every *= 2;
  }
  return predictions;
}

void read_predictions(ReportData& data) {
  for (const engine::ArtifactView& artifact : data.status.artifacts) {
    const fs::path file = artifact.path;
    if (file.filename() != "predictions.csv" || data.predictions.size() >= kTrainings) continue;
    try {
      const std::string task = file.parent_path().lexically_relative(data.plan.campaign()).string();
      Predictions predictions = predictions_of(task, file);
      if (!predictions.targets.empty()) data.predictions.push_back(std::move(predictions));
    } catch (const Error& error) {
      data.notes.push_back(
          fmt::format("The predictions of {} are left out: {}", artifact.step, error.what()));
    }
  }
}

nlohmann::json json_in(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  nlohmann::json json = nlohmann::json::parse(read_file(file), nullptr, false);
  return json.is_object() ? json : nlohmann::json();
}

void read_results(ReportData& data) {
  for (const engine::ArtifactView& artifact : data.status.artifacts) {
    if (artifact.kind != "model" || data.results.size() >= kTrainings) continue;
    const fs::path folder = fs::path(artifact.path).parent_path();
    try {
      TrainingResult result = {folder.lexically_relative(data.plan.campaign()).string(),
                               json_in(folder / "result.json"), json_in(folder / "pictures.json"),
                               json_in(folder / "analysis.json"), json_in(folder / "inference.json")};
      if (!result.result.is_null()) data.results.push_back(std::move(result));
    } catch (const Error& error) {
      data.notes.push_back(fmt::format("The results of {} are left out: {}", artifact.step, error.what()));
    }
  }
}

void read_data_set(const fs::path& folder, const std::string& step, ReportData& data) {
  SpawnRequest request;
  request.argv = {sibling_program("wflow-convert"), "shards", "summary", folder.string()};
  constexpr double kLimit_s = 30;
  const CommandResult result = run_command(request, kLimit_s);
  nlohmann::json summary = nlohmann::json::parse(result.out, nullptr, false);
  if (result.status != 0 || !summary.is_object())
    throw Error(ExitCode::data,
                result.timed_out ? "it took longer than 30 s to read" : std::string(text::trim(result.err)));
  data.data_sets.push_back({step, std::move(summary)});
}

void read_data_sets(ReportData& data) {
  for (const engine::ArtifactView& artifact : data.status.artifacts) {
    if (artifact.kind != "manifest" || data.data_sets.size() >= kDataSets) continue;
    const std::string step = artifact.step.substr(0, artifact.step.rfind(".manifest"));
    try {
      read_data_set(fs::path(artifact.path).parent_path(), step, data);
    } catch (const Error& error) {
      data.notes.push_back(fmt::format("The data set {} is left out: {}", step, error.what()));
    }
  }
}

}  // namespace

ReportData gather(const fs::path& campaign) {
  ReportData data(read_plan(campaign));
  data.made_s = unix_now_s();
  read_record(campaign, data);
  if (!data.live) read_store(campaign, data);
  data.versions = specs::versions(campaign, recorded_version(campaign));
  read_predictions(data);
  read_results(data);
  read_data_sets(data);
  read_study_files(data);
  return data;
}

std::string counted(std::uint64_t count, const std::string& one) {
  return text::format_count(count) + " " + one + (count == 1 ? "" : "s");
}

std::string core_time_text(double seconds) {
  constexpr double kHour_s = 3600;
  constexpr double kLong_s = 24 * kHour_s;
  if (seconds < kLong_s) return text::format_duration(seconds);
  return text::format_count(static_cast<std::uint64_t>(seconds / kHour_s)) + " core-hours";
}

std::string date_text(double unix_s) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(unix_s)));
}

Report make_report(const ReportData& data, const ReportOptions& options) {
  Page::Cleaner clean = [](std::string_view text) { return std::string(text); };
  if (options.share)
    clean = [redactor = redactor_for(data)](std::string_view text) { return redactor(text); };
  Page page(clean);
  write_summary(data, page);
  write_steps(data, page);
  write_activity(data, page);
  write_usage(data, page);
  write_failures(data, page);
  write_samples(data, page);
  write_data_sets(data, page);
  write_training(data, page);
  write_study_files(data, page);
  write_lineage(data, options, page);
  return {.title = data.status.name,
          .subtitle = fmt::format("{}, seen at {} with wflow {}", engine::name_of(data.status.state),
                                  date_text(data.made_s), kVersion),
          .page = std::move(page)};
}

}  // namespace wflow::cli::report
