// SPDX-License-Identifier: Apache-2.0
// When the batch allocation of this worker ends. Schedulers may move that end while it runs, and asking one
// may take half a minute: a process of its own asks, a child of the guardian, and leaves the answer in shared
// memory.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

namespace wflow::workers {

class EndWatch {
 public:
  using Ask = std::function<std::optional<double>()>;

  // `ends_unix_s`: what is known so far, 0 for nothing.
  explicit EndWatch(double ends_unix_s);
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;
  ~EndWatch();

  // Forks the process that asks, every `period_s`. It ends with this process.
  void start(const Ask& ask, double period_s);
  // 0: not known.
  double ends_unix_s() const { return *shared_; }

 private:
  std::atomic<double>* shared_ = nullptr;
};

}  // namespace wflow::workers
