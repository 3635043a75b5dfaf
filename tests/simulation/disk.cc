// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/disk.h"

#include <algorithm>
#include <utility>

namespace wflow::simulation {

namespace {

constexpr std::uint64_t kSector = 512;
constexpr std::uint64_t kPage = 4096;
constexpr double kFails = 0.7;  // part of the calls while a disk fails

// The kernel writes by itself what is older than this.
constexpr double kFlushAfterAtLeast_s = 5;
constexpr double kFlushAfterAtMost_s = 30;

// SQLite's levels of a lock.
enum : int { kNone = 0, kShared = 1, kReserved = 2, kPending = 3, kExclusive = 4 };

}  // namespace

std::size_t File::write(const std::string& host, std::uint64_t offset, std::string_view bytes) {
  if (disk_.full() && offset + bytes.size() > bytes_.size()) {
    // Keeps the part that fits into the last sector of the file.
    const std::uint64_t room = (bytes_.size() + kSector - 1) / kSector * kSector;
    ++disk_.refusals_;
    bytes = bytes.substr(0, room > offset ? std::min<std::uint64_t>(room - offset, bytes.size()) : 0);
  }
  if (bytes.empty()) return 0;
  changes_.push_back({host, disk_.now_s(), offset, std::string(bytes), false});
  apply(changes_.back(), bytes_);
  return bytes.size();
}

bool File::truncate(const std::string& host, std::uint64_t size) {
  if (disk_.fails(DiskCall::truncate)) return false;
  changes_.push_back({host, disk_.now_s(), size, {}, true});
  apply(changes_.back(), bytes_);
  return true;
}

bool File::sync() {
  if (disk_.fails(DiskCall::sync)) {
    drop_changes();
    return false;
  }
  for (const Change& change : changes_) apply(change, synced_);
  for (const Change& change : changes_) {
    for (const std::uint64_t page : pages_of(change)) {
      if (dropped_.erase(page) > 0) write_page(page);
    }
  }
  if (synced_.size() > bytes_.size()) synced_.resize(bytes_.size());  // by a truncation whose sync has failed
  changes_.clear();
  entry_synced_ = true;
  disk_.metadata_synced();
  return true;
}

std::set<std::uint64_t> File::pages_of(const Change& change) {
  std::set<std::uint64_t> pages;
  if (change.truncates) return pages;
  for (std::uint64_t page = change.offset / kPage; page * kPage < change.offset + change.bytes.size(); ++page)
    pages.insert(page);
  return pages;
}

// Writes the page as processes see it.
void File::write_page(std::uint64_t page) {
  const std::uint64_t begin = page * kPage;
  if (begin >= bytes_.size()) return;
  apply({{}, 0, begin, bytes_.substr(begin, kPage), false}, synced_);
}

// Each page by itself is written or not. A truncation is: the journal of the file system has it.
void File::drop_changes() {
  std::map<std::uint64_t, std::string> pages;
  for (const Change& change : changes_) {
    if (change.truncates && change.offset < synced_.size()) synced_.resize(change.offset);
    for (const std::uint64_t page : pages_of(change)) pages[page] = change.host;
  }
  for (auto& [page, host] : pages) {
    if (disk_.draw_.chance(0.5)) {
      write_page(page);
      dropped_.erase(page);
    } else {
      dropped_[page] = std::move(host);
      disk_.faults_.count(Fault::page_dropped);
    }
  }
  changes_.clear();
}

void File::apply(const Change& change, std::string& image) const {
  if (change.truncates) {
    image.resize(change.offset);
    return;
  }
  if (image.size() < change.offset + change.bytes.size()) image.resize(change.offset + change.bytes.size());
  image.replace(change.offset, change.bytes.size(), change.bytes);
}

// Some of its sectors, each by itself.
void File::apply_torn(const Change& change, std::string& image, Draw& draw) const {
  std::uint64_t at = 0;
  while (at < change.bytes.size()) {
    const std::uint64_t sector_end = ((change.offset + at) / kSector + 1) * kSector;
    const std::uint64_t length = std::min(change.bytes.size() - at, sector_end - (change.offset + at));
    if (draw.chance(0.5)) apply({{}, 0, change.offset + at, change.bytes.substr(at, length), false}, image);
    at += length;
  }
}

void File::crash(const std::string& host, double flushed_s, Draw& draw, FaultCounts& faults) {
  // Pages that a failed sync left in the cache of another host are still seen.
  std::erase_if(dropped_, [&](const auto& dropped) { return dropped.second == host; });
  if (changes_.empty() && dropped_.empty() && bytes_ == synced_) return;
  // How much of what was under way reached the disk: nothing, the first changes, or any of them, torn.
  const std::uint64_t manner = draw.below(4);
  const std::uint64_t kept = manner == 0 ? 0 : draw.below(changes_.size() + 1);
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const Change& change = changes_[i];
    if (change.host != host || change.time_s <= flushed_s || (manner == 1 && i < kept)) {
      apply(change, synced_);
    } else if (manner >= 2 && draw.chance(0.7)) {
      if (change.truncates || draw.chance(0.5)) {
        apply(change, synced_);
      } else {
        apply_torn(change, synced_, draw);
        faults.count(Fault::write_torn);
      }
    } else {
      faults.count(Fault::write_lost);
    }
  }
  changes_.clear();
  const std::string seen = std::exchange(bytes_, synced_);
  for (const auto& [page, cached_by] : dropped_) {
    const std::uint64_t begin = page * kPage;
    if (begin < seen.size()) apply({{}, 0, begin, seen.substr(begin, kPage), false}, bytes_);
  }
}

