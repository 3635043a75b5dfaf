// SPDX-License-Identifier: Apache-2.0
// Decoded chunks in memory that several processes of a machine share: each chunk is decoded by one of them,
// and read by all that need it. A store of recent chunks, without a promise: a process that does not find a
// chunk decodes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"

namespace wflow::converters {

class SharedChunks {
 public:
  // A chunk in the shared memory: it stays there as long as this object lives.
  class Chunk {
   public:
    Chunk() = default;
    Chunk(Chunk&& other) noexcept { *this = std::move(other); }
    Chunk& operator=(Chunk&& other) noexcept;
    Chunk(const Chunk&) = delete;
    Chunk& operator=(const Chunk&) = delete;
    ~Chunk() { let_go(); }
    std::span<std::uint8_t> bytes() const { return bytes_; }
    // The owner of an `empty` chunk has filled it: others may read it.
    void fill();

   private:
    friend class SharedChunks;
    void let_go();  // an empty chunk that was not filled is forgotten
    SharedChunks* store_ = nullptr;
    std::size_t slot_ = 0;
    bool is_empty_ = false;
    std::span<std::uint8_t> bytes_;
  };

  enum class Found {
    decoded,  // `chunk` has the bytes
    empty,    // `chunk` is to be filled by this process; until then it must not wait for another one
    busy,     // another thread or process fills it now
    full      // all memory is in use: this process decodes the chunk for itself
  };

  // New memory for `slots` chunks of at most `slot_bytes`, which other processes open by its name as long as
  // this object lives. It disappears with the last process. Nothing if the system gives none.
  static std::unique_ptr<SharedChunks> make(std::size_t slots, std::size_t slot_bytes);
  // The memory of another process; nothing if it can't be opened from here, as on another machine.
  static std::unique_ptr<SharedChunks> open(const std::string& name);
  SharedChunks(const SharedChunks&) = delete;
  SharedChunks& operator=(const SharedChunks&) = delete;
  ~SharedChunks();

  std::string name() const;
  std::size_t slots() const;
  std::size_t slot_bytes() const;

  // `bytes`: of the decoded chunk. Thread-safe, and so is all that a chunk does.
  Found take(std::uint64_t key, std::size_t bytes, Chunk& chunk);

 private:
  struct Header;
  struct Slot;
  class Lock;
  SharedChunks(FileDescriptor memory, std::size_t mapped)
      : memory_(std::move(memory)), mapped_bytes_(mapped) {}
  static std::unique_ptr<SharedChunks> map(FileDescriptor memory, std::size_t bytes);
  Slot& slot(std::size_t number) const;
  Slot* find(std::uint64_t key) const;
  Slot* least_recent() const;
  void hand_out(Slot& slot, std::size_t bytes, bool is_empty, Chunk& chunk);

  FileDescriptor memory_;
  std::size_t mapped_bytes_ = 0;
  Header* header_ = nullptr;
};

}  // namespace wflow::converters
