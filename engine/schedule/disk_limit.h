// SPDX-License-Identifier: Apache-2.0
// max_disk: simulations whose files a conversion deletes begin a block at a time, so that no more of these
// files are on the disk than the study allows. Pure state, as the scheduler that owns it.
//
// A block is *released* as a whole: all of its simulations may be leased. It takes up its elements times the
// mean size of those that were measured, until its conversion is done, which deletes them. Another block is
// released while it fits below the limit; and whatever the limit, one block is released where no released one
// is open. So every block that has begun can be completed, and the campaign goes on however small the limit
// is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/schedule/actions.h"
#include "engine/schedule/intervals.h"
#include "engine/schedule/states.h"
#include "engine/schedule/task_array.h"

namespace wflow::engine {

// A step's status text begins with this while some of its elements are blocked (StepStatus::held).
inline constexpr std::string_view kHeldByDisk = "disk ";

class DiskLimit {
 public:
  // `arrays` outlives it. An array is limited if an array with `deletes_input` and `max_disk_bytes` waits for
  // its elements by blocks.
  explicit DiskLimit(const std::vector<TaskArray>& arrays);

  bool limits(ArrayId array) const { return find(array) != nullptr; }

  // ---- from the scheduler; other arrays than those concerned have no effect
  // Ends and attempts of earlier coordinators are known: blocks that have begun are released.
  void start();
  // Returns the newly ready elements that may be leased. Blocks the others.
  std::vector<Range> hold_back(ArrayId array, std::span<const Range> parts);
  // These elements are ready no more.
  void forget(ArrayId array, Range range);
  // They run or have run, whether they were released or not: their blocks are. Gives what was held back of
  // these.
  std::vector<Range> begun(ArrayId array, Range range);
  // After begun(), if it has run.
  void ended(ArrayId array, Range range, ElementState state);
  // The blocked elements that may be leased from now on.
  std::vector<std::pair<ArrayId, Range>> release();

  // ---- sizes
  // Elements to be measured now: the first ones of an array, then one every half a second.
  std::vector<MeasureOutputs> take_measurements(double now_s);
  // Answers one. `bytes`: size of the files that will be deleted; empty unless all exist.
  void measured(ArrayId array, std::optional<std::uint64_t> bytes);

  // ---- questions
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  double used_bytes() const;
  std::uint64_t held_back(ArrayId array) const;
  bool holds_any() const;
  // Once, after a block was released that does not fit: the bytes that are used then, with it.
  std::optional<double> take_overrun() { return std::exchange(overrun_, std::nullopt); }

 private:
  struct Source {  // a limited array
    ArrayId array = 0;
    ArrayId deleter = 0;
    specs::Edge edge;
    IntervalSet held_back;             // elements that are ready and must wait
    IntervalSet released;              // elements whose files are on the disk, or may come to be
    IntervalSet open;                  // released blocks that may still be completed
    std::optional<Element> candidate;  // done, and not measured yet
    std::uint64_t measured = 0;
    double measured_bytes = 0;
    bool asked = false;
    double next_look_s = 0;
  };

  const Source* find(ArrayId array) const;
  Source* find(ArrayId array) { return const_cast<Source*>(std::as_const(*this).find(array)); }
  Range blocks_of(const Source& source, Range elements) const;
  Range elements_of(const Source& source, Range blocks) const;
  Range whole_bundles(const Source& source, Range elements) const;
  std::vector<Range> release_block(Source& source, Element block);
  std::optional<double> size_of(const Source& source) const;
  bool fits(const Source& source, Element block) const;
  bool any_open() const;

  const std::vector<TaskArray>& arrays_;
  std::vector<Source> sources_;           // in the order of the arrays
  std::vector<std::uint32_t> source_of_;  // by array, also by that which deletes: place in sources_, and 1
  std::uint64_t limit_bytes_ = 0;
  std::optional<double> overrun_;
  bool told_ = false;
};

}  // namespace wflow::engine
