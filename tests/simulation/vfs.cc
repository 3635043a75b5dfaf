// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/vfs.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"

namespace wflow::simulation {

namespace {

constexpr int kMaxPath = 512;

// SQLite allocates it, as an sqlite3_file whose first member is the table of functions.
struct OpenFile {
  sqlite3_file base{};
  Vfs* vfs = nullptr;
  std::shared_ptr<File> file;
  std::shared_ptr<DiskUser> user;
  std::uint64_t owner = 0;
  int level = 0;
  std::string remove_at_close;
};

OpenFile& of(sqlite3_file* file) {
  return *reinterpret_cast<OpenFile*>(file);
}

Vfs& of(sqlite3_vfs* vfs) {
  return *static_cast<Vfs*>(vfs->pAppData);
}

int close_file(sqlite3_file* base) {
  OpenFile& open = of(base);
  open.file->unlock(open.owner, SQLITE_LOCK_NONE);
  if (!open.remove_at_close.empty()) open.vfs->disk().remove(open.remove_at_close, open.user->host, true);
  std::destroy_at(&open);
  return SQLITE_OK;
}

int read_file(sqlite3_file* base, void* into, int amount, sqlite3_int64 offset) {
  const OpenFile& open = of(base);
  if (open.user->dead) return SQLITE_IOERR_READ;
  const std::string& bytes = open.file->bytes();
  const auto at = std::min(static_cast<std::size_t>(offset), bytes.size());
  const auto length = std::min(static_cast<std::size_t>(amount), bytes.size() - at);
  std::memcpy(into, bytes.data() + at, length);
  if (length == static_cast<std::size_t>(amount)) return SQLITE_OK;
  std::memset(static_cast<char*>(into) + length, 0, static_cast<std::size_t>(amount) - length);
  return SQLITE_IOERR_SHORT_READ;
}

int write_file(sqlite3_file* base, const void* from, int amount, sqlite3_int64 offset) {
  const OpenFile& open = of(base);
  if (!open.user->may_change()) return SQLITE_IOERR_WRITE;
  const std::string_view bytes(static_cast<const char*>(from), static_cast<std::size_t>(amount));
  const std::size_t written = open.file->write(open.user->host, static_cast<std::uint64_t>(offset), bytes);
  return written == bytes.size() ? SQLITE_OK : SQLITE_FULL;
}

int truncate_file(sqlite3_file* base, sqlite3_int64 size) {
  const OpenFile& open = of(base);
  if (!open.user->may_change()) return SQLITE_IOERR_TRUNCATE;
  return open.file->truncate(open.user->host, static_cast<std::uint64_t>(size)) ? SQLITE_OK
                                                                                : SQLITE_IOERR_TRUNCATE;
}

int sync_file(sqlite3_file* base, int) {
  const OpenFile& open = of(base);
  if (!open.user->may_change()) return SQLITE_IOERR_FSYNC;
  if (open.user->ignores_syncs) return SQLITE_OK;
  return open.file->sync() ? SQLITE_OK : SQLITE_IOERR_FSYNC;
}

int file_size(sqlite3_file* base, sqlite3_int64* size) {
  const OpenFile& open = of(base);
  if (open.user->dead) return SQLITE_IOERR_FSTAT;
  *size = static_cast<sqlite3_int64>(open.file->bytes().size());
  return SQLITE_OK;
}

int lock_file(sqlite3_file* base, int level) {
  OpenFile& open = of(base);
  if (open.user->dead) return SQLITE_IOERR_LOCK;
  if (level <= open.level) return SQLITE_OK;
  if (open.vfs->disk().fails(DiskCall::lock)) return SQLITE_IOERR_LOCK;
  if (!open.user->ignores_locks && !open.file->lock(open.user->host, open.owner, level)) return SQLITE_BUSY;
  open.level = level;
  return SQLITE_OK;
}

int unlock_file(sqlite3_file* base, int level) {
  OpenFile& open = of(base);
  open.file->unlock(open.owner, level);
  open.level = std::min(open.level, level);
  return SQLITE_OK;
}

int check_reserved(sqlite3_file* base, int* reserved) {
  *reserved = of(base).file->reserved() ? 1 : 0;
  return SQLITE_OK;
}

int control_file(sqlite3_file*, int, void*) {
  return SQLITE_NOTFOUND;
}

int sector_size(sqlite3_file*) {
  return 4096;  // what SQLite takes it to be on Unix
}

int characteristics(sqlite3_file*) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;  // as on Unix: a torn write leaves its neighbours alone
}

// Version 1: without shared memory, as the store uses it.
const sqlite3_io_methods kMethods = {
    1,         close_file,  read_file,      write_file,   truncate_file, sync_file,       file_size,
    lock_file, unlock_file, check_reserved, control_file, sector_size,   characteristics, nullptr,
    nullptr,   nullptr,     nullptr,        nullptr,      nullptr};

int open_file(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* base, int flags, int* out_flags) {
  base->pMethods = nullptr;
  Vfs& self = of(vfs);
  if (self.user()->dead) return SQLITE_CANTOPEN;
  const std::uint64_t owner = self.next_owner();
  const std::string path = name != nullptr ? name : "temporary-" + std::to_string(owner);
  std::shared_ptr<File> file = self.disk().find(path);
  if (!file && (flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
  if (!file) {
    if (!self.user()->may_change()) return SQLITE_CANTOPEN;
    file = self.disk().create(path, self.user()->host);
  }
  OpenFile* const open = std::construct_at(reinterpret_cast<OpenFile*>(base));
  open->vfs = &self;
  open->file = std::move(file);
  open->user = self.user();
  open->owner = owner;
  if ((flags & SQLITE_OPEN_DELETEONCLOSE) != 0) open->remove_at_close = path;
  base->pMethods = &kMethods;
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int delete_file(sqlite3_vfs* vfs, const char* name, int sync_directory) {
  Vfs& self = of(vfs);
  if (!self.user()->may_change()) return SQLITE_IOERR_DELETE;
  if (!self.disk().find(name)) return SQLITE_IOERR_DELETE_NOENT;
  self.disk().remove(name, self.user()->host, sync_directory != 0);
  return SQLITE_OK;
}

int access_file(sqlite3_vfs* vfs, const char* name, int, int* result) {
  const std::shared_ptr<File> file = of(vfs).disk().find(name);
  *result = file && !file->bytes().empty() ? 1 : 0;  // as on Unix
  return SQLITE_OK;
}

int full_path(sqlite3_vfs*, const char* name, int size, char* out) {
  return sqlite3_snprintf(size, out, "%s", name) != nullptr ? SQLITE_OK : SQLITE_CANTOPEN;
}

int randomness(sqlite3_vfs* vfs, int size, char* out) {
  for (int at = 0; at < size; at += 8) {
    const std::uint64_t bits = of(vfs).next_random();
    std::memcpy(out + at, &bits, static_cast<std::size_t>(std::min(8, size - at)));
  }
  return size;
}

int sleep_for(sqlite3_vfs*, int microseconds) {
  return microseconds;
}

int current_time(sqlite3_vfs*, double* days) {
  *days = 2460000.5;
  return SQLITE_OK;
}

int last_error(sqlite3_vfs*, int, char*) {
  return 0;
}

}  // namespace

bool DiskUser::may_change() {
  if (!dead && changes_left) {
    if (*changes_left == 0) dead = true;
    --*changes_left;
  }
  return !dead;
}

Vfs::Vfs() : vfs_(std::make_unique<sqlite3_vfs>()) {
  *vfs_ = {};
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(OpenFile);
  vfs_->mxPathname = kMaxPath;
  vfs_->zName = kName;
  vfs_->pAppData = this;
  vfs_->xOpen = open_file;
  vfs_->xDelete = delete_file;
  vfs_->xAccess = access_file;
  vfs_->xFullPathname = full_path;
  vfs_->xRandomness = randomness;
  vfs_->xSleep = sleep_for;
  vfs_->xCurrentTime = current_time;
  vfs_->xGetLastError = last_error;
  // The default, so that SQLite's own random numbers come from here, too.
  WFLOW_CHECK(sqlite3_vfs_register(vfs_.get(), 1) == SQLITE_OK);
}

Vfs::~Vfs() {
  sqlite3_vfs_unregister(vfs_.get());
}

void Vfs::restart(std::uint64_t seed) {
  random_seed_ = seed;
  randoms_ = 0;
  owners_ = 0;
  sqlite3_randomness(0, nullptr);  // its next number starts from ours
}

void Vfs::use(Disk* disk, std::shared_ptr<DiskUser> user) {
  disk_ = disk;
  user_ = std::move(user);
}

}  // namespace wflow::simulation
