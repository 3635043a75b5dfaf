// SPDX-License-Identifier: Apache-2.0
// What executions used: a distribution a step, and a compact record of each, in blocks that grow.
#include <algorithm>
#include <bit>

#include "base/random.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

constexpr std::uint64_t kBlockRecords = 128;
// Blocks that may still grow: beyond that all are closed, so that many arrays take no memory.
constexpr std::size_t kOpenBlocks = 1000;

// All of the first `kAllRecords` executions have a record; half of the next as many, a quarter of the next
// twice as many, and so on. The executions' own numbers decide which.
bool is_kept(std::uint64_t seen, const TaskUsage& usage) {
  const std::uint64_t full = seen / Store::kAllRecords;
  const auto halvings = static_cast<unsigned>(std::bit_width(full));
  const std::uint64_t mask = (std::uint64_t{1} << halvings) - 1;
  return (hash64(usage.array, usage.first) & mask) == 0;
}

}  // namespace

void Store::Impl::write_usage(const std::vector<Batch::Usage>& used) {
  if (used.empty()) return;
  if (!usage) usage = read_usage();
  std::set<ArrayId> seen, arrays;
  for (const auto& [worker, executions] : used) {
    std::optional<ArrayId> last;  // looked up once for its neighbours
    StepUsage* step = nullptr;
    for (const TaskUsage& execution : executions) {
      if (last != execution.array) step = &usage->steps[usage->step_of.at(execution.array)];
      if (last != execution.array) seen.insert(execution.array);
      last = execution.array;
      step->add(execution);
      if (is_kept(usage->seen++, execution) && add_to_block(execution, worker))
        arrays.insert(execution.array);
    }
  }
  std::set<std::string> steps;
  for (const ArrayId array : seen) steps.insert(usage->step_of.at(array));
  for (const std::string& step : steps) {
    SQLite::Statement& insert = statement("INSERT OR REPLACE INTO usage (step, body) VALUES (?, ?)");
    const std::string bytes = usage->steps.at(step).bytes();
    insert.bind(1, step);
    insert.bind(2, bytes.data(), static_cast<int>(bytes.size()));
    insert.exec();
    insert.reset();
  }
  for (const ArrayId array : arrays) write_block(array);
  execute(statement("INSERT OR REPLACE INTO meta VALUES ('usage_seen', ?)"), std::to_string(usage->seen));
}

