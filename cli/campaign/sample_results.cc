// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/sample_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/csv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/trainings.h"
#include "converters/data_set_files.h"
#include "trainer/config.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPredicted = "_predicted";
constexpr std::string_view kError = "_error";

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

// The output of `wflow-convert shards table DATA`, which is in ascending order of id, read as far as it is
// needed.
class TargetRows {
 public:
  explicit TargetRows(const fs::path& data) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error(errno, "cannot make a pipe");
    const FileDescriptor out(ends[0]);
    FileDescriptor in(ends[1]);
    SpawnRequest request;
    request.argv = {sibling_program("wflow-convert"), "shards", "table", data.string()};
    request.stdout_fd = in.get();
    pid_ = spawn(request);
    in = {};
    try {
      rows_.emplace(fmt::format("/proc/self/fd/{}", out.get()));
      labels_.assign(rows_->header().begin() + 2, rows_->header().end());
      at_end_ = !rows_->next(row_);
    } catch (const Error&) {
      // The program has printed why.
      rows_.reset();
      fmt::print(stderr, "wflow: the targets of {} are left out\n", data.string());
    }
  }
  TargetRows(const TargetRows&) = delete;
  TargetRows& operator=(const TargetRows&) = delete;
  ~TargetRows() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  const std::vector<std::string>& labels() const { return labels_; }

  // The targets of a sample; empty cells if the data set does not contain it.
  std::vector<std::string> of(std::uint64_t sample) {
    while (!at_end_ && number() < sample) at_end_ = !rows_->next(row_);
    if (at_end_ || number() != sample) return std::vector<std::string>(labels_.size());
    return {row_.begin() + 2, row_.end()};
  }

 private:
  std::uint64_t number() const {
    return static_cast<std::uint64_t>(text::to_integer(row_.front()).value_or(0));
  }

  pid_t pid_ = -1;
  std::optional<csv::Reader> rows_;
  std::vector<std::string> labels_;
  std::vector<std::string> row_;
  bool at_end_ = true;
};

// predictions.csv of a training: the columns that are not in the data set, and the errors.
class PredictionRows {
 public:
  PredictionRows(const fs::path& file, const std::vector<std::string>& labels) {
    csv::Reader reader(file);
    const auto id = reader.column("id");
    if (!id) reader.fail("there is no column 'id'");
    struct Source {
      std::size_t column = 0;
      std::optional<std::size_t> truth;  // the value is column - truth
    };
    std::vector<Source> sources;
    for (std::size_t k = 0; k < reader.header().size(); ++k) {
      const std::string& name = reader.header()[k];
      if (k == *id || has(labels, name)) continue;
      columns_.push_back(name);
      sources.push_back({k, std::nullopt});
      if (!name.ends_with(kPredicted)) continue;
      const std::string target = name.substr(0, name.size() - kPredicted.size());
      const auto truth = reader.column(target);
      if (!truth) continue;
      columns_.push_back(target + std::string(kError));
      sources.push_back({k, truth});
    }
    std::vector<std::string> row;
    const auto number = [&](std::size_t column) { return text::to_real(row[column]).value_or(NAN); };
    while (reader.next(row)) {
      places_.emplace_back(text::to_integer(row[*id]).value_or(-1), values_.size());
      for (const Source& source : sources)
        values_.push_back(number(source.column) - (source.truth ? number(*source.truth) : 0));
    }
    std::ranges::sort(places_);
  }

  const std::vector<std::string>& columns() const { return columns_; }

  // Empty if the sample is not in the test split.
  std::vector<std::string> of(std::uint64_t sample) const {
    const std::pair<std::int64_t, std::size_t> wanted(static_cast<std::int64_t>(sample), 0);
    const auto at = std::ranges::lower_bound(places_, wanted);
    if (at == places_.end() || at->first != wanted.first) return {};
    std::vector<std::string> cells;
    for (std::size_t k = 0; k < columns_.size(); ++k) {
      const double value = values_[at->second + k];
      cells.push_back(std::isnan(value) ? std::string() : text::from_real(value));
    }
    return cells;
  }

 private:
  std::vector<std::string> columns_;
  std::vector<std::pair<std::int64_t, std::size_t>> places_;  // id, place of its first value
  std::vector<double> values_;
};

SampleResults::SampleResults(const specs::Plan& plan, const specs::PlannedStep& step,
                             const specs::PlannedStep& convert, engine::Client& client, std::string training)
    : plan_(plan), step_(step), convert_(convert), training_(std::move(training)) {
  std::vector<std::string> names;
  for (const TrainingRow& row : training_rows(plan, client, client.status()).rows) {
    const specs::TaskTemplate task = plan.task_template(row.array);
    const auto* config = std::get_if<trainer::TrainConfig>(&task.settings);
    if (config == nullptr) continue;
    const fs::path file = fs::path(config->output) / "predictions.csv";
    std::error_code none;
    if (!fs::exists(file, none)) continue;
    names.push_back(row.task);
    if (!training_.empty() && row.task != training_) continue;
    predictions_.try_emplace(config->data, row.task);  // the best comes first
    files_.try_emplace(row.task, file.string());
  }
  if (!training_.empty() && !has(names, training_)) {
    throw Error(ExitCode::usage,
                fmt::format("--training: no training '{}' has predictions{}", training_,
                            names.empty() ? std::string() : "; there are " + text::join(names, ", ")));
  }
  // Some combinations may have no data set yet, or no predictions: all of them have the columns.
  for (specs::ArrayId k = 0; k < step.arrays && !targets_; ++k) open(step.first_array + k);
  if (!targets_) return;
  targets_count_ = targets_->labels().size();
  columns_ = targets_->labels();
  if (predictions_.empty()) return;
  // The first data set may be one without predictions.
  const auto others = predicted_ ? nullptr
                                 : std::make_unique<PredictionRows>(files_.at(predictions_.begin()->second),
                                                                    targets_->labels());
  const std::vector<std::string>& predicted = (predicted_ ? predicted_ : others)->columns();
  columns_.insert(columns_.end(), predicted.begin(), predicted.end());
  columns_.emplace_back("training");
}

SampleResults::SampleResults(SampleResults&&) noexcept = default;
SampleResults::~SampleResults() = default;

// A conversion has a data set for each combination of the parameters that its source step uses.
void SampleResults::open(specs::ArrayId array) {
  array_ = array;
  targets_.reset();
  predicted_.reset();
  if (convert_.arrays != step_.arrays) return;
  const fs::path data = plan_.task_template(convert_.first_array + (array - step_.first_array)).workspace;
  std::error_code none;
  if (!fs::exists(data / converters::kManifestFile, none)) return;
  targets_ = std::make_unique<TargetRows>(data);
  const auto training = predictions_.find(data.string());
  if (training == predictions_.end()) return;
  training_ = training->second;
  predicted_ = std::make_unique<PredictionRows>(files_.at(training_), targets_->labels());
}

std::vector<std::string> SampleResults::of(specs::ArrayId array, specs::Element sample) {
  if (columns_.empty()) return {};
  if (array != array_) open(array);
  std::vector<std::string> cells = targets_ ? targets_->of(sample) : std::vector<std::string>();
  cells.resize(targets_count_);
  if (const auto more = predicted_ ? predicted_->of(sample) : std::vector<std::string>(); !more.empty()) {
    cells.insert(cells.end(), more.begin(), more.end());
    cells.push_back(training_);
  }
  cells.resize(columns_.size());
  return cells;
}

}  // namespace wflow::cli
