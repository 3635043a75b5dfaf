// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <cstddef>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

namespace wflow {

int try_threads(int count) {
  std::latch all(count);  // a thread that has ended no longer counts against the limit
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&all] { all.arrive_and_wait(); });
  } catch (const std::system_error& error) {
    all.count_down(count - static_cast<std::ptrdiff_t>(threads.size()));
    return error.code().value();
  }
  return 0;
}

}  // namespace wflow
