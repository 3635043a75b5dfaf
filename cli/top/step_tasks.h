// SPDX-License-Identifier: Apache-2.0
// The tasks of one step, or the failures of all steps: the questions that a dashboard asks for them page by
// page, and the rows that it makes of the answers. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/wire/answers.h"
#include "engine/wire/requests.h"

namespace wflow::cli::top {

struct TaskRow {
  enum class Kind : std::uint8_t { running, failed, ended };
  Kind kind = Kind::ended;
  engine::wire::TaskPlace place;
  std::string task, worker;
  double began_s = 0;  // Unix time
  double seconds = 0;  // it ran so long; of a running task: 0
  std::string reason;  // of a failed task, with the last line that it printed
  double end_s() const { return began_s + seconds; }
};

// Tasks beyond the bounds are left out: `complete` is false then.
struct StepTasks {
  std::string step;  // empty: all steps
  specs::ArrayId first_array = 0, last_array = 0;
  std::vector<engine::wire::FailureView> failed;  // the newest last
  std::vector<TaskRow> slowest;                   // that have ended, the slowest first
  std::uint64_t compared = 0;                     // executions among which these are the slowest
  bool complete = true;
  bool loading = true;
};

class TaskQuestions {
 public:
  using NameOf = std::function<std::string(specs::ArrayId, specs::Element)>;
  enum class Wanted { failures, failures_and_slowest };

  // The arrays [first, last] are those of `step`.
  TaskQuestions(std::string step, specs::ArrayId first, specs::ArrayId last, Wanted wanted, NameOf name_of);

  // The next question; empty: all have their answers.
  std::optional<engine::wire::Request> next() const;
  void take(const engine::wire::TasksAnswer& answer);
  void take(const engine::wire::UsageAnswer& answer);

  const StepTasks& tasks() const { return tasks_; }

 private:
  enum class Asks { failures, usage, nothing };

  void end_failures();
  void keep_slowest();

  StepTasks tasks_;
  Wanted wanted_;
  NameOf name_of_;
  Asks asks_ = Asks::failures;
  engine::wire::TaskPlace from_;
  int pages_ = 0;
};

}  // namespace wflow::cli::top
