// SPDX-License-Identifier: Apache-2.0
// The metrics of a training as TensorBoard shows them: one event file, of records (base/protobuf.h) that hold
// a message `Event` each (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto), a
// record an epoch. Tags: loss/train, loss/validation, learning_rate, samples_per_second and, of the
// validation, mae/TARGET, rmse/TARGET, mae_ratio/TARGET, r2/TARGET. The step is that of the epoch's end.
#pragma once

#include <filesystem>
#include <vector>

#include "base/file.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {

class TensorboardLog {
 public:
  explicit TensorboardLog(std::filesystem::path directory) : directory_(std::move(directory)) {}
  // Begins a new file with these epochs in place of what is there: after a restart or a rollback, epochs that
  // no longer hold are gone. Their times are those of training without interruptions that would end now.
  void begin(const std::vector<EpochRow>& history);
  void add(const EpochRow& row);

 private:
  std::filesystem::path directory_;
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace wflow::trainer
