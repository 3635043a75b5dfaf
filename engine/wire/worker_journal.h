// SPDX-License-Identifier: Apache-2.0
// What workers of an earlier coordinator left in the campaign directory: read by `wflow resume` before it
// leases anything, so that no finished task runs again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/messages.h"

namespace wflow::engine::wire {

struct WorkerJournal {
  std::string worker;
  std::filesystem::path journal;
  bool alive = false;            // holds its lock: it will say Hello by itself (its results too)
  std::vector<Results> results;  // of a dead one; a cut last record is dropped
};

// Journals are <campaign>/.wflow/workers/<worker>.journal, a sequence of records: u32 length, u32 XXH32 of
// the payload, payload = encode(Results), little endian.
std::vector<WorkerJournal> find_worker_journals(const std::filesystem::path& campaign);

std::string frame_record(const Results& results);

// The whole records at the beginning of a journal's bytes, and how many bytes they are: a cut or damaged one
// ends the list.
struct Records {
  std::vector<Results> results;
  std::size_t valid_bytes = 0;
};
Records parse_records(std::string_view bytes);

}  // namespace wflow::engine::wire
