// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/journal.h"

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

void Journal::mark_ended() {
  wire::JournalHeader last = header_;
  last.ended = true;
  set_header(last);
}

void Journal::append(const wire::Results& results) {
  write(wire::frame_record(results));
}

void Journal::write(std::string_view record) {
  try {
    file_->append(record);
  } catch (const Error&) {
    file_->truncate(size_);  // a full disk takes a part of it
    throw;
  }
  size_ += record.size();
}

// The header stays in the file all the time: a coordinator may look at any moment.
void Journal::clear() {
  if (empty()) return;
  file_->truncate(header_bytes_);
  size_ = header_bytes_;
  if (header_later_) set_header(header_);
}

wire::Records Journal::recover() {
  wire::Records records = wire::parse_records(file_->read());
  file_->truncate(records.valid_bytes);
  size_ = records.valid_bytes;
  header_bytes_ = records.header_bytes;
  if (records.header) header_ = *records.header;
  return records;
}

}  // namespace wflow::workers
