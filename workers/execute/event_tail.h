// SPDX-License-Identifier: Apache-2.0
// The $WFLOW_EVENTS file of one slot (docs/formats/events.md): follows its lines, and collects what a
// bundle's process reports on single samples.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/wire/messages.h"
#include "engine/wire/task_event.h"

namespace wflow::workers {

using engine::wire::kMaxEventLine;

// The position of a reader in the file. A value: the agent keeps `offset` in the slot table, for the
// guardian.
struct EventTail {
  std::uint64_t offset = 0;   // begin of the first line that was not returned yet
  bool skipping = false;      // the offset is within a line that is too long
  std::uint64_t dropped = 0;  // number of lines that were too long, or no events
};

// Returns the whole lines that were appended since the last call, in order, without lines over kMaxEventLine.
// `at_end`: the task has ended, so a last line without a line feed counts too, and all of the file is read
// instead of a bounded part. A missing file has no lines: most tasks write none.
std::vector<std::string> read_events(const std::string& path, EventTail& tail, bool at_end);

// Returns the same lines as events, without sample reports, which the worker itself takes (SampleReports).
std::vector<engine::wire::EventBody> read_event_bodies(const std::string& path, EventTail& tail, bool at_end);

struct SampleFailure {
  std::string error;
  std::int32_t exit_code = 1;  // special codes (docs/exit-codes.md) have their usual effect
};

// The events sample_done and sample_failed of a bundle's process. The worker takes these lines itself and
// sends results to the coordinator instead.
class SampleReports {
 public:
  SampleReports(engine::wire::Element first, std::uint64_t count) : first_(first), count_(count) {}

  // The last report on a sample counts. Reports on samples of other processes change nothing.
  void take(const engine::wire::SampleReport& report);

  bool failed(engine::wire::Element element) const { return failures_.contains(element); }
  const std::map<engine::wire::Element, SampleFailure>& failures() const { return failures_; }
  bool done(engine::wire::Element element) const {
    return !done_.empty() && done_[static_cast<std::size_t>(element - first_)];
  }

 private:
  void set_done(engine::wire::Element element, bool done);

  engine::wire::Element first_;
  std::uint64_t count_;
  std::map<engine::wire::Element, SampleFailure> failures_;
  std::vector<bool> done_;  // by element - first_; empty until one is
};

// Returns all reports in the file. A missing file has none.
SampleReports read_reports(const std::string& path, engine::wire::Element first, std::uint64_t count);

}  // namespace wflow::workers
