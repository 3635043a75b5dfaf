// SPDX-License-Identifier: Apache-2.0
// Linked into sanitized programs that use libtorch or Open MPI: both keep memory until the process ends,
// which LeakSanitizer reports. ASAN_OPTIONS overrides it. All other programs are checked for leaks.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
