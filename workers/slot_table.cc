// SPDX-License-Identifier: Apache-2.0
#include "workers/slot_table.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/error.h"
#include "steps/files.h"

namespace wflow::workers {

namespace wire = engine::wire;

namespace {
constexpr std::size_t kDetailBytes = 4096;
}

void store_path(std::array<char, SlotRecord::kPathBytes>& target, const std::string& path) {
  const bool fits = path.size() < target.size();
  if (fits) std::copy(path.begin(), path.end(), target.begin());
  target[fits ? path.size() : 0] = '\0';
}

Ending judge(const SlotRecord& slot, int code, int status) {
  Ending ending;
  ending.exit_code = status;
  if (slot.killed) {
    ending.reason = slot.kill_reason;
  } else if (code == CLD_EXITED) {
    ending.success = status == 0;
  } else {
    ending.reason = wire::EndReason::signalled;
  }
  return ending;
}

void add_ending(wire::Results& results, const SlotRecord& slot, const Ending& ending, double now_s) {
  const double duration_s = std::max(0.0, now_s - slot.started_s);
  if (ending.success) {
    results.done.push_back(
        {slot.lease, slot.array, slot.element, 1, duration_s, duration_s * duration_s, now_s});
    return;
  }
  const std::string detail = ending.detail.empty()
                                 ? steps::output_tail(slot.out.data(), slot.err.data(),
                                                      {slot.out_before, slot.err_before}, kDetailBytes)
                                 : ending.detail;
  results.outcomes.push_back({slot.lease, slot.array, slot.element, slot.attempt, ending.reason,
                              ending.exit_code, slot.started_s, duration_s, detail});
}

void settle_place(const SlotRecord& slot, SlotFiles& files, Ending& ending) {
  if (slot.own_place[0] == '\0') return;
  try {
    files.leave(slot.own_place.data());
  } catch (const Error& error) {
    if (!ending.success) return;
    ending = {false, wire::EndReason::bad_output, 0, error.what()};
  }
}

void pack_output(const SlotRecord& slot, SlotFiles& files, const Ending& ending, double now_s,
                 steps::PackWriter& writer) {
  steps::PackedEntry entry;
  entry.element = slot.element;
  entry.lease = slot.lease;
  entry.attempt = slot.attempt;
  entry.ended_s = now_s;
  const char* how = ending.success                                ? "done"
                    : ending.reason == wire::EndReason::exited    ? "exit code"
                    : ending.reason == wire::EndReason::signalled ? "signal"
                    : ending.reason == wire::EndReason::timed_out ? "timed out"
                    : ending.reason == wire::EndReason::cancelled ? "cancelled"
                                                                  : "failed";
  const bool number =
      !ending.success && ending.exit_code != 0 &&
      (ending.reason == wire::EndReason::exited || ending.reason == wire::EndReason::signalled);
  writer.append(entry,
                fmt::format("== {} attempt {}: {}{}", slot.element, slot.attempt, how,
                            number ? fmt::format(" {}", ending.exit_code) : ""),
                files.out_fd(), files.err_fd());
}

SlotTable::SlotTable(std::size_t slots) : bytes_(sizeof(SlotRecord) * (slots + 1)) {
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw system_error(errno, "cannot make the worker's table of tasks");
  // Fresh pages are zero: every slot is free. The place of one record more holds the sequence number.
  SlotRecord* records = static_cast<SlotRecord*>(memory_);
  slots_ = {records, slots};
  open_sequence_ = ::new (static_cast<void*>(records + slots)) std::atomic<std::uint64_t>(0);
}

SlotTable::~SlotTable() {
  ::munmap(memory_, bytes_);
}

}  // namespace wflow::workers
