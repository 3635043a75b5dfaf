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

// Has the kernel read files into its cache before they are wanted. A reader of many small files waits for one
// disk request after the other; threads of this class open the files ahead of it, so that several are under
// way. The readers need no change. The number of files read ahead and their bytes are limited.
class ReadAhead {
 public:
  static constexpr std::size_t kWindow = 256;                           // items
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;  // of them
  static constexpr std::uint64_t kMostOfFile = std::uint64_t{8}
                                               << 20;  // behind it the kernel's own way is as good

  // Items are wanted in order. `files` tells those of one, on the threads; a file that can't be read is left
  // to who wants it.
  ReadAhead(std::size_t items, std::function<std::vector<std::filesystem::path>(std::size_t item)> files);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  // All items before this one are being read, or have been.
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
  std::size_t next_ = 0;                        // the first that no thread has taken
  std::uint64_t bytes_ = 0;                     // of items from reached_ on
  std::array<std::uint64_t, kWindow> sizes_{};  // by item modulo kWindow
  bool filling_ = true;                         // else the window is full, and stays until half of it is done
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace wflow::converters
