// SPDX-License-Identifier: Apache-2.0
// Whether a failure was the disk's: full, over quota, read-only or broken.
#pragma once

#include <string>
#include <string_view>

namespace wflow::workers {

class DiskProbe {
 public:
  // Whether nothing can be written in this directory now. It is remembered then for check(). A failed task
  // asks; what was well a second ago is not tried again.
  bool is_in_trouble(const std::string& directory);
  // Throws Error that is_disk_trouble() where the directory that was in trouble still is.
  void check();

 private:
  std::string suspect_;  // empty: none
  std::string well_;
  double well_s_ = 0;  // steady
};

// Whether what a program of wflow printed has the system's words for one of these causes.
bool says_disk_trouble(std::string_view output);

}  // namespace wflow::workers
