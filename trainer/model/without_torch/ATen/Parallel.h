// SPDX-License-Identifier: Apache-2.0
// In place of libtorch's header in a build without libtorch: loops by OpenMP, where it is there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace at {

// Not inline: some of the sources that call them are compiled without OpenMP.
void set_num_threads(int threads);
int get_num_threads();

// Calls function(first, last) for parts of the range that are side by side, one a thread, of about `grain` or
// more. Inside of such a call, and for a short range, one call does all.
template <class Function>
void parallel_for(std::int64_t begin, std::int64_t end, [[maybe_unused]] std::int64_t grain,
                  const Function& function) {
  if (begin >= end) return;
#ifdef _OPENMP
  const std::int64_t count = end - begin;
  const std::int64_t most = (count + std::max<std::int64_t>(1, grain) - 1) / std::max<std::int64_t>(1, grain);
  const std::int64_t threads = std::min<std::int64_t>(get_num_threads(), most);
  if (threads > 1 && !omp_in_parallel()) {
    std::exception_ptr failure;
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      const std::int64_t share = (count + omp_get_num_threads() - 1) / omp_get_num_threads();
      const std::int64_t first = begin + omp_get_thread_num() * share;
      try {
        if (first < end) function(first, std::min(end, first + share));
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    return;
  }
#endif
  function(begin, end);
}

}  // namespace at
