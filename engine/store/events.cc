// SPDX-License-Identifier: Apache-2.0
// What tasks say on their event channel: metrics, progress (the last one counts), and everything else.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/store/impl.h"

namespace wflow::engine::store {

void Store::Impl::write_event(const wire::TaskEvent& event) {
  const nlohmann::json body = nlohmann::json::parse(wire::json_of(event.body), nullptr, false);
  if (!body.is_object()) return;  // a task may write anything; what is no JSON object is not an event
  const auto text = [&](const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_number() ? at->get<double>() : 0.0;
  };
  const auto whole = [&](const char* key) {
    constexpr double kLargest = 9e15;  // the last whole numbers that a double tells apart
    const double value = number(key);
    return value >= 0 && value <= kLargest ? static_cast<std::int64_t>(value) : 0;
  };
  const std::string type = text("type");
  if (type == "progress") {
    write_progress(event, whole("done"), whole("total"), text("unit"));
  } else if (type == "metric") {
    write_metric(event, text("name"), whole("step"), whole("epoch"), number("value"));
  } else {
    write_other(event, type, wire::json_of(event.body));
  }
}

void Store::Impl::write_metric(const wire::TaskEvent& of, const std::string& name, std::int64_t step,
                               std::int64_t epoch, double value) {
  const char* const not_finite = std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  auto& insert = statement(
      "INSERT OR REPLACE INTO metrics (array, element, name, step, epoch, time, attempt, value, not_finite) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)");
  SQLite::bind(insert, of.array, signed_of(of.element), name, step, epoch, stored_time(of.time_s),
               of.attempt);
  if (std::isfinite(value)) {
    insert.bind(8, value);
    insert.bind(9);  // NULL
  } else {
    insert.bind(8);
    insert.bind(9, not_finite);
  }
  insert.exec();
}

void Store::Impl::write_progress(const wire::TaskEvent& of, std::int64_t done, std::int64_t total,
                                 const std::string& unit) {
  execute(statement("INSERT OR REPLACE INTO progress (array, element, time, done, total, unit) VALUES (?, ?, "
                    "?, ?, ?, ?)"),
          of.array, signed_of(of.element), stored_time(of.time_s), done, total, unit);
}

void Store::Impl::write_other(const wire::TaskEvent& of, const std::string& type, const std::string& json) {
  execute(
      statement("INSERT INTO events (time, array, element, attempt, type, body) VALUES (?, ?, ?, ?, ?, ?)"),
      stored_time(of.time_s), of.array, signed_of(of.element), of.attempt, type, json);
}

}  // namespace wflow::engine::store
