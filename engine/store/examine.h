// SPDX-License-Identifier: Apache-2.0
// What is wrong with the database of a campaign that nobody runs, and what of it can be mended without losing
// anything: for wflow doctor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace wflow::engine::store {

struct DatabaseReport {
  // Pages or tables that can't be read, as SQLite says; and what contradicts itself in a way that no other
  // table explains. Only an older copy helps.
  std::vector<std::string> damage;
  std::vector<std::string>
      indexes;                      // entries that indexes lack or have too many: made anew from their tables
  std::vector<std::string> counts;  // of ended tasks, that do not match the ends themselves: counted anew
  std::uint64_t lost_commits = 0;   // acknowledged, and not in it (commit_mark.h)
  bool sound() const { return damage.empty() && indexes.empty() && counts.empty() && lost_commits == 0; }
};

// Error{busy} where a coordinator runs the campaign, Error{usage} where there is no database. Reads all of
// it.
DatabaseReport examine_database(const std::filesystem::path& campaign);
// Indexes and counts. The write-ahead log is taken into the database on the way.
void mend_database(const std::filesystem::path& campaign);

}  // namespace wflow::engine::store
