// SPDX-License-Identifier: Apache-2.0
// Files that are either whole or not there: temporary name, fsync, rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace wflow {

// Owns a POSIX file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

// All throw wflow::Error with code `system` (or `data` where a file that should be there is not).

FileDescriptor open_file(const std::filesystem::path& path, int flags, int mode = 0644);
std::string read_file(const std::filesystem::path& path);
// Reads up to `bytes` from this place of the file; fewer where it ends there.
std::size_t read_at(int fd, std::uint64_t offset, void* into, std::size_t bytes,
                    const std::filesystem::path& path_for_messages);
void write_all(int fd, std::string_view bytes, const std::filesystem::path& path_for_messages);
void sync_directory(const std::filesystem::path& directory);

// Publishes `bytes` as `path`: other processes see the old file or the new one, never a part of it,
// and after the return the new one survives a power cut.
void write_file_durably(const std::filesystem::path& path, std::string_view bytes, int mode = 0644);

// Removes what killed writers left of files in this directory: of one, or (`name` empty) of all. Only where nobody writes.
void remove_temporaries(const std::filesystem::path& directory, std::string_view name = {});

// For files that a library writes by name (HDF5, libtorch): write to temporary(), then publish().
// The destructor removes an unpublished temporary. The temporary lies in the same directory.
class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path target);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();
  const std::filesystem::path& temporary() const { return temporary_; }
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool published_ = false;
};

// XXH3-128 of a file's bytes as 32 hex digits; the checksum of manifests and checkpoints.
std::string hash_file(const std::filesystem::path& path);
std::string hash_bytes(std::string_view bytes);

// create_directories with our message ("cannot create directory X: Permission denied").
void make_directories(const std::filesystem::path& path);

// The directory that relative paths begin at. Throws Error{system} where it has been removed.
std::filesystem::path current_directory();
std::filesystem::path absolute_path(const std::filesystem::path& path);

}  // namespace wflow
