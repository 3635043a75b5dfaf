// SPDX-License-Identifier: Apache-2.0
#include "converters/shards/shared_chunks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <new>
#include <random>
#include <utility>

#include "base/error.h"

namespace wflow::converters {

enum class SlotState : std::uint32_t { free, filling, filled };

// All of it is read and written under the lock, except for the bytes of a slot, which its users have to
// themselves.
struct SharedChunks::Slot {
  std::uint64_t key = 0;
  std::uint64_t last_use = 0;
  std::uint32_t users = 0;
  SlotState state = SlotState::free;
};

struct SharedChunks::Header {
  std::uint64_t token = 0;  // a process id may name another process in another container
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t uses = 0;
  std::atomic<std::uint32_t> locked = 0;
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);  // required between processes
};

namespace {

constexpr std::size_t kPage = 4096;

std::size_t pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

// Held for some instructions only.
class SharedChunks::Lock {
 public:
  explicit Lock(Header& header) : header_(header) {
    while (header_.locked.exchange(1, std::memory_order_acquire) != 0) ::sched_yield();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { header_.locked.store(0, std::memory_order_release); }

 private:
  Header& header_;
};

SharedChunks::Chunk& SharedChunks::Chunk::operator=(Chunk&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  store_ = std::exchange(other.store_, nullptr);
  slot_ = other.slot_;
  is_empty_ = other.is_empty_;
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

void SharedChunks::Chunk::fill() {
  WFLOW_CHECK(store_ != nullptr && is_empty_);
  is_empty_ = false;
  const Lock lock(*store_->header_);
  store_->slot(slot_).state = SlotState::filled;
}

void SharedChunks::Chunk::let_go() {
  if (store_ == nullptr) return;
  const Lock lock(*store_->header_);
  Slot& slot = store_->slot(slot_);
  --slot.users;
  if (is_empty_) slot.state = SlotState::free;
  store_ = nullptr;
}

SharedChunks::~SharedChunks() {
  if (header_ != nullptr) ::munmap(header_, mapped_bytes_);
}

std::unique_ptr<SharedChunks> SharedChunks::map(FileDescriptor memory, std::size_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::unique_ptr<SharedChunks> chunks(new SharedChunks(std::move(memory), bytes));
  chunks->header_ = static_cast<Header*>(mapped);
  return chunks;
}

std::unique_ptr<SharedChunks> SharedChunks::make(std::size_t slots, std::size_t slot_bytes) {
  FileDescriptor memory(::memfd_create("wflow-chunks", MFD_CLOEXEC));
  if (!memory) return nullptr;
  const std::size_t bytes = pages(sizeof(Header) + slots * sizeof(Slot)) + slots * pages(slot_bytes);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) return nullptr;
  auto chunks = map(std::move(memory), bytes);
  if (!chunks) return nullptr;
  new (chunks->header_) Header;
  std::random_device random;
  chunks->header_->token = (std::uint64_t{random()} << 32) | random();
  chunks->header_->slots = slots;
  chunks->header_->slot_bytes = slot_bytes;
  for (std::size_t number = 0; number < slots; ++number) new (&chunks->slot(number)) Slot;
  return chunks;
}

std::string SharedChunks::name() const {
  return fmt::format("{}/{}/{}", ::getpid(), memory_.get(), header_->token);
}

std::unique_ptr<SharedChunks> SharedChunks::open(const std::string& name) {
  long process = 0;
  int descriptor = 0;
  std::uint64_t token = 0;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), end, process);
  if (first.ec != std::errc() || first.ptr == end) return nullptr;
  const auto second = std::from_chars(first.ptr + 1, end, descriptor);
  if (second.ec != std::errc() || second.ptr == end) return nullptr;
  if (std::from_chars(second.ptr + 1, end, token).ec != std::errc()) return nullptr;
  FileDescriptor memory(
      ::open(fmt::format("/proc/{}/fd/{}", process, descriptor).c_str(), O_RDWR | O_CLOEXEC));
  struct stat status = {};
  if (!memory || ::fstat(memory.get(), &status) != 0 || status.st_size < static_cast<off_t>(sizeof(Header)))
    return nullptr;
  auto chunks = map(std::move(memory), static_cast<std::size_t>(status.st_size));
  return chunks && chunks->header_->token == token ? std::move(chunks) : nullptr;
}

std::size_t SharedChunks::slots() const {
  return header_->slots;
}

std::size_t SharedChunks::slot_bytes() const {
  return header_->slot_bytes;
}

SharedChunks::Slot& SharedChunks::slot(std::size_t number) const {
  return reinterpret_cast<Slot*>(header_ + 1)[number];
}

SharedChunks::Slot* SharedChunks::find(std::uint64_t key) const {
  for (std::size_t number = 0; number < slots(); ++number) {
    Slot& found = slot(number);
    if (found.state != SlotState::free && found.key == key) return &found;
  }
  return nullptr;
}

// Null if all are in use.
SharedChunks::Slot* SharedChunks::least_recent() const {
  Slot* least = nullptr;
  for (std::size_t number = 0; number < slots(); ++number) {
    Slot& unused = slot(number);
    if (unused.users > 0) continue;
    if (unused.state == SlotState::free) return &unused;
    if (least == nullptr || unused.last_use < least->last_use) least = &unused;
  }
  return least;
}

void SharedChunks::hand_out(Slot& found, std::size_t bytes, bool is_empty, Chunk& chunk) {
  ++found.users;
  found.last_use = ++header_->uses;
  chunk.store_ = this;
  chunk.slot_ = static_cast<std::size_t>(&found - &slot(0));
  chunk.is_empty_ = is_empty;
  auto* const begin = reinterpret_cast<std::uint8_t*>(header_) +
                      pages(sizeof(Header) + slots() * sizeof(Slot)) + chunk.slot_ * pages(slot_bytes());
  chunk.bytes_ = {begin, bytes};
}

SharedChunks::Found SharedChunks::take(std::uint64_t key, std::size_t bytes, Chunk& chunk) {
  chunk.let_go();
  if (bytes > slot_bytes()) return Found::full;
  const Lock lock(*header_);
  if (Slot* const known = find(key)) {
    if (known->state == SlotState::filling) return Found::busy;
    hand_out(*known, bytes, false, chunk);
    return Found::decoded;
  }
  Slot* const unused = least_recent();
  if (unused == nullptr) return Found::full;
  unused->key = key;
  unused->state = SlotState::filling;
  hand_out(*unused, bytes, true, chunk);
  return Found::empty;
}

}  // namespace wflow::converters
