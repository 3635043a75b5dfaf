// SPDX-License-Identifier: Apache-2.0
#include "converters/input/read_ahead.h"

#include <atomic>
#include <future>
#include <stdexcept>

#include "converters/convert/test_support.h"

namespace wflow::converters {
namespace {

class ReadAheadTest : public FolderTest {};

TEST_F(ReadAheadTest, StaysWithinItsWindow) {
  constexpr std::size_t kItems = 3 * ReadAhead::kWindow;
  std::atomic<std::size_t> asked = 0;
  std::atomic<std::size_t> furthest = 0;
  std::promise<void> first_window;
  std::promise<void> all;
  ReadAhead ahead(kItems, [&](std::size_t item) {
    for (std::size_t seen = furthest; item > seen && !furthest.compare_exchange_weak(seen, item);) {
    }
    const std::size_t count = ++asked;
    if (count == ReadAhead::kWindow) first_window.set_value();
    if (count == kItems) all.set_value();
    return std::vector<fs::path>{folder_ / "none", folder_};  // no file, and a folder
  });
  first_window.get_future().wait();
  EXPECT_EQ(furthest, ReadAhead::kWindow - 1);
  for (std::size_t item = 1; item <= kItems; ++item) {
    ahead.reached(item);
    EXPECT_LT(furthest, item + ReadAhead::kWindow);
    if (asked < kItems && item > kItems - ReadAhead::kWindow) break;
  }
}

TEST_F(ReadAheadTest, WaitsWhereItHoldsManyBytes) {
  const fs::path file = folder_ / "large";
  write_file_durably(file, "x");
  fs::resize_file(file, 2 * ReadAhead::kMostOfFile);  // a hole: no read
  constexpr std::size_t kFits = ReadAhead::kMostBytes / ReadAhead::kMostOfFile;
  std::atomic<std::size_t> asked = 0;
  std::promise<void> full;
  std::promise<void> more;
  ReadAhead ahead(ReadAhead::kWindow, [&](std::size_t) {
    const std::size_t count = ++asked;
    if (count == kFits) full.set_value();
    if (count == 2 * kFits) more.set_value();
    return std::vector<fs::path>{file};
  });
  full.get_future().wait();
  EXPECT_LT(asked, 2 * kFits);  // each thread may have begun one more
  ahead.reached(2 * kFits);
  more.get_future().wait();
}

TEST_F(ReadAheadTest, WhoIsOvertakenGoesOnBehind) {
  std::promise<void> last;
  ReadAhead ahead(1000, [&](std::size_t item) -> std::vector<fs::path> {
    if (item == 999) last.set_value();
    throw std::runtime_error("of a sample that can't be read");
  });
  ahead.reached(900);
  last.get_future().wait();
  ahead.reached(1000);
}

}  // namespace
}  // namespace wflow::converters
