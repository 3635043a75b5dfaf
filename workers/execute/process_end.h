// SPDX-License-Identifier: Apache-2.0
// What the kernel says of a process that is ending or has ended, and whose end that is (own_end.h).
#pragma once

#include <sys/types.h>

#include "workers/execute/slot_table.h"

namespace wflow::workers {

// Though not reaped yet.
bool has_ended(pid_t pid);
// It has called exit, or a signal has ended it: no further signal changes its status. This may take a second
// where it held much memory.
bool is_exiting(pid_t pid);

// What a process does on SIGTERM, also of one that has ended and is not reaped yet.
struct TermDisposition {
  bool catches = false;
  bool blocks = false;
  bool ignores = false;
  bool pending = false;  // it was sent, and neither taken nor ignored
};
TermDisposition term_disposition(pid_t pid);
// Shells block all signals for a moment whenever they start a program: looks again until the process does not
// block SIGTERM, for a few milliseconds.
TermDisposition settled_term_disposition(pid_t pid);

// Whether the child of the slot, which is not reaped yet, has ended by itself. `dropped`: the agent has sent
// SIGKILL without a note in the record.
bool ended_by_itself(const SlotRecord& slot, bool dropped, pid_t pid, int code, int status);

}  // namespace wflow::workers
