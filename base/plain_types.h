// SPDX-License-Identifier: Apache-2.0
// Plain types of processes, times and log levels. The state machines take them, so this header includes no
// I/O.
#pragma once

#include <cstdint>
#include <string>

namespace wflow {

// Names one process unambiguously. A pid alone is not enough: numbers are used again, hosts reboot,
// containers share a host name.
struct ProcessIdentity {
  std::string host;          // empty: no process
  std::string boot;          // /proc/sys/kernel/random/boot_id
  std::string namespace_id;  // /proc/self/ns/pid: pids mean something only within it
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat: two processes of one pid differ in it

  bool known() const { return pid > 0; }
  // True if both are in the same process table. Only then can one process tell whether the other lives.
  bool same_table(const ProcessIdentity& other) const {
    return host == other.host && boot == other.boot && namespace_id == other.namespace_id;
  }
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
  friend auto operator<=>(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// The time of an event, as state machines take it. `steady_s` never goes back and counts suspended time
// (base/clock.h); `unix_s` is for records that users read, and may jump.
struct Now {
  double steady_s = 0;
  double unix_s = 0;
};

enum class LogLevel : std::uint8_t { trace, debug, info, warning, error };

}  // namespace wflow
