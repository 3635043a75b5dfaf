// SPDX-License-Identifier: Apache-2.0
// What a coordinator begins with. The tables are checked against each other on the way: a row that was edited
// or damaged must not make tasks run twice, or never.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/store/impl.h"

namespace wflow::engine::store {

namespace {

constexpr ElementState kEnds[] = {ElementState::done, ElementState::failed, ElementState::hard_failed,
                                  ElementState::skipped, ElementState::cancelled};

struct ArrayRow {
  std::string name;
  std::uint64_t elements = 0;
  std::array<std::uint64_t, kElementStates> recorded{}, added_up{};
};

class Checker {
 public:
  explicit Checker(const std::filesystem::path& campaign) : campaign_(campaign) {}

  void add_array(std::int64_t id, ArrayRow row) {
    if (id != static_cast<std::int64_t>(arrays_.size()))
      damaged(fmt::format("task array {} is missing", arrays_.size()));
    arrays_.push_back(std::move(row));
  }

  // Checks the ranges of one table, in order of array and element.
  void check_range(const char* table, ArrayId array, Range range) {
    if (array >= arrays_.size())
      damaged(fmt::format("{} names task array {} of {}", table, array, arrays_.size()));
    const ArrayRow& row = arrays_[array];
    if (range.last < range.first || range.last >= row.elements) {
      damaged(fmt::format("{} has tasks {} to {} of {}, which has {}", table, range.first, range.last,
                          row.name, row.elements));
    }
    if (last_array_ == array && range.first <= last_element_)
      damaged(fmt::format("{} has task {} of {} twice", table, range.first, row.name));
    last_array_ = array;
    last_element_ = range.last;
  }
  void begin_table() { last_array_.reset(); }

  void add_run(ArrayId array, Range range, std::int64_t state) {
    check_range("runs", array, range);
    if (state < static_cast<std::int64_t>(ElementState::done) ||
        state >= static_cast<std::int64_t>(kElementStates))
      damaged(fmt::format("tasks {} to {} of {} ended in the unknown state {}", range.first, range.last,
                          arrays_[array].name, state));
    arrays_[array].added_up[static_cast<std::size_t>(state)] += range.size();
  }

  void check_counts(ArrayId array, Element element, const AttemptCounts& counts) const {
    if (counts.not_asked() <= counts.number) return;
    damaged(fmt::format("task {} of {} failed or was lost {} times in {} executions", element,
                        arrays_[array].name, counts.not_asked(), counts.number));
  }

  void compare_counts() const {
    for (const ArrayRow& row : arrays_) {
      for (const ElementState state : kEnds) {
        const auto at = static_cast<std::size_t>(state);
        if (row.recorded[at] == row.added_up[at]) continue;
        damaged(fmt::format("{} tasks of {} are {}, but its runs add up to {}", row.recorded[at], row.name,
                            name_of(state), row.added_up[at]));
      }
    }
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw Error(ExitCode::data, fmt::format("{} is damaged or was edited: {}; put a snapshot in its place "
                                            "(`wflow snapshot` makes them), or run the study anew",
                                            database_path(campaign_).string(), what));
  }

  std::filesystem::path campaign_;
  std::vector<ArrayRow> arrays_;
  std::optional<ArrayId> last_array_;
  Element last_element_ = 0;
};

std::uint64_t unsigned_at(SQLite::Statement& row, int column) {
  return static_cast<std::uint64_t>(row.getColumn(column).getInt64());
}

// Gives the durations to `restored`.
void restore_arrays(SQLite::Statement& select, Checker& checker, Restored& restored) {
  while (select.executeStep()) {
    ArrayRow row{select.getColumn(1).getString(), unsigned_at(select, 2), {}, {}};
    int column = 6;
    for (const ElementState state : kEnds)
      row.recorded[static_cast<std::size_t>(state)] = unsigned_at(select, column++);
    checker.add_array(select.getColumn(0).getInt64(), std::move(row));
    ArrayProgress progress;
    progress.timed = unsigned_at(select, 3);
    progress.duration_sum_s = select.getColumn(4).getDouble();
    progress.duration_square_sum = select.getColumn(5).getDouble();
    if (progress.timed > 0)
      restored.totals.push_back({static_cast<ArrayId>(select.getColumn(0).getUInt()), progress});
  }
}

}  // namespace

Restored Store::restore() {
  return impl_->reading([&] {
    Restored restored;
    Checker checker(impl_->campaign);
    restore_arrays(
        impl_->statement("SELECT id, name, elements, timed, duration_sum, duration_square_sum, done, "
                         "failed, hard_failed, skipped, cancelled FROM arrays ORDER BY id"),
        checker, restored);
    impl_->runs.for_each([&](ArrayId array, Range range, std::int64_t state) {
      checker.add_run(array, range, state);
      restored.ends.push_back({array, range, static_cast<ElementState>(state)});
    });
    checker.compare_counts();
    checker.begin_table();
    impl_->floors.for_each([&](ArrayId array, Range range, std::int64_t lease) {
      checker.check_range("floors", array, range);
      restored.floors.push_back({array, range, static_cast<LeaseId>(lease)});
    });
    checker.begin_table();
    auto& attempts = impl_->statement(
        "SELECT array, element, next_attempt, failures, crashes, restart, neutral, launches, memory, "
        "memory_bytes, (SELECT max(duration) FROM failures f WHERE f.array = attempts.array AND "
        "f.element = attempts.element AND f.reason = 'walltime') FROM attempts ORDER BY array, element");
    while (attempts.executeStep()) {
      const auto array = static_cast<ArrayId>(attempts.getColumn(0).getUInt());
      const Element element = unsigned_at(attempts, 1);
      checker.check_range("attempts", array, {element, element});
      const auto number = [&](int column) { return attempts.getColumn(column).getUInt(); };
      const AttemptCounts counts{number(2), number(3), number(4), number(5) != 0,
                                 number(6), number(7), number(8), attempts.getColumn(9).getInt64()};
      checker.check_counts(array, element, counts);
      const auto cut = attempts.getColumn(10);
      restored.attempts.push_back({array, element, counts, cut.isNull() ? 0 : cut.getDouble()});
    }
    restored.workers = impl_->read_living_workers();
    restored.allocations = impl_->read_allocations();
    return restored;
  });
}

}  // namespace wflow::engine::store
