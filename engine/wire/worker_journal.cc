// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/worker_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "engine/wire/codec.h"

namespace wflow::engine::wire {

namespace {

static_assert(std::endian::native == std::endian::little, "journals are little endian");

constexpr std::size_t kHeaderBytes = 8;
constexpr std::string_view kSuffix = ".journal";

std::uint32_t word(std::string_view bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void append_word(std::string& bytes, std::uint32_t value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint32_t checksum(std::string_view payload) {
  return XXH32(payload.data(), payload.size(), 0);
}

// Whether somebody else holds the lock of a journal. On file systems without locks nobody seems to.
bool is_locked(int fd) {
  if (::flock(fd, LOCK_SH | LOCK_NB) == 0) {
    ::flock(fd, LOCK_UN);
    return false;
  }
  return errno == EWOULDBLOCK;
}

WorkerJournal read_worker_journal(const std::filesystem::path& file) {
  WorkerJournal journal;
  journal.worker = file.stem().string();
  journal.journal = file;
  const FileDescriptor fd = open_file(file, O_RDONLY);
  journal.alive = is_locked(fd.get());
  if (!journal.alive) journal.results = parse_records(read_file(file)).results;
  return journal;
}

}  // namespace

std::string frame_record(const Results& results) {
  const std::string payload = encode(results);
  std::string record;
  record.reserve(kHeaderBytes + payload.size());
  append_word(record, static_cast<std::uint32_t>(payload.size()));
  append_word(record, checksum(payload));
  return record += payload;
}

Records parse_records(std::string_view bytes) {
  Records records;
  while (bytes.size() >= kHeaderBytes) {
    const std::size_t length = word(bytes);
    if (length > bytes.size() - kHeaderBytes) break;
    const std::string_view payload = bytes.substr(kHeaderBytes, length);
    if (checksum(payload) != word(bytes.substr(4))) break;
    auto message = decode(payload);
    if (!message || !std::holds_alternative<Results>(*message)) break;
    records.results.push_back(std::get<Results>(std::move(*message)));
    records.valid_bytes += kHeaderBytes + length;
    bytes.remove_prefix(kHeaderBytes + length);
  }
  return records;
}

std::vector<WorkerJournal> find_worker_journals(const std::filesystem::path& campaign) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(campaign / ".wflow" / "workers", error)) {
    if (entry.path().extension() == kSuffix) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<WorkerJournal> leftovers;
  for (const auto& file : files) {
    try {
      leftovers.push_back(read_worker_journal(file));
    } catch (const Error& gone) {
      // A worker that ends well removes its journal at any time.
      if (std::filesystem::exists(file, error)) throw;
    }
  }
  return leftovers;
}

}  // namespace wflow::engine::wire
