// SPDX-License-Identifier: Apache-2.0
// A folder that is either whole or not there, and files written in it from front to back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace wflow::converters {

// Write below path(), then publish(). The destructor removes what was not published; what a killed process
// left is removed by the next one that writes the same folder.
class NewFolder {
 public:
  // Error{usage} where the target exists, or another process writes it.
  explicit NewFolder(std::filesystem::path target);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  const std::filesystem::path& path() const { return temporary_; }
  // All that is below is brought to the disk, then the folder takes its name.
  void publish();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  FileDescriptor lock_;
  bool published_ = false;
};

// Error{system} where the disk refuses.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  void write(std::span<const std::uint8_t> bytes);
  void write(std::string_view bytes);
  // Gives all to the system. What is not closed is not written.
  void close();

 private:
  void flush();
  std::filesystem::path path_;
  FileDescriptor fd_;
  std::string buffer_;
};

}  // namespace wflow::converters
