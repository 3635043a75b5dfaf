// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace wflow::converters {

// Makes the kernel read files into its cache before they are needed. A reader of many small files waits for
// one disk request after the other; threads of this class open the files ahead of it, so that several are
// read at once. The readers need no change. The number of files read ahead and their bytes are limited.
class ReadAhead {
 public:
  static constexpr std::size_t kWindow = 256;                           // items
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;  // limit of their bytes
  static constexpr std::uint64_t kMostOfFile = std::uint64_t{8}
                                               << 20;  // behind it the kernel's own way is as good

  // Items are needed in order. `files` returns the files of an item and runs on the threads. Files that
  // cannot be read are skipped: their reader reports the error.
  ReadAhead(std::size_t items, std::function<std::vector<std::filesystem::path>(std::size_t item)> files);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  // Tells that all items before this one are being read or have been read.
  void reached(std::size_t item);

 private:
  void work();
  bool is_full() const { return next_ >= reached_ + kWindow || bytes_ >= kMostBytes; }
  bool is_half_empty() const { return next_ <= reached_ + kWindow / 2 && bytes_ <= kMostBytes / 2; }

  const std::size_t items_;
  const std::function<std::vector<std::filesystem::path>(std::size_t)> files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t reached_ = 0;
  std::size_t next_ = 0;                        // the first item that no thread has taken
  std::uint64_t bytes_ = 0;                     // bytes of items from reached_ on
  std::array<std::uint64_t, kWindow> sizes_{};  // by item modulo kWindow
  bool filling_ = true;                         // false: the window is full, until half of it is done
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace wflow::converters
