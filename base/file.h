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

// All throw wflow::Error with code `system` (or `data` if a required file is missing).

FileDescriptor open_file(const std::filesystem::path& path, int flags, int mode = 0644);
std::string read_file(const std::filesystem::path& path);
// Reads up to `bytes` bytes at `offset`; fewer at the end of the file.
std::size_t read_at(int fd, std::uint64_t offset, void* into, std::size_t bytes,
                    const std::filesystem::path& path_for_messages);
void write_all(int fd, std::string_view bytes, const std::filesystem::path& path_for_messages);
void sync_directory(const std::filesystem::path& directory);

// Replaces `path` by a file with these bytes: other processes see the old file or the new one, never a part
// of it, and after the return the new one survives a power cut.
void write_file_durably(const std::filesystem::path& path, std::string_view bytes, int mode = 0644);

// Removes the temporaries of killed writers in this directory: for one file, or (`name` empty) for all. The
// caller ensures that no process writes there.
void remove_temporaries(const std::filesystem::path& directory, std::string_view name = {});

// For files that a library writes by name (HDF5, libtorch): write to temporary(), then publish().
// The destructor removes an unpublished temporary. The temporary is in the same directory.
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

// create_directories with this message ("cannot create directory X: Permission denied").
void make_directories(const std::filesystem::path& path);

// The working directory. Throws Error{system} if it has been removed.
std::filesystem::path current_directory();
std::filesystem::path absolute_path(const std::filesystem::path& path);

// The part of a temporary's name that follows the name of its file: process and host.
std::string temporary_mark();

// Removes the temporaries of ended processes from this directory: for one file, or (`name` empty) for all.
// Whether a process of another host lives is unknown: its temporaries are removed when they are a day old.
void remove_left_files(const std::filesystem::path& directory, std::string_view name = {});

// True if the path names a device, a pipe or a socket, or is in /dev or /proc (/dev/stdout is a link to the
// file of standard output). A user may name such a file as an output, but no rename may replace it. False if
// it does not exist.
bool is_special_file(const std::filesystem::path& path);

// Writes into it, as `>` of a shell does. Standard output is written through its descriptor.
void write_special_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace wflow
