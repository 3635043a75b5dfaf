// SPDX-License-Identifier: Apache-2.0
// Resources used by the executions of a step, as distributions, and single executions as compact records.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule/types.h"
#include "engine/usage/quantile_sketch.h"

namespace wflow::engine {

// Counts processes: one for all samples of a bundle. Leaves out those of less than a millisecond, unless they
// failed.
struct StepUsage {
  QuantileSketch duration_s, cpu_s, peak_bytes, read_bytes, written_bytes;

  void add(const TaskUsage& usage);
  std::uint64_t executions() const { return duration_s.count(); }

  std::string bytes() const;
  static StepUsage from_bytes(std::string_view bytes);  // as far as they are whole

  friend bool operator==(const StepUsage&, const StepUsage&) = default;
};

// A list of executions of one array, each of which takes at most about 20 bytes: it grows at its end, so that
// what was written of it stays. Times in milliseconds, durations in microseconds, sizes in KiB. Leases are
// not kept.
class UsageBlock {
 public:
  // `worker`: its number in the table of workers.
  void add(const TaskUsage& usage, std::uint64_t worker);
  std::uint64_t records() const { return records_; }
  Element first() const { return first_; }  // smallest element in it
  Element last() const { return last_; }
  const std::string& bytes() const { return bytes_; }

  struct Record {
    TaskUsage usage;
    std::uint64_t worker = 0;
  };
  static std::vector<Record> read(ArrayId array, std::string_view bytes);  // as far as they are whole

 private:
  std::string bytes_;
  std::uint64_t records_ = 0;
  Element first_ = 0, last_ = 0;
  Element before_ = 0;          // the element of the record before
  std::int64_t before_ms_ = 0;  // its start
  std::uint64_t worker_ = 0;    // its worker
};

}  // namespace wflow::engine
