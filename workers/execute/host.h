// SPDX-License-Identifier: Apache-2.0
// What this host gives the worker: processors, memory, limits (`ulimit`), and a disk that takes writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::workers {

// The processors that this process may use: at least one.
std::vector<int> usable_cpus();
int usable_cores();

// The memory that this process and its children may use: the host's, or less if a control group or
// Slurm limits it.
std::int64_t usable_memory_bytes();

// Returns "; the limit on open files is 10 (ulimit -n)" if such a limit causes `error_number`, else an empty
// string.
std::string limit_behind(int error_number);

// Throws Error{system} if this process cannot open the files and start the threads that it always needs. Some
// libraries would abort.
void check_limits();

// Finds out if the disk caused a failure: full, over quota, read-only or broken.

class DiskProbe {
 public:
  // Returns true if no data can be written in this directory now, and remembers the directory for check().
  // Called for failed tasks; a directory that took a write less than a second ago is not written again.
  bool is_in_trouble(const std::string& directory);
  // Throws an Error that is_disk_trouble() while the remembered directory still takes no data.
  void check();

 private:
  std::string failing_;  // empty: none
  std::string well_;
  double well_s_ = 0;  // steady
};

// True if the output of a program of wflow contains the system's message for one of these causes.
bool says_disk_trouble(std::string_view output);

}  // namespace wflow::workers
