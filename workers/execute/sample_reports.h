// SPDX-License-Identifier: Apache-2.0
// What a process of a bundled step says of single samples in its $WFLOW_EVENTS file (docs/formats/events.md):
// sample_done and sample_failed. The worker takes these lines itself; the coordinator gets results instead.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/wire/messages.h"

namespace wflow::workers {

struct SampleFailure {
  std::string error;
  std::int32_t exit_code = 1;  // one of docs/exit-codes.md's special codes asks for what these ask
};

class SampleReports {
 public:
  SampleReports(engine::wire::Element first, std::uint64_t count) : first_(first), count_(count) {}

  // The last one about a sample counts. Those about samples that are not of this process change nothing.
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

// All reports in the file; one that is not there has none.
SampleReports read_reports(const std::string& path, engine::wire::Element first, std::uint64_t count);

}  // namespace wflow::workers
