// SPDX-License-Identifier: Apache-2.0
// Results that the coordinator has not acknowledged yet, on disk (engine/wire/worker_journal.h). Written
// (without fsync: it must survive processes, not power cuts) before a finished child is reaped, so that a
// worker killed at any time leaves either the child to its guardian or the result here.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/wire/messages.h"
#include "engine/wire/worker_journal.h"
#include "workers/agent/journal_file.h"

namespace wflow::workers {

class Journal {
 public:
  Journal(std::unique_ptr<JournalFile> file, const engine::wire::JournalHeader& header);  // a new file
  // Says anew whose journal it is.
  void set_header(const engine::wire::JournalHeader& header);
  const engine::wire::JournalHeader& header() const { return header_; }
  void append(const engine::wire::Results& results);
  // That of this worker nothing runs any more, and what ran when its agent was killed. Nothing is appended
  // after it.
  void mark_ended(std::vector<engine::wire::RunningElement> running = {});
  void clear();  // everything but the header has been acknowledged

  // What is in it, for the guardian, whose agent has died. A record that was cut by the death of its writer
  // is cut off the file too, so that others can be appended.
  engine::wire::Records recover();
  bool empty() const { return size_ == header_bytes_; }
  std::uint64_t size() const { return size_; }
  void remove() { file_->remove(); }  // it is empty and the worker ends
  // Before another host reads it.
  void sync() { file_->sync(); }

 private:
  void write(std::string_view record);
  void cut_back();

  std::unique_ptr<JournalFile> file_;
  engine::wire::JournalHeader header_;
  std::uint64_t size_ = 0;
  std::uint64_t results_ = 0;       // behind the headers, as it is noted beside the file
  bool torn_ = false;               // a part of a record that could not be written stands behind `size_`
  std::uint64_t header_bytes_ = 0;  // of the headers before the first result
  bool header_later_ = false;       // the present header stands behind results
};

}  // namespace wflow::workers
