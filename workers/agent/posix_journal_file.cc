// SPDX-License-Identifier: Apache-2.0
// The journal's file on the disk.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "engine/wire/worker_journal.h"
#include "workers/agent/journal.h"

namespace wflow::workers {

namespace {

class PosixJournalFile : public JournalFile {
 public:
  // Creates the file and takes the lock.
  PosixJournalFile(const std::filesystem::path& campaign, const std::string& worker);
  void append(std::string_view bytes) override;
  void truncate(std::uint64_t size) override;
  std::string read() override;
  void remove() override;
  void sync() override;
  void note_results(std::uint64_t count) override;
  std::optional<std::uint64_t> noted_results() override;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;
  FileDescriptor count_;  // opened for the first result
};

PosixJournalFile::PosixJournalFile(const std::filesystem::path& campaign, const std::string& worker)
    : path_(campaign / ".wflow" / "workers" / (worker + ".journal")) {
  make_directories(path_.parent_path());
  fd_ = open_file(path_, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  // On file systems without locks, other processes take a worker for dead only after a time of silence.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw system_error(errno, "another process holds " + path_.string());
  }
}

void PosixJournalFile::append(std::string_view bytes) {
  write_all(fd_.get(), bytes, path_);
}

void PosixJournalFile::truncate(std::uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0)
    throw system_error(errno, "cannot shorten " + path_.string());
}

// Reads through the descriptor, because the name may have gone with the campaign's directory.
std::string PosixJournalFile::read() {
  std::string bytes;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t got = ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(bytes.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error(errno, "cannot read " + path_.string());
    if (got == 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void PosixJournalFile::remove() {
  ::unlink(path_.c_str());
  ::unlink(engine::wire::count_file(path_).c_str());
}

void PosixJournalFile::sync() {
  if (::fsync(fd_.get()) != 0) throw system_error(errno, "cannot sync " + path_.string());
}

// If the disk refuses the write, the number stays too small, and readers miss nothing.
void PosixJournalFile::note_results(std::uint64_t count) {
  const std::string text = engine::wire::frame_count(count);
  if (!count_) {
    if (count == 0) return;
    count_ =
        FileDescriptor(::open(engine::wire::count_file(path_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  if (count_) static_cast<void>(::pwrite(count_.get(), text.data(), text.size(), 0) == 0);
}

std::optional<std::uint64_t> PosixJournalFile::noted_results() {
  return engine::wire::noted_results(path_);
}

}  // namespace

std::unique_ptr<JournalFile> create_journal_file(const std::filesystem::path& campaign,
                                                 const std::string& worker) {
  return std::make_unique<PosixJournalFile>(campaign, worker);
}

}  // namespace wflow::workers
