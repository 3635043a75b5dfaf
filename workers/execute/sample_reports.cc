// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/sample_reports.h"

#include <variant>

#include "workers/execute/event_tail.h"

namespace wflow::workers {

using engine::wire::Element;

void SampleReports::take(const engine::wire::SampleReport& report) {
  const Element from = report.first;
  if (from < first_ || from - first_ >= count_ || report.count > count_ - (from - first_)) return;
  for (Element element = from; element < from + report.count; ++element) {
    set_done(element, report.done);
    if (report.done) {
      failures_.erase(element);
    } else {
      failures_[element] = {report.error, report.exit_code};
    }
  }
}

void SampleReports::set_done(Element element, bool done) {
  if (done_.empty()) {
    if (!done) return;
    done_.resize(static_cast<std::size_t>(count_));
  }
  done_[static_cast<std::size_t>(element - first_)] = done;
}

SampleReports read_reports(const std::string& path, Element first, std::uint64_t count) {
  SampleReports reports(first, count);
  EventTail tail;
  while (true) {
    const std::uint64_t before = tail.offset;
    for (const std::string& line : read_events(path, tail, true)) {
      // Most lines of a bundle with samples by the million are such reports; others need no parsing here.
      if (line.find("\"sample_") == std::string::npos) continue;
      const auto event = engine::wire::parse_event_line(line);
      const auto* report = event ? std::get_if<engine::wire::SampleReport>(&*event) : nullptr;
      if (report != nullptr) reports.take(*report);
    }
    if (tail.offset == before) return reports;
  }
}

}  // namespace wflow::workers
