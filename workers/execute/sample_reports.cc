// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/sample_reports.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "workers/execute/event_tail.h"

namespace wflow::workers {

using engine::wire::Element;

namespace {

constexpr std::size_t kErrorBytes = 4096;

template <typename Number>
Number number_of(const nlohmann::json& event, const char* key, Number otherwise) {
  const auto at = event.find(key);
  return at != event.end() && at->is_number_integer() ? at->get<Number>() : otherwise;
}

}  // namespace

bool is_sample_report(std::string_view line) {
  return line.find("\"sample_done\"") != std::string_view::npos ||
         line.find("\"sample_failed\"") != std::string_view::npos;
}

void SampleReports::take(std::string_view line) {
  if (!is_sample_report(line)) return;
  const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
  if (!event.is_object()) return;
  const auto type = event.find("type");
  const bool done = type != event.end() && *type == "sample_done";
  if (!done && (type == event.end() || *type != "sample_failed")) return;
  constexpr Element kNone = std::numeric_limits<Element>::max();
  const auto from = number_of<Element>(event, "sample", number_of<Element>(event, "first", kNone));
  const auto many = number_of<std::uint64_t>(event, "count", 1);
  if (from < first_ || from - first_ >= count_ || many > count_ - (from - first_)) return;
  for (Element element = from; element < from + many; ++element) {
    set_done(element, done);
    if (done) {
      failures_.erase(element);
      continue;
    }
    SampleFailure failure;
    const auto error = event.find("error");
    if (error != event.end() && error->is_string())
      failure.error = error->get<std::string>().substr(0, kErrorBytes);
    failure.exit_code = number_of<std::int32_t>(event, "exit_code", 1);
    if (failure.exit_code == 0) failure.exit_code = 1;
    failures_[element] = std::move(failure);
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
    for (const std::string& line : read_events(path, tail, true)) reports.take(line);
    if (tail.offset == before) return reports;
  }
}

}  // namespace wflow::workers
