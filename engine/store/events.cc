// SPDX-License-Identifier: Apache-2.0
// Events of tasks: metrics, progress (the last one counts), and all others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

// SQLite's integers are signed.
std::int64_t stored_count(std::uint64_t count) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(count, kLargest));
}

}  // namespace

void Store::Impl::write_event(const wire::TaskEvent& event) {
  if (const auto* metric = std::get_if<wire::Metric>(&event.body)) {
    write_metric(event, *metric);
  } else if (const auto* progress = std::get_if<wire::Progress>(&event.body)) {
    write_progress(event, *progress);
  } else if (const auto* missing = std::get_if<wire::MissingSample>(&event.body)) {
    write_missing(event, *missing);
  } else if (const auto* converted = std::get_if<wire::Converted>(&event.body)) {
    write_converted(event, *converted);
  } else {
    write_other(event);
  }
}

void Store::Impl::write_metric(const wire::TaskEvent& of, const wire::Metric& metric) {
  const double value = metric.value;
  const char* const not_finite = std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  auto& insert = statement(
      "INSERT OR REPLACE INTO metrics (array, element, name, step, epoch, time, attempt, value, not_finite) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  SQLite::bind(insert, of.array, signed_of(of.element), metric.name, stored_count(metric.step),
               stored_count(metric.epoch), stored_time(of.time_s), of.attempt);
  if (std::isfinite(value)) {
    insert.bind(8, value);
    insert.bind(9);  // NULL
  } else {
    insert.bind(8);
    insert.bind(9, not_finite);
  }
  insert.exec();
}

void Store::Impl::write_progress(const wire::TaskEvent& of, const wire::Progress& progress) {
  execute(statement("INSERT OR REPLACE INTO progress (array, element, time, done, total, unit) VALUES (?, ?, "
                    "?, ?, ?, ?)"),
          of.array, signed_of(of.element), stored_time(of.time_s), stored_count(progress.done),
          stored_count(progress.total), progress.unit);
}

void Store::Impl::write_other(const wire::TaskEvent& of) {
  execute(
      statement("INSERT INTO events (time, array, element, attempt, type, body) VALUES (?, ?, ?, ?, ?, ?)"),
      stored_time(of.time_s), of.array, signed_of(of.element), of.attempt,
      std::string(wire::type_of(of.body)), wire::json_of(of.body));
}

}  // namespace wflow::engine::store
