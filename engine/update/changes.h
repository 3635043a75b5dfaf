// SPDX-License-Identifier: Apache-2.0
// What a new version of a campaign's study, or the wish to run something again, means for its tasks: which
// keep how they ended, and which run (again). A function of two plans; no I/O but for sample tables that are
// files.
//
//   own      what decides its outputs differs (specs/plan/fingerprint.h), its row of samples, or its sources
//   follows  something that it reads runs (again), element by element along the plan's edges
//   deleted  a conversion that is to run (again) would read what it has deleted, or a task what a person has removed
//   deletes  a conversion has delete_inputs from now on: its blocks run again to delete what they were made of, and what
//            reads them does not follow
//   added    the new plan has more elements of the array
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

using ArrayParts = std::vector<std::pair<ArrayId, Range>>;

struct ArrayChange {
  std::optional<ArrayId> from;  // its number in the old plan
  IntervalSet open;             // elements that run (again); the others keep how they ended
  std::uint64_t stale = 0;      // of these, those that the old plan had
  // What its own basis or rows say; the rest of `open` follows.
  bool own = false;
  std::uint64_t deletes = 0;  // of `open`, beside the stale ones: blocks that only delete their inputs
};

// Of one planned step, over its arrays.
struct StepChange {
  enum class Kind : std::uint8_t { changed, follows, grown, added, removed, applies };
  std::string step;
  Kind kind = Kind::changed;
  std::vector<std::string> parts;  // what of its own differs: cmd, samples, sources, ...
  std::uint64_t stale = 0;         // elements that ran, or would have, and are to run again
  std::uint64_t more = 0;          // elements that the old plan did not have
  std::uint64_t deletes = 0;       // blocks that run again to delete what they were made of
  std::uint64_t gone = 0;          // elements that the new plan does not have
  std::uint64_t elements = 0;      // of the old plan
  std::string directory;           // of a removed one: what it left lies there
};

struct Changes {
  std::vector<ArrayChange> arrays;  // of the new plan
  std::vector<ArrayId> removed;     // of the old plan
  std::vector<StepChange> steps;    // with a change, in the order of the plan, removed ones last
  // Whether any task runs (again) or any array has another number or size.
  bool same_tasks() const;
};

// Whether a block of a conversion of the old plan has deleted what it was made of, or may be about to. Asked
// of conversions with `delete_inputs` alone; empty: all have.
using InputsDeleted = std::function<bool(ArrayId array, Element block)>;

// Whether all that an array of the old plan left is gone (a person has removed the directory of its step).
using OutputsGone = std::function<bool(ArrayId array)>;

// `sources`: elements of the old plan that were made with other sources than there are now.
Changes compare(const specs::Plan& from, const specs::Plan& to, const ArrayParts& sources = {},
                const InputsDeleted& deleted = {}, const OutputsGone& gone = {});

// The same plan, of which these parts and all below them run again.
Changes again(const specs::Plan& plan, const ArrayParts& parts, const InputsDeleted& deleted = {},
              const OutputsGone& gone = {});

// "simulate: cmd changed, 200 of 200 stale"; one more line names all that follow. `keep_old`: outputs of
// removed steps go where the replaced ones are kept; else they stay in their places.
std::vector<std::string> lines_of(const Changes& changes, bool keep_old = false);

}  // namespace wflow::engine
