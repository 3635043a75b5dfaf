// SPDX-License-Identifier: Apache-2.0
// Makes items on several threads and takes them in order on the calling thread, with a bound on their number.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace wflow::converters {

// Calls make(worker, i) for i = 0..count-1 on `threads` threads, and take(i, item) in order of i on this
// thread. At most 2 * threads items are made and not yet taken. The first exception of either stops all
// threads and is thrown here.
template <typename Item, typename Make, typename Take>
void ordered_parallel(std::size_t count, std::size_t threads, Make make, Take take) {
  const std::size_t window = 2 * threads;
  std::mutex mutex;
  std::condition_variable has_room;  // a thread waits for it
  std::condition_variable has_item;  // the calling thread waits for it
  std::vector<std::optional<Item>> slots(window);
  std::exception_ptr failure;
  std::size_t started = 0;
  std::size_t taken = 0;

  const auto work = [&](std::size_t worker) {
    for (;;) {
      std::unique_lock lock(mutex);
      has_room.wait(lock, [&] { return failure || started == count || started < taken + window; });
      if (failure || started == count) return;
      const std::size_t i = started++;
      lock.unlock();
      try {
        Item item = make(worker, i);
        lock.lock();
        slots[i % window] = std::move(item);
        if (i != taken) continue;  // not the next item
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!failure) failure = std::current_exception();
        has_room.notify_all();
      }
      has_item.notify_one();
    }
  };

  const auto take_all = [&] {
    for (std::size_t i = 0; i < count; ++i) {
      std::unique_lock lock(mutex);
      has_item.wait(lock, [&] { return failure || slots[i % window].has_value(); });
      if (failure) return;
      Item item = std::move(*slots[i % window]);
      slots[i % window].reset();
      lock.unlock();
      take(i, std::move(item));
      lock.lock();
      ++taken;
      // Wakes one thread: it takes the next item and waits again.
      has_room.notify_one();
    }
    const std::lock_guard lock(mutex);
    has_room.notify_all();  // no more items to make
  };

  std::vector<std::jthread> workers;
  try {
    for (std::size_t worker = 0; worker < threads; ++worker) workers.emplace_back(work, worker);
    take_all();
  } catch (...) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    has_room.notify_all();
  }
  workers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace wflow::converters
