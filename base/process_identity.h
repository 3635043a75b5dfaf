// SPDX-License-Identifier: Apache-2.0
// Which process is meant, beyond doubt. A pid alone is not enough: numbers are used again, hosts reboot,
// containers share a host name.
#pragma once

#include <cstdint>
#include <string>

namespace wflow {

struct ProcessIdentity {
  std::string host;          // empty: no process
  std::string boot;          // /proc/sys/kernel/random/boot_id
  std::string namespace_id;  // /proc/self/ns/pid: pids mean something only within it
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat: two processes of one pid differ in it

  bool known() const { return pid > 0; }
  // Whether both stand in the same process table. Only there one may judge whether the other lives.
  bool same_table(const ProcessIdentity& other) const {
    return host == other.host && boot == other.boot && namespace_id == other.namespace_id;
  }
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
  friend auto operator<=>(const ProcessIdentity&, const ProcessIdentity&) = default;
};

}  // namespace wflow
