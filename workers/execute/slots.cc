// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/slots.h"

#include <utility>

#include "base/process.h"
#include "steps/files.h"
#include "steps/packed_output.h"
#include "steps/step.h"

namespace wflow::workers {

steps::Execution SlotTask::execution() const {
  return {lease.first, lease.attempt, lease.restart, lease.count,
          false,       lease.nodes,   lease.id,      lease.left_out};
}

Slots::Slots(std::span<SlotRecord> given, const std::filesystem::path& worker_directory)
    : directory(worker_directory.string()), records(given), tasks(given.size()) {
  for (std::size_t slot = 0; slot < given.size(); ++slot) files.emplace_back(worker_directory, slot);
}

TaskArrays::TaskArrays(int cores)
    : cores_(cores),
      environment_(steps::worker_environment(steps::own_environment(), executable_directory())) {}

void TaskArrays::set_samples(std::unique_ptr<const specs::SampleTable> samples) {
  for (auto& [id, array] : arrays_) array->step.reset();
  samples_ = std::move(samples);
}

void TaskArrays::add(specs::TaskTemplate task_template) {
  auto array = std::make_unique<TaskArray>();
  array->environment = steps::array_environment(environment_, task_template, cores_);
  array->pack = steps::packed_directory(task_template.workspace).string();
  array->task_template = std::move(task_template);
  const specs::ArrayId id = array->task_template.array;
  arrays_[id] = std::move(array);
}

const steps::Step& TaskArrays::step_of(specs::ArrayId id) {
  TaskArray& array = *arrays_.at(id);
  if (!array.step) {
    auto step = steps::make_step(array.task_template, samples_.get(), array.environment);
    steps::write_setup(step->setup(), array.task_template.campaign);
    array.step = std::move(step);
  }
  return *array.step;
}

}  // namespace wflow::workers
