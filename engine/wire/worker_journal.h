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

#include "base/process_identity.h"
#include "engine/wire/messages.h"

namespace wflow::engine::wire {

// Journals are <campaign>/.wflow/workers/<worker>.journal: records of headers and results
// (docs/formats/worker-journal.md). Every record is found and checked by itself, so that a damaged one costs
// no other.

// Whose journal it is: by this a coordinator finds living workers that it has never heard of. The last header
// of a journal counts.
struct JournalHeader {
  std::string worker;
  std::string group;
  ProcessIdentity guardian;
  ProcessIdentity agent;
  std::uint64_t started_by = 0;  // epoch of the coordinator that started it; 0: somebody else did
  double lost_s = 0;             // its fence (Welcome::lost_s); 0: it never had a coordinator
  // Said by its guardian, last of all: the agent and whatever its tasks had started have ended. A coordinator on another
  // host, which can't look, need not wait for the fence.
  bool ended = false;
};

std::string frame_record(const JournalHeader& header);
std::string frame_record(const Results& results);

// The bytes between whole records that are none.
struct JournalDamage {
  std::size_t places = 0;
  std::size_t bytes = 0;
  explicit operator bool() const { return places > 0; }
  // "2 places of its journal (345 bytes) are damaged; ..."
  std::string sentence() const;
};

struct Records {
  std::optional<JournalHeader> header;
  std::vector<Results> results;
  std::size_t header_bytes = 0;  // of the headers at the beginning
  std::size_t valid_bytes = 0;   // up to the end of the last whole record: more may be appended there
  // A record that was cut by the death of its writer at the very end is not damage: nobody was told of it.
  JournalDamage damaged;
};
Records parse_records(std::string_view bytes);

struct WorkerJournal {
  std::string worker;
  std::filesystem::path journal;
  bool alive = false;  // somebody holds its lock: it will say Hello by itself (its results too)
  std::optional<JournalHeader> header;
  std::vector<Results> results;  // of a dead one
  JournalDamage damaged;
};
std::vector<WorkerJournal> find_worker_journals(const std::filesystem::path& campaign);

}  // namespace wflow::engine::wire
