// SPDX-License-Identifier: Apache-2.0
// The number of tasks of each step that ended per second, since the dashboard began to watch. Bounded: if
// there are too many values, neighbours are merged and the span of each doubles.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "cli/top/data.h"
#include "engine/wire/answers.h"

namespace wflow::cli::top {

class RateHistory {
 public:
  static constexpr std::size_t kMost = 240;

  // `span_s` > 0: seconds of each value at first.
  explicit RateHistory(double span_s = 1);
  // Adds the counts at that time (any monotonic clock).
  void add(const engine::wire::StatusAnswer& status, double time_s);

  double span_s() const { return span_s_; }
  // The rates by step, the newest last, without the span that has not ended yet.
  const std::map<std::string, std::vector<double>>& rates() const { return rates_; }

 private:
  void close_spans(double time_s);
  void merge();

  double span_s_;
  bool began_ = false;
  double begin_s_ = 0;                                   // beginning of the open span
  std::map<std::string, std::uint64_t> at_begin_, now_;  // ended tasks by step
  std::map<std::string, std::vector<double>> rates_;
};

// Elements that ended on each worker per second, over the last seconds.
class WorkerRates {
 public:
  static constexpr double kWindow_s = 10;

  // Adds the workers at that time (any monotonic clock). Forgets workers that are not among them.
  void add(const std::vector<engine::wire::WorkerStatus>& workers, double time_s);
  std::map<std::string, double> rates() const;

 private:
  struct Count {
    double time_s = 0;
    std::uint64_t ended = 0;
  };
  std::map<std::string, std::deque<Count>> counts_;  // by worker, the oldest first
};

// Cores that tasks held over the last seconds, from the sum of the core-seconds that tasks have used.
class CoreUse {
 public:
  static constexpr double kWindow_s = 10;

  // Adds the data at that time (any monotonic clock): with running tasks, worker rates and needs.
  void add(const TopData& data, double time_s);
  const CoresUsed& used() const { return used_; }

 private:
  struct Sample {
    double time_s = 0, core_s = 0;
    std::uint64_t ended = 0;
  };
  std::deque<Sample> samples_;  // the oldest first
  CoresUsed used_;
};

}  // namespace wflow::cli::top