bool File::lock(const std::string& host, std::uint64_t owner, int level) {
  for (const auto& [other, held] : locks_) {
    if (other == owner || (disk_.locks_on_one_host_ && held.host != host)) continue;
    const bool clash = level == kShared     ? held.level >= kPending
                       : level == kReserved ? held.level >= kReserved
                                            : held.level >= kShared;
    if (clash) return false;
  }
  Lock& own = locks_[owner];
  own = {host, std::max(own.level, level)};
  return true;
}

void File::unlock(std::uint64_t owner, int level) {
  if (level == kNone) {
    locks_.erase(owner);
  } else if (const auto own = locks_.find(owner); own != locks_.end()) {
    own->second.level = std::min(own->second.level, level);
  }
}

bool File::reserved() const {
  return std::any_of(locks_.begin(), locks_.end(),
                     [](const auto& lock) { return lock.second.level >= kReserved; });
}

bool Disk::fails(DiskCall call) {
  if (now_s_ >= failing_until_s_[static_cast<std::size_t>(call)] || !draw_.chance(kFails)) return false;
  constexpr std::array<Fault, kDiskCalls> kKinds = {Fault::sync_failed, Fault::truncation_failed,
                                                    Fault::lock_failed};
  faults_.count(kKinds[static_cast<std::size_t>(call)]);
  ++refusals_;
  return true;
}

std::shared_ptr<File> Disk::find(const std::string& path) const {
  const auto at = files_.find(path);
  return at == files_.end() ? nullptr : at->second;
}

std::shared_ptr<File> Disk::create(const std::string& path, const std::string& host) {
  auto& file = files_[path];
  if (file) return file;
  file = std::make_shared<File>(*this, host, now_s_);
  std::erase_if(removed_, [&](const Removed& removed) { return removed.path == path; });
  return file;
}

void Disk::put(const std::string& path, std::string_view bytes) {
  const auto file = create(path, {});
  file->bytes_ = bytes;
  file->synced_ = bytes;
  file->entry_synced_ = true;
}

void Disk::remove(const std::string& path, const std::string& host, bool synced) {
  const auto at = files_.find(path);
  if (at == files_.end()) return;
  if (!synced) removed_.push_back({path, host, now_s_, at->second});
  files_.erase(at);
}

// Changes of directories reach the disk in their order, and before anything that is synced after them.
void Disk::metadata_synced() {
  removed_.clear();
}

std::vector<std::string> Disk::list(std::string_view prefix) const {
  std::vector<std::string> found;
  for (auto at = files_.lower_bound(std::string(prefix)); at != files_.end() && at->first.starts_with(prefix);
       ++at)
    found.push_back(at->first);
  return found;
}

void Disk::crash(const std::string& host, Draw& draw, FaultCounts& faults) {
  const double flushed_s = now_s_ - draw.between(kFlushAfterAtLeast_s, kFlushAfterAtMost_s);
  for (const Removed& removed : removed_) {
    const bool undone = removed.host == host && removed.time_s > flushed_s && draw.chance(0.5);
    if (undone && !files_.contains(removed.path)) files_[removed.path] = removed.file;
  }
  std::erase_if(removed_, [&](const Removed& removed) { return removed.host == host; });
  for (auto at = files_.begin(); at != files_.end();) {
    File& file = *at->second;
    file.crash(host, flushed_s, draw, faults);
    const bool unknown = !file.entry_synced_ && file.creator_ == host && file.created_s_ > flushed_s;
    at = unknown && draw.chance(0.5) ? files_.erase(at) : std::next(at);
  }
}

}  // namespace wflow::simulation