Store::Impl::Usage Store::Impl::read_usage() {
  Usage read;
  SQLite::Statement arrays(database, "SELECT id, step FROM arrays");
  while (arrays.executeStep())
    read.step_of.emplace(arrays.getColumn(0).getUInt(), arrays.getColumn(1).getString());
  SQLite::Statement steps(database, "SELECT step, body FROM usage");
  while (steps.executeStep()) {
    const SQLite::Column body = steps.getColumn(1);
    read.steps.emplace(steps.getColumn(0).getString(),
                       StepUsage::from_bytes({static_cast<const char*>(body.getBlob()),
                                              static_cast<std::size_t>(body.getBytes())}));
  }
  SQLite::Statement workers(database, "SELECT number, id FROM usage_workers");
  while (workers.executeStep())
    read.workers.emplace(workers.getColumn(1).getString(),
                         static_cast<std::uint64_t>(workers.getColumn(0).getInt64()));
  SQLite::Statement seen(database, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'usage_seen'");
  if (seen.executeStep()) read.seen = static_cast<std::uint64_t>(seen.getColumn(0).getInt64());
  return read;
}

bool Store::Impl::add_to_block(const TaskUsage& execution, const WorkerId& worker) {
  const ArrayId array = execution.array;
  auto open = usage->open.find(array);
  if (open == usage->open.end()) {
    if (usage->open.size() >= kOpenBlocks) close_blocks();
    SQLite::Statement& last = statement("SELECT coalesce(max(block), -1) FROM task_usage WHERE array = ?");
    last.bind(1, array);
    last.executeStep();
    open = usage->open.emplace(array, OpenBlock{last.getColumn(0).getInt64() + 1, {}}).first;
    last.reset();
  }
  const auto [known, is_new] = usage->workers.try_emplace(worker, usage->workers.size() + 1);
  if (is_new)
    execute(statement("INSERT INTO usage_workers (number, id) VALUES (?, ?)"), signed_of(known->second),
            worker);
  open->second.block.add(execution, known->second);
  if (open->second.block.records() < kBlockRecords) return true;
  write_block(array);
  open->second = {open->second.number + 1, {}};
  return false;
}

// Writes this transaction's additions to them first.
void Store::Impl::close_blocks() {
  for (const auto& [array, block] : usage->open) write_block(array);
  usage->open.clear();
}

void Store::Impl::write_block(ArrayId array) {
  const auto open = usage->open.find(array);
  if (open == usage->open.end() || open->second.block.records() == 0) return;
  const auto& [number, block] = open->second;
  SQLite::Statement& insert = statement(
      "INSERT OR REPLACE INTO task_usage (array, block, first, last, records, body) VALUES (?, ?, ?, ?, ?, "
      "?)");
  insert.bind(1, array);
  insert.bind(2, number);
  insert.bind(3, signed_of(block.first()));
  insert.bind(4, signed_of(block.last()));
  insert.bind(5, signed_of(block.records()));
  insert.bind(6, block.bytes().data(), static_cast<int>(block.bytes().size()));
  insert.exec();
  insert.reset();
}

std::map<std::string, StepUsage> Store::usage() {
  return impl_->reading([&] { return impl_->usage ? impl_->usage->steps : impl_->read_usage().steps; });
}

std::vector<wire::LostTime> Store::lost_times() {
  return impl_->reading([&] {
    std::map<std::int64_t, std::string> steps;
    SQLite::Statement arrays(impl_->database, "SELECT id, step FROM arrays");
    while (arrays.executeStep())
      steps.emplace(arrays.getColumn(0).getInt64(), arrays.getColumn(1).getString());
    // Summed up here: SQLite would sort all rows.
    std::map<std::pair<std::int64_t, std::string>, wire::LostTime> sums;
    SQLite::Statement rows(impl_->database, "SELECT array, reason, duration FROM failures");
    while (rows.executeStep()) {
      wire::LostTime& sum = sums[{rows.getColumn(0).getInt64(), rows.getColumn(1).getString()}];
      ++sum.executions;
      sum.seconds += std::max(0.0, rows.getColumn(2).getDouble());
    }
    std::map<std::pair<std::string, std::string>, wire::LostTime> lost;
    for (const auto& [key, sum] : sums) {
      const auto step = steps.find(key.first);
      if (step == steps.end()) continue;  // the study has removed the array
      wire::LostTime& time = lost[{step->second, key.second}];
      time.step = step->second;
      time.reason = key.second;
      time.executions += sum.executions;
      time.seconds += sum.seconds;
    }
    std::vector<wire::LostTime> list;
    for (auto& [key, time] : lost) list.push_back(std::move(time));
    return list;
  });
}

std::vector<UsageRow> Store::usage_of(ArrayId array, Range range, std::size_t limit) {
  return impl_->reading([&] {
    std::map<std::uint64_t, WorkerId> workers;
    SQLite::Statement names(impl_->database, "SELECT number, id FROM usage_workers");
    while (names.executeStep())
      workers.emplace(names.getColumn(0).getInt64(), names.getColumn(1).getString());
    SQLite::Statement select(
        impl_->database,
        "SELECT body FROM task_usage WHERE array = ? AND first <= ? AND last >= ? ORDER BY block");
    SQLite::bind(select, array, signed_of(range.last), signed_of(range.first));
    std::vector<UsageRow> rows;
    while (select.executeStep()) {
      const SQLite::Column body = select.getColumn(0);
      const std::string_view bytes(static_cast<const char*>(body.getBlob()),
                                   static_cast<std::size_t>(body.getBytes()));
      for (const UsageBlock::Record& record : UsageBlock::read(array, bytes)) {
        const TaskUsage& used = record.usage;
        if (used.first <= range.last && used.first + used.count > range.first)
          rows.push_back({used, workers[record.worker]});
      }
    }
    std::sort(rows.begin(), rows.end(), [](const UsageRow& a, const UsageRow& b) {
      return std::pair(a.usage.first, a.usage.started_s) < std::pair(b.usage.first, b.usage.started_s);
    });
    if (rows.size() > limit) rows.resize(limit);
    return rows;
  });
}

}  // namespace wflow::engine::store
