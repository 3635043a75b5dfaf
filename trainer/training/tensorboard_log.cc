// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/run_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/process.h"
#include "base/protobuf.h"

namespace wflow::trainer {

namespace fs = std::filesystem;

namespace {

// Field numbers.
enum Event { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum Value { kTag = 1, kSimpleValue = 2 };
constexpr int kSummaryValue = 1;
constexpr int kSessionStatus = 1;
constexpr int kSessionStart = 1;  // SessionStatus.START

constexpr std::string_view kMarkOfEventFiles = "events.out.tfevents.";

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void put_scalar(ProtobufMessage& summary, std::string_view tag, double number) {
  ProtobufMessage value;
  value.text(kTag, tag);
  value.real(kSimpleValue, static_cast<float>(number));
  summary.message(kSummaryValue, value);
}

std::string record_of(const EpochRow& row, double time) {
  ProtobufMessage summary;
  put_scalar(summary, "loss/train", row.train_loss);
  put_scalar(summary, "learning_rate", row.learning_rate);
  put_scalar(summary, "samples_per_second", row.samples_per_second);
  if (!row.validation.targets.empty()) put_scalar(summary, "loss/validation", row.validation.loss);
  for (const Evaluation::Head& head : row.validation.heads)
    put_scalar(summary, "loss/validation/" + head.name, head.loss);
  for (const TargetErrors& target : row.validation.targets) {
    put_scalar(summary, "mae/" + target.label, target.mae);
    put_scalar(summary, "rmse/" + target.label, target.rmse());
    if (const auto ratio = target.ratio()) put_scalar(summary, "mae_ratio/" + target.label, *ratio);
    if (const auto r2 = target.r2()) put_scalar(summary, "r2/" + target.label, *r2);
    for (const NamedMetric& metric : main_metrics_of(target))
      if (metric.value) put_scalar(summary, metric.name + "/" + target.label, *metric.value);
  }
  ProtobufMessage event;
  event.real(kWallTime, time);
  event.integer(kStep, row.step);
  event.message(kSummary, summary);
  return tfrecord_of(event.bytes());
}

// The start of a session at step 0 makes TensorBoard drop the data of an older file.
std::string head(double time) {
  ProtobufMessage version;
  version.real(kWallTime, time);
  version.text(kFileVersion, "brain.Event:2");
  ProtobufMessage session;
  session.integer(kSessionStatus, kSessionStart);
  ProtobufMessage start;
  start.real(kWallTime, time);
  start.message(kSessionLog, session);
  return tfrecord_of(version.bytes()) + tfrecord_of(start.bytes());
}

void remove_event_files(const fs::path& directory, const fs::path& except) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path() != except && entry.path().filename().string().starts_with(kMarkOfEventFiles))
      fs::remove(entry.path(), ignored);
  }
}

}  // namespace

void TensorboardLog::begin(const std::vector<EpochRow>& history) {
  double time = seconds_since_1970();
  for (const EpochRow& row : history) time -= row.seconds;
  std::string bytes = head(time);
  for (const EpochRow& row : history) {
    time += row.seconds;
    bytes += record_of(row, time);
  }
  make_directories(directory_);
  remove_temporaries(directory_);
  // TensorBoard reads a folder's files in the order of their names.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  path_ = directory_ / fmt::format("{}{:010}.{}.{}.{:09}", kMarkOfEventFiles,
                                   std::chrono::duration_cast<std::chrono::seconds>(now).count(), host_name(),
                                   ::getpid(), now.count() % 1'000'000'000);
  write_file_durably(path_, bytes);
  remove_event_files(directory_, path_);
  file_ = open_file(path_, O_WRONLY | O_APPEND | O_CLOEXEC);
}

void TensorboardLog::add(const EpochRow& row) {
  write_all(file_.get(), record_of(row, seconds_since_1970()), path_);
}

}  // namespace wflow::trainer
