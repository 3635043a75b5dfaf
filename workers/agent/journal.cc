// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/journal.h"

#include <optional>
#include <utility>

#include "base/error.h"

namespace wflow::workers {

namespace wire = engine::wire;

Journal::Journal(std::unique_ptr<JournalFile> file, const wire::JournalHeader& header)
    : file_(std::move(file)) {
  set_header(header);
}

void Journal::set_header(const wire::JournalHeader& header) {
  const bool first = empty();
  write(wire::frame_record(header));
  if (first) header_bytes_ = size_;
  header_later_ = !first;
  header_ = header;
}

void Journal::mark_ended(std::vector<wire::RunningElement> running) {
  wire::JournalHeader last = header_;
  last.ended = true;
  last.running = std::move(running);
  set_header(last);
}

void Journal::append(const wire::Results& results) {
  write(wire::frame_record(results));
  results_ += wire::count_results(results);
  file_->note_results(results_);
}

void Journal::write(std::string_view record) {
  if (torn_) cut_back();
  try {
    file_->append(record);
  } catch (const Error&) {
    torn_ = true;  // a full disk may have taken a part of the record
    try {
      cut_back();
    } catch (const Error&) {
      // The next write() tries again first: `size_` stays the size of the whole records.
    }
    throw;
  }
  size_ += record.size();
}

void Journal::cut_back() {
  file_->truncate(size_);
  torn_ = false;
}

// The header stays in the file all the time, because a coordinator may read the file at any moment.
void Journal::clear() {
  if (empty() && !header_later_) return;
  file_->note_results(0);
  file_->truncate(header_bytes_);
  results_ = 0;
  size_ = header_bytes_;
  torn_ = false;
  if (header_later_) set_header(header_);
}

wire::Records Journal::recover() {
  const std::optional<std::uint64_t> noted = file_->noted_results();
  const std::string bytes = file_->read();
  wire::Records records = wire::parse_records(bytes);
  wire::compare(records, noted);
  results_ = records.damaged.missing;
  for (const wire::Results& results : records.results) results_ += wire::count_results(results);
  size_ = records.valid_bytes;
  // The results are there even if the disk refuses to cut the rest off: the next write() tries again first.
  torn_ = bytes.size() > size_;
  try {
    if (torn_) cut_back();
  } catch (const Error&) {
    // `torn_` stays true.
  }
  header_bytes_ = records.header_bytes;
  if (records.header) header_ = *records.header;
  return records;
}

}  // namespace wflow::workers
