// SPDX-License-Identifier: Apache-2.0
// The task arrays that this worker was told of, with what their tasks share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "steps/step.h"

namespace wflow::workers {

struct TaskArray {
  specs::TaskTemplate task_template;
  std::vector<std::string> environment;
  std::string pack;                         // folder of its packed output
  std::unique_ptr<const steps::Step> step;  // made for the first element; refers to task_template
};

class TaskArrays {
 public:
  explicit TaskArrays(int cores);

  void set_samples(std::unique_ptr<const specs::SampleTable> samples);
  const specs::SampleTable* samples() const { return samples_.get(); }
  void add(specs::TaskTemplate task_template);
  const TaskArray& at(specs::ArrayId id) const { return *arrays_.at(id); }
  // Its step, with its setup on disk. Throws Error where that cannot be.
  const steps::Step& step_of(specs::ArrayId id);

 private:
  int cores_;
  std::vector<std::string> environment_;
  std::unique_ptr<const specs::SampleTable> samples_;
  std::map<specs::ArrayId, std::unique_ptr<TaskArray>> arrays_;
};

}  // namespace wflow::workers
