// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/event_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <variant>

#include "base/file.h"

namespace wflow::workers {

namespace {

constexpr std::size_t kReadBytes = 1 << 20;
// Limits the last read of a task to 16 MiB; the rest is lost, because only a faulty task writes so much.
constexpr int kReadsAtEnd = 16;

// Appends the whole lines of `text` to `lines`; returns the number of bytes that they take.
std::size_t take_lines(std::string_view text, EventTail& tail, std::vector<std::string>& lines) {
  std::size_t done = 0;
  while (true) {
    const std::size_t end = text.find('\n', done);
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(done, end - done);
    const bool too_long = tail.skipping || line.size() > kMaxEventLine;
    if (too_long) ++tail.dropped;
    if (!too_long && !line.empty()) lines.emplace_back(line);
    tail.skipping = false;
    done = end + 1;
  }
  if (text.size() - done > kMaxEventLine) {
    tail.skipping = true;
    done = text.size();
  }
  return done;
}

}  // namespace

std::vector<std::string> read_events(const std::string& path, EventTail& tail, bool at_end) {
  std::vector<std::string> lines;
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return lines;
  std::string buffer(kReadBytes, '\0');
  for (int reads = 0; reads < (at_end ? kReadsAtEnd : 1); ++reads) {
    const ssize_t got = ::pread(fd.get(), buffer.data(), buffer.size(), static_cast<off_t>(tail.offset));
    if (got <= 0) break;
    const std::string_view text(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t done = take_lines(text, tail, lines);
    tail.offset += done;
    if (text.size() == buffer.size()) continue;
    if (at_end && done < text.size() && !tail.skipping) {
      lines.emplace_back(text.substr(done));
      tail.offset += text.size() - done;
    }
    break;
  }
  return lines;
}

std::vector<engine::wire::EventBody> read_event_bodies(const std::string& path, EventTail& tail,
                                                       bool at_end) {
  std::vector<engine::wire::EventBody> bodies;
  for (const std::string& line : read_events(path, tail, at_end)) {
    auto event = engine::wire::parse_event_line(line);
    if (!event) ++tail.dropped;
    if (!event || std::holds_alternative<engine::wire::SampleReport>(*event)) continue;
    bodies.push_back(std::move(std::get<engine::wire::EventBody>(*event)));
  }
  return bodies;
}

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
      // Parses reports only. A bundle may have millions of them.
      if (line.find("\"sample_") == std::string::npos) continue;
      const auto event = engine::wire::parse_event_line(line);
      const auto* report = event ? std::get_if<engine::wire::SampleReport>(&*event) : nullptr;
      if (report != nullptr) reports.take(*report);
    }
    if (tail.offset == before) return reports;
  }
}

}  // namespace wflow::workers
