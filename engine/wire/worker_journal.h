// SPDX-License-Identifier: Apache-2.0
// What workers keep in the campaign directory until the coordinator has committed it: read when a worker has
// died and when a campaign is resumed, so that no finished task runs again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain_types.h"
#include "engine/wire/messages.h"

namespace wflow::engine::wire {

// Journals are <campaign>/.wflow/workers/<worker>.journal: records of headers and results
// (docs/formats/worker-journal.md). Every record is found and checked by itself, so that a damaged one costs
// no other.

// The owner of the journal: with it a coordinator finds living workers that are unknown to it. The last
// header of a journal counts.
struct JournalHeader {
  std::string worker;
  std::string group;
  ProcessIdentity guardian;
  ProcessIdentity agent;
  std::uint64_t started_by = 0;  // epoch of the coordinator that started it; 0: another process did
  double lost_s = 0;             // its fence (Welcome::lost_s); 0: it never had a coordinator
  // Said by its guardian, last of all: the agent and whatever its tasks had started have ended. A coordinator
  // on another host, which can't look, need not wait for the fence.
  bool ended = false;
  // Written with `ended`: what ran when the agent was killed. A task that ends its worker at once is in no
  // heartbeat.
  std::vector<RunningElement> running = {};
};

std::string frame_record(const JournalHeader& header);
std::string frame_record(const Results& results);

// The bytes between whole records that are none, and results that were there once.
struct JournalDamage {
  std::size_t places = 0;
  std::size_t bytes = 0;
  std::uint64_t missing = 0;  // results, as far as their number was noted
  bool newer = false;         // a later version has written it: no record of it can be read
  explicit operator bool() const { return places > 0 || missing > 0; }
  // "2 places of the journal are damaged (345 bytes): ..."
  std::string sentence() const;
};

// How many results a journal holds is noted beside it, in <worker>.count: by this a journal that was cut or
// removed is found. The number is written after a result, and before the results go: it may be too small.
std::filesystem::path count_file(std::filesystem::path journal);
std::string frame_count(std::uint64_t count);
// Empty if it is missing or damaged.
std::optional<std::uint64_t> noted_results(const std::filesystem::path& journal);
std::uint64_t count_results(const Results& results);

struct Records {
  std::optional<JournalHeader> header;
  std::vector<Results> results;
  std::size_t header_bytes = 0;  // size of the headers at the beginning
  std::size_t valid_bytes = 0;   // up to the end of the last whole record: more may be appended there
  // A last record that the death of its writer has cut is no damage: it had not been reported yet.
  JournalDamage damaged;
};
Records parse_records(std::string_view bytes);
// Sets damaged.missing by the number that was noted.
void compare(Records& records, std::optional<std::uint64_t> noted);
// Reads a file, with both. Its worker may live, and add or clear records meanwhile.
Records read_records(const std::filesystem::path& journal);
// A sentence about a missing journal with so many results: "the journal is missing ..."
std::string missing_journal(std::uint64_t results);

}  // namespace wflow::engine::wire
