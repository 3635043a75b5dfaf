// SPDX-License-Identifier: Apache-2.0
#include "base/page_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace wflow {
namespace {

constexpr std::size_t kLeastPlace = std::size_t{1} << 16;
constexpr std::size_t kSlotsAtOnce = 64;

// The part of a place that fills whole blocks of `size` bytes.
std::span<std::byte> whole_blocks(std::span<float> place, std::size_t size) {
  const auto bytes = std::as_writable_bytes(place);
  if (bytes.size() < kLeastPlace) return {};
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::size_t begin = std::min(bytes.size(), (size - address % size) % size);
  return bytes.subspan(begin, (bytes.size() - begin) / size * size);
}

std::size_t page() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

void* map(void* at, std::size_t bytes, int more) {
  return ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
}

// Both addresses stay mapped, so that no other thread gets them. Fails before Linux 5.7.
bool move_pages(std::byte* from, std::byte* to, std::size_t bytes) {
  return ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != MAP_FAILED;
}

// A failure is no error: the pages stay.
void give_back(std::span<std::byte> pages) {
  if (!pages.empty()) ::madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

}  // namespace

void give_back_pages(std::span<float> place) {
  give_back(whole_blocks(place, page()));
}

void clear_place(std::span<float> place) {
  const std::span<std::byte> bytes = std::as_writable_bytes(place);
  const std::span<std::byte> pages = whole_blocks(place, page());
  const std::size_t before =
      pages.empty() ? bytes.size() : static_cast<std::size_t>(pages.data() - bytes.data());
  give_back(pages);
  std::ranges::fill(bytes.first(before), std::byte{});
  std::ranges::fill(bytes.subspan(before + pages.size()), std::byte{});
}

PagePool::~PagePool() {
  for (std::byte* chunk : reserved_) ::munmap(chunk, kSlotsAtOnce * kUnit);
}

void PagePool::lend(std::span<float> place) {
  const std::span<std::byte> whole = whole_blocks(place, kUnit);
  const std::lock_guard lock(mutex_);
  for (std::size_t at = 0; at < whole.size() && !units_.empty(); at += kUnit) {
    std::byte* unit = units_.back();
    // Otherwise the place keeps the memory that it has.
    if (!move_pages(unit, whole.data() + at, kUnit)) return;
    units_.pop_back();
    slots_.push_back(unit);
  }
}

void PagePool::take_back(std::span<float> place) {
  const std::span<std::byte> pages = whole_blocks(place, page());
  if (pages.empty()) return;
  const std::span<std::byte> whole = whole_blocks(place, kUnit);
  std::size_t moved = 0;
  {
    const std::lock_guard lock(mutex_);
    for (; moved < whole.size(); moved += kUnit) {
      std::byte* slot = empty_slot();
      if (slot == nullptr || !move_pages(whole.data() + moved, slot, kUnit)) break;
      slots_.pop_back();
      units_.push_back(slot);
    }
  }
  // One mapping in place of those of the units: a process may have 65,530.
  if (moved > 0) map(whole.data(), moved, MAP_FIXED);
  if (moved == 0) return give_back(pages);
  const auto before = static_cast<std::size_t>(whole.data() - pages.data());
  give_back(pages.first(before));
  give_back(pages.subspan(before + moved));
}

// The last of `slots_`, which has one at least; null if the system has no more addresses.
std::byte* PagePool::empty_slot() {
  if (slots_.empty()) {
    void* chunk = map(nullptr, kSlotsAtOnce * kUnit, MAP_NORESERVE);
    if (chunk == MAP_FAILED) return nullptr;
    reserved_.push_back(static_cast<std::byte*>(chunk));
    for (std::size_t i = kSlotsAtOnce; i-- > 0;) slots_.push_back(reserved_.back() + i * kUnit);
  }
  return slots_.back();
}

}  // namespace wflow
