// SPDX-License-Identifier: Apache-2.0
#include "workers/agent/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "engine/wire/worker_journal.h"

namespace wflow::workers {

namespace wire = engine::wire;

Journal::Journal(const std::filesystem::path& campaign, const std::string& worker)
    : path_(campaign / ".wflow" / "workers" / (worker + ".journal")) {
  make_directories(path_.parent_path());
  fd_ = open_file(path_, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  // Some file systems have no locks: there a worker seems dead to others only after it has been silent.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw system_error(errno, "another process holds " + path_.string());
  }
}

void Journal::append(const wire::Results& results) {
  const std::string record = wire::frame_record(results);
  try {
    write_all(fd_.get(), record, path_);
  } catch (const Error&) {
    // A full disk takes a part of it, behind which no other would be found.
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0)
      throw system_error(errno, "cannot repair " + path_.string());
    throw;
  }
  size_ += record.size();
}

void Journal::clear() {
  if (size_ == 0) return;
  if (::ftruncate(fd_.get(), 0) != 0) throw system_error(errno, "cannot empty " + path_.string());
  size_ = 0;
}

std::vector<wire::Results> Journal::recover() {
  wire::Records records = wire::parse_records(read_file(path_));
  if (::ftruncate(fd_.get(), static_cast<off_t>(records.valid_bytes)) != 0) {
    throw system_error(errno, "cannot repair " + path_.string());
  }
  size_ = records.valid_bytes;
  return std::move(records.results);
}

void Journal::remove() {
  ::unlink(path_.c_str());
}

}  // namespace wflow::workers
