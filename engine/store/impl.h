// SPDX-License-Identifier: Apache-2.0
// What store.cc and records.cc share.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "engine/store/store.h"

namespace wflow::engine::store {

std::string reason_name(wire::EndReason reason);
int reason_from_name(std::string_view name);

struct Store::Impl {
  std::filesystem::path campaign;
  SQLite::Database database;
  std::map<std::string, SQLite::Statement, std::less<>> statements;  // prepared once

  SQLite::Statement& statement(const char* sql);
  void write(const Batch& batch);
  void write_end(const RecordEnd& end);
  void cut_runs(ArrayId array, Range range);
  void insert_run(ArrayId array, Range range, int state);
  void write_failure(const RecordFailure& row);
  void write_event(const wire::TaskEvent& event);
  std::vector<StepStatus> read_steps();
  void write_followup(const Followup& followup);
  void write_now(SQLite::Statement& statement);
  std::vector<FailureView> read_failures(SQLite::Statement& select);
};

}  // namespace wflow::engine::store
