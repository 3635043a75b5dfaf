// SPDX-License-Identifier: Apache-2.0
// Results that the coordinator has not acknowledged yet, on disk (engine/wire/worker_journal.h). The agent
// writes them before it reaps a finished child, so that an agent killed at any time leaves either the child
// to its guardian or the result here. Without fsync: the journal must survive the death of processes, not a
// power cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/messages.h"
#include "engine/wire/worker_journal.h"

namespace wflow::workers {

// The file operations that a journal needs: on the disk (create_journal_file), or simulated. All throw
// Error{system}.
class JournalFile {
 public:
  virtual ~JournalFile() = default;
  virtual void append(std::string_view bytes) = 0;  // a part may stay in the file if it fails
  virtual void truncate(std::uint64_t size) = 0;
  virtual std::string read() = 0;
  virtual void remove() = 0;
  virtual void sync() = 0;  // other hosts see the contents, and they survive a crash of this one
  // The number of results in the file, stored beside it: a reader that finds fewer knows that some are lost.
  virtual void note_results(std::uint64_t count) = 0;
  virtual std::optional<std::uint64_t> noted_results() = 0;
};

// Creates <campaign>/.wflow/workers/<worker>.journal and takes an exclusive flock on it: a coordinator on
// this host knows by the lock that the worker lives.
std::unique_ptr<JournalFile> create_journal_file(const std::filesystem::path& campaign,
                                                 const std::string& worker);

class Journal {
 public:
  Journal(std::unique_ptr<JournalFile> file, const engine::wire::JournalHeader& header);  // a new file
  // Writes a new header, which replaces the earlier one for readers.
  void set_header(const engine::wire::JournalHeader& header);
  const engine::wire::JournalHeader& header() const { return header_; }
  void append(const engine::wire::Results& results);
  // Notes that no process of this worker is left, and which elements ran when its agent was killed. Append
  // nothing after it.
  void mark_ended(std::vector<engine::wire::RunningElement> running = {});
  void clear();  // removes everything but the header, once all results are acknowledged

  // Reads the journal, for the guardian, when the agent has died. Cuts off a record that the death of its
  // writer has left incomplete, so that others can be appended.
  engine::wire::Records recover();
  bool empty() const { return size_ == header_bytes_; }
  std::uint64_t size() const { return size_; }
  void remove() { file_->remove(); }  // for an empty journal, when the worker ends
  // Makes the contents visible to other hosts.
  void sync() { file_->sync(); }

 private:
  void write(std::string_view record);
  void cut_back();

  std::unique_ptr<JournalFile> file_;
  engine::wire::JournalHeader header_;
  std::uint64_t size_ = 0;
  std::uint64_t results_ = 0;       // number of results, as stored beside the file
  bool torn_ = false;               // the file holds a part of a failed record after `size_`
  std::uint64_t header_bytes_ = 0;  // size of the headers before the first result
  bool header_later_ = false;       // the present header was written after results
};

}  // namespace wflow::workers
