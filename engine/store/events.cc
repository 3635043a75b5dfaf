// SPDX-License-Identifier: Apache-2.0
// What tasks say on their event channel: metrics, progress (the last one counts), and everything else.
#include <cmath>
#include <string>

#include "engine/store/impl.h"

namespace wflow::engine::store {

void Store::Impl::write_event(const wire::TaskEvent& event) {
  if (const auto* metric = std::get_if<wire::Metric>(&event.body)) return write_metric(event, *metric);
  if (const auto* progress = std::get_if<wire::Progress>(&event.body)) {
    execute(
        statement("INSERT OR REPLACE INTO progress (array, element, time, done, total, unit) VALUES (?, ?, "
                  "?, ?, ?, ?)"),
        event.array, signed_of(event.element), stored_time(event.time_s), signed_of(progress->done),
        signed_of(progress->total), progress->unit);
    return;
  }
  execute(
      statement("INSERT INTO events (time, array, element, attempt, type, body) VALUES (?, ?, ?, ?, ?, ?)"),
      stored_time(event.time_s), event.array, signed_of(event.element), event.attempt,
      std::string(type_of(event.body)), json_of(event.body));
}

void Store::Impl::write_metric(const wire::TaskEvent& of, const wire::Metric& metric) {
  const double value = metric.value;
  const char* const not_finite = std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  auto& insert = statement(
      "INSERT OR REPLACE INTO metrics (array, element, name, step, epoch, time, attempt, value, not_finite) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  SQLite::bind(insert, of.array, signed_of(of.element), metric.name, signed_of(metric.step),
               signed_of(metric.epoch), stored_time(of.time_s), of.attempt);
  if (std::isfinite(value)) {
    insert.bind(8, value);
    insert.bind(9);  // NULL
  } else {
    insert.bind(8);
    insert.bind(9, not_finite);
  }
  insert.exec();
}

}  // namespace wflow::engine::store
