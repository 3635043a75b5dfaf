// SPDX-License-Identifier: Apache-2.0
#include "workers/execute/slot_table.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "steps/files.h"
#include "workers/execute/event_tail.h"

namespace wflow::workers {

namespace {

// A line that begins and goes on so.
struct Words {
  std::string_view begin, then;
};

constexpr std::array<Words, 9> kWords = {{
    {"srun: error: Unable to create step for job ", ""},
    {"srun: error: Unable to confirm allocation for job ", ""},
    {"srun: error: Task launch for ", " failed on node "},
    {"srun: error: task ", " launch failed: "},
    {"There are not enough slots available in the system to satisfy the ", ""},  // Open MPI
    {"ORTE was unable to reliably start one or more daemons.", ""},              // Open MPI 4
    {"PRTE was unable to reliably start one or more daemons.", ""},              // Open MPI 5
    {"An ORTE daemon has unexpectedly failed after launch and before", ""},
    {"A daemon (pid ", " died unexpectedly with status "},
}};

bool is_launcher_message(std::string_view line) {
  return std::any_of(kWords.begin(), kWords.end(), [line](const Words& words) {
    return line.starts_with(words.begin) && line.substr(words.begin.size()).find(words.then) != line.npos;
  });
}

}  // namespace

std::string without_warnings(std::string_view output) {
  constexpr std::string_view kWarning = "warning: ";
  constexpr std::string_view kMpirun = "-------";
  std::string kept;
  std::string after;  // the last error
  bool has_error = false;
  for (std::string_view rest = output; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    std::string_view words;
    for (const std::string_view program : {"wflow-train: ", "wflow-convert: "})
      if (line.starts_with(program)) words = line.substr(program.size());
    if (words.starts_with(kWarning)) continue;
    after += line;
    if (words.empty()) continue;
    has_error = true;
    kept += after;
    after.clear();
  }
  if (!has_error) return std::string(output);
  return kept + after.substr(0, after.starts_with(kMpirun) ? 0 : after.find("\n-------"));
}

bool is_launch_failure(std::string_view output) {
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    if (is_launcher_message(output.substr(0, end))) return true;
    output.remove_prefix(std::min(end + 1, output.size()));
  }
  return false;
}

namespace wire = engine::wire;

namespace {
constexpr std::size_t kDetailBytes = 4096;
constexpr double kShortest_s = 1e-3;  // successful tasks below this duration have no usage record
}  // namespace

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

namespace {

std::string detail_of(const SlotRecord& slot, const Ending& ending) {
  if (!ending.detail.empty()) return printable(ending.detail);
  // Tasks may print any bytes, but the detail becomes JSON later and must be text.
  return printable(without_warnings(steps::output_tail(slot.out.data(), slot.err.data(),
                                                       {slot.out_before, slot.err_before}, kDetailBytes)));
}

// The ending of a process of a bundled step, sample by sample: its reports, and the end of the process for
// all other samples.
class BundleEnding {
 public:
  BundleEnding(wire::Results& results, const SlotRecord& slot, const std::string& events,
               const Ending& ending, Now now)
      : results_(results),
        slot_(slot),
        ending_(ending),
        unix_s_(now.unix_s),
        each_s_(std::max(0.0, now.steady_s - slot.started_steady_s) / static_cast<double>(slot.count)),
        reports_(read_reports(events, slot.element, slot.count)),
        isolating_(slot.isolated && slot.count > 1 && !ending.success &&
                   ending.reason == wire::EndReason::signalled) {}

  std::vector<wire::Lease> add() {
    for (wire::Element element = slot_.element; element < slot_.element + slot_.count; ++element)
      one(element);
    return std::move(again_);
  }

  void add_reported() {
    for (wire::Element element = slot_.element; element < slot_.element + slot_.count; ++element)
      reported(element);
  }

 private:
  bool reported(wire::Element element) {
    const auto failure = reports_.failures().find(element);
    if (failure != reports_.failures().end()) {
      outcome(element, wire::EndReason::exited, failure->second.exit_code, failure->second.error);
    } else if (reports_.done(element) && !slot_.unchecked) {
      done(element);
    } else {
      return false;
    }
    return true;
  }

  void one(wire::Element element) {
    if (reported(element)) return;
    if (ending_.success) {
      done(element);
    } else if (isolating_) {
      again(element);
    } else {
      outcome(element, ending_.reason, ending_.exit_code, unreported(element));
    }
  }

  // Only the first sample without a report gets the output of the process, which may have thousands of
  // samples.
  std::string unreported(wire::Element element) {
    if (!first_unreported_) {
      first_unreported_ = element;
      return detail_of(slot_, ending_);
    }
    return fmt::format("ended with the process of sample {}, which has its output", *first_unreported_);
  }

  void done(wire::Element element) {
    const bool joins = !results_.done.empty() && results_.done.back().lease == slot_.lease &&
                       results_.done.back().array == slot_.array &&
                       results_.done.back().first + results_.done.back().count == element;
    if (!joins) results_.done.push_back({slot_.lease, slot_.array, element, 0, slot_.attempt, 0, 0, unix_s_});
    wire::DoneRun& run = results_.done.back();
    ++run.count;
    run.duration_sum_s += each_s_;
    run.duration_square_sum += each_s_ * each_s_;
  }

  void outcome(wire::Element element, wire::EndReason reason, std::int32_t code, std::string detail) {
    results_.outcomes.push_back({slot_.lease, slot_.array, element, slot_.attempt, reason, code,
                                 slot_.started_unix_s, each_s_, std::move(detail)});
  }

