// SPDX-License-Identifier: Apache-2.0
// Reports of a run while it trains: lines on standard output, warnings, events for the campaign, metrics
// files, TensorBoard. Only rank 0 reports, but any rank may warn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "trainer/training/checkpoint.h"
#include "trainer/training/session.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

// The metrics of a training for TensorBoard: one event file with one record (base/tfrecord.h) per epoch, each
// a message `Event` (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto). Tags:
// loss/train, loss/validation, learning_rate, samples_per_second and, for the validation, mae/TARGET,
// rmse/TARGET, mae_ratio/TARGET, r2/TARGET. The step is that of the epoch's end.
class TensorboardLog {
 public:
  explicit TensorboardLog(std::filesystem::path directory) : directory_(std::move(directory)) {}
  // Replaces the files by a new one with these epochs: after a restart or a rollback, it has no outdated
  // epochs. Their times are those of a training without interruptions that ends now.
  void begin(const std::vector<EpochRow>& history);
  void add(const EpochRow& row);

 private:
  std::filesystem::path directory_;
  std::filesystem::path path_;
  FileDescriptor file_;
};

class RunReport {
 public:
  explicit RunReport(const Session& session);

  void say(const std::string& line) const;  // on standard output
  void note(const std::string& sentence);   // as an event
  // Both.
  void announce(const std::string& sentence) {
    say(sentence);
    note(sentence);
  }
  // On standard error, from any rank; rank 0 also sends the event.
  void warn(const std::string& sentence);

  void progress(std::int64_t step);
  // After a restart. A killed process may have lost the events of the last epochs; a repeated event replaces
  // the first one.
  void repeat(const std::vector<EpochRow>& history);
  // After a restart or a step back: TensorBoard's file begins anew with these epochs.
  void begin_tensorboard(const std::vector<EpochRow>& history);
  // The last epoch of the history: line, events, files.
  void epoch_finished(const TrainingCounters& counters);
  // A node that the others wait for, or no longer: line, note and metric.
  void slow_node(const SlowNodeNews::News& news, const TrainingCounters& counters);
  // Asks the campaign to start this training again without the node, from the last checkpoint.
  void ask_to_exclude(const SlowNode& node);
  // Tells the campaign that no sample has to be simulated any more.
  void ask_for_no_more(const std::string& reason);
  void write_metrics(const TrainingCounters& counters) const;
  // May be called on the thread of the checkpoint writer.
  void checkpoint_written(const CheckpointDirectory::Written& written, std::int64_t epoch, std::int64_t step);
  // Metric and files of the finished training. Members of an ensemble and trainers of a tournament send none:
  // the ensemble and the tournament do.
  void results(const Evaluation& test, const TrainingCounters& counters, const std::filesystem::path& model,
               const std::filesystem::path& predictions);

 private:
  void metric(const std::string& name, double value, std::int64_t epoch, std::int64_t step);
  void epoch_events(const EpochRow& row);
  // The trainings of an ensemble are one curve: a member's epochs and steps count from the first member's
  // start.
  std::uint64_t epoch_of_all(std::int64_t epoch) const {
    return static_cast<std::uint64_t>(member_ * epochs_ + epoch);
  }
  std::uint64_t step_of_all(std::int64_t step) const {
    return static_cast<std::uint64_t>(member_ * total_steps_ + step);
  }

  const bool leader_;
  const std::string trainer_;  // "trainer 2/4 ", before every line; empty: there is one
  const bool is_alone_;        // in no ensemble and no tournament
  const std::filesystem::path output_;
  const std::vector<std::string> labels_;
  const std::int64_t member_;
  const std::int64_t members_;
  const std::int64_t epochs_;
  const std::int64_t total_steps_;
  const bool batch_grows_;
  const bool stops_early_;
  const std::optional<std::int64_t> training_flops_;  // per sample; not known for modules
  const std::function<void()> metrics_written_;
  EventWriter events_;
  TensorboardLog tensorboard_;
  Clock::time_point last_progress_ = Clock::now();
};

}  // namespace wflow::trainer