  // Makes parts of at most half of the process's samples, so that the sample that kills it is soon alone.
  void again(wire::Element element) {
    const std::uint64_t most = (slot_.count + 1) / 2;
    const bool joins =
        !again_.empty() && again_.back().first + again_.back().count == element && again_.back().count < most;
    if (!joins) again_.push_back({slot_.lease, slot_.array, element, 0, slot_.attempt, false, 0});
    ++again_.back().count;
  }

  wire::Results& results_;
  const SlotRecord& slot_;
  const Ending& ending_;
  double unix_s_;
  double each_s_;
  SampleReports reports_;
  bool isolating_;
  std::optional<wire::Element> first_unreported_;
  std::vector<wire::Lease> again_;
};

}  // namespace

std::vector<wire::Lease> add_ending(wire::Results& results, const SlotRecord& slot, const std::string& events,
                                    const Ending& ending, Now now) {
  // Reads the output here, once. Only the output shows a failure of the launcher.
  const bool exited = !ending.success && ending.reason == wire::EndReason::exited;
  if (exited && ending.detail.empty()) {
    Ending detailed = ending;
    detailed.detail = detail_of(slot, ending);
    if (is_launch_failure(detailed.detail)) detailed.reason = wire::EndReason::launcher;
    if (!detailed.detail.empty()) return add_ending(results, slot, events, detailed, now);
  }
  if (slot.bundled) return BundleEnding(results, slot, events, ending, now).add();
  const double duration_s = std::max(0.0, now.steady_s - slot.started_steady_s);
  if (ending.success) {
    results.done.push_back({slot.lease, slot.array, slot.element, 1, slot.attempt, duration_s,
                            duration_s * duration_s, now.unix_s});
  } else {
    results.outcomes.push_back({slot.lease, slot.array, slot.element, slot.attempt, ending.reason,
                                ending.exit_code, slot.started_unix_s, duration_s, detail_of(slot, ending)});
  }
  return {};
}

void add_reported(wire::Results& results, const SlotRecord& slot, const std::string& events, Now now) {
  if (slot.bundled) BundleEnding(results, slot, events, Ending(), now).add_reported();
}

void add_usage(wire::Results& results, const SlotRecord& slot, const ProcessUsage& used, const Ending& ending,
               double steady_s) {
  const double duration_s = std::max(0.0, steady_s - slot.started_steady_s);
  if (ending.success && duration_s < kShortest_s) return;
  results.usage.push_back({slot.lease, slot.array, slot.element, slot.count, slot.attempt,
                           slot.started_unix_s, duration_s, used.cpu_s,
                           std::max<std::uint64_t>(used.peak_bytes, slot.sampled_bytes), used.read_bytes,
                           used.written_bytes});
}

bool mark_finished(const SlotRecord& slot) {
  return slot.trusted ? steps::seal_marker(slot.marker.data(), slot.lease)
                      : steps::mark_finished(slot.marker.data());
}

void settle_place(const SlotRecord& slot, SlotFiles& files, Ending& ending) {
  if (slot.own_place[0] == '\0') return;
  try {
    files.leave(slot.own_place.data());
  } catch (const Error& error) {
    if (!ending.success) return;
    const auto reason = is_disk_trouble(error) ? wire::EndReason::disk : wire::EndReason::bad_output;
    ending = {false, reason, 0, error.what()};
  }
}

void pack_output(const SlotRecord& slot, SlotFiles& files, const Ending& ending, double unix_s,
                 steps::PackWriter& writer) {
  steps::PackedEntry entry;
  entry.element = slot.element;
  entry.lease = slot.lease;
  entry.attempt = slot.attempt;
  entry.ended_s = unix_s;
  entry.count = static_cast<std::uint32_t>(slot.count);
  const char* how = ending.success                                    ? "done"
                    : ending.reason == wire::EndReason::exited        ? "exit code"
                    : ending.reason == wire::EndReason::signalled     ? "signal"
                    : ending.reason == wire::EndReason::timed_out     ? "timed out"
                    : ending.reason == wire::EndReason::cancelled     ? "cancelled"
                    : ending.reason == wire::EndReason::out_of_memory ? "out of memory"
                    : ending.reason == wire::EndReason::stalled       ? "stalled"
                                                                      : "failed";
  const bool number =
      !ending.success && ending.exit_code != 0 &&
      (ending.reason == wire::EndReason::exited || ending.reason == wire::EndReason::signalled);
  writer.append(entry,
                fmt::format("== {}{} attempt {}: {}{}", slot.element,
                            slot.count > 1 ? fmt::format(" to {}", slot.element + slot.count - 1) : "",
                            slot.attempt, how, number ? fmt::format(" {}", ending.exit_code) : ""),
                files.out_fd(), files.err_fd());
}

SlotTable::SlotTable(std::size_t slots) : bytes_(sizeof(SlotRecord) * (slots + 1)) {
  memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) throw system_error(errno, "cannot make the worker's table of tasks");
  // Fresh pages are zero: every slot is free. The place of one record more holds what is shared beside them.
  SlotRecord* records = static_cast<SlotRecord*>(memory_);
  slots_ = {records, slots};
  static_assert(sizeof(Shared) <= sizeof(SlotRecord));
  shared_ = ::new (static_cast<void*>(records + slots)) Shared();
}

bool SlotTable::runs_anything() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const SlotRecord& slot) { return slot.pid > 0; });
}

SlotTable::~SlotTable() {
  ::munmap(memory_, bytes_);
}

}  // namespace wflow::workers
