// SPDX-License-Identifier: Apache-2.0
// Compares two versions of a campaign's study, or selects tasks to run again: decides which tasks keep their
// ends and which run (again). A function of two plans; no I/O except for sample tables in files.
//
//   own      its fingerprint differs (specs/plan/versions.h), or its row of samples, or its sources
//   follows  one of its inputs runs (again), element by element along the plan's edges
//   deleted  a conversion that will run (again) would read inputs that it has deleted, or a task files that a
//            user has removed
//   deletes  a conversion has delete_inputs from now on: its blocks run again to delete their inputs;
//            their readers do not follow
//   added    the new plan has more elements of the array
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/intervals.h"
#include "engine/schedule/types.h"
#include "engine/store/store.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

using ArrayParts = std::vector<std::pair<ArrayId, Range>>;

struct ArrayChange {
  std::optional<ArrayId> from;  // its number in the old plan
  IntervalSet open;             // elements that run (again); the others keep their ends
  std::uint64_t stale = 0;      // how many of these the old plan had
  // True if its own basis or rows differ; else all of `open` follows.
  bool own = false;
  std::uint64_t deletes = 0;  // blocks in `open` that only delete their inputs, besides the stale ones
};

// The change of one planned step, over its arrays.
struct StepChange {
  enum class Kind : std::uint8_t { changed, follows, grown, added, removed, applies };
  std::string step;
  Kind kind = Kind::changed;
  std::vector<std::string> parts;  // its own differences: cmd, samples, sources, ...
  std::uint64_t stale = 0;         // elements that ran, or would have, and run again
  std::uint64_t more = 0;          // elements that the old plan did not have
  std::uint64_t deletes = 0;       // blocks that run again to delete their inputs
  std::uint64_t gone = 0;          // elements that the new plan does not have
  std::uint64_t elements = 0;      // in the old plan
  std::string directory;           // where a removed step's outputs are
};

struct Changes {
  std::vector<ArrayChange> arrays;  // in the new plan
  std::vector<ArrayId> removed;     // in the old plan
  std::vector<StepChange> steps;    // with a change, in the order of the plan, removed ones last
  // False if any task runs (again) or any array has another number or size.
  bool same_tasks() const;
};

// Returns true if a block of a conversion in the old plan has deleted its inputs, or may be about to. Called
// for conversions with `delete_inputs` alone; empty: all have.
using InputsDeleted = std::function<bool(ArrayId array, Element block)>;

// Returns true if all outputs of an array in the old plan are gone (a user has removed its step's directory).
using OutputsGone = std::function<bool(ArrayId array)>;

// `sources`: elements of the old plan that were made with other sources than the current ones.
Changes compare(const specs::Plan& from, const specs::Plan& to, const ArrayParts& sources = {},
                const InputsDeleted& deleted = {}, const OutputsGone& gone = {});

// The same changes, of which the user says that they do not matter: what has ended keeps its end, and only
// elements that the old plan did not have run.
Changes touched(const specs::Plan& from, Changes changes);

// For one plan: these parts and all elements below them run again.
Changes again(const specs::Plan& plan, const ArrayParts& parts, const InputsDeleted& deleted = {},
              const OutputsGone& gone = {});

// "simulate: cmd changed, 200 of 200 stale"; one more line names all that follow. `keep_old`: outputs of
// removed steps move to the folder of replaced ones; else they stay in place.
std::vector<std::string> lines_of(const Changes& changes, bool keep_old = false);

// `sources:` of a step: files whose content decides its outputs (scripts, meshes, tables). The coordinator
// records their checksums at its start, and the sources of each done task, in runs (store/schema.h: sources,
// made).

struct SourceFile {
  std::string checksum;  // "absent" for a missing file; for a directory, over all files in it
  // While both are unchanged, the file is not read again.
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
};
using SourceFiles = std::map<std::string, SourceFile>;  // by the path as in the study

std::string to_json_text(const SourceFiles& files);
SourceFiles sources_from_json(const std::string& text);

// The current files. `known`: those of an earlier time; then only these of the files that a command names.
SourceFiles read_sources(const specs::Study& study, const specs::Step& step,
                         const SourceFiles* known = nullptr);
// True if it declares sources, or its command names files beside the study.
bool has_sources(const specs::Study& study, const specs::Step& step);
// The rows of all steps with sources, for take() of a new version.
std::vector<store::SourcesRow> rows_of_sources(const specs::Study& study, store::Store& store,
                                               std::uint64_t version);
// The files in both that differ.
std::vector<std::string> differing_files(const SourceFiles& from, const SourceFiles& to);

// Elements of `from` that were made with sources other than those that the steps of `to` have now.
ArrayParts made_with_others(const specs::Plan& from, const specs::Study& to, store::Store& store);
// "model.py of simulate": files that differ from the newest recorded ones.
std::vector<std::string> changed_sources(const specs::Study& study, store::Store& store);

// Called when a coordinator begins: elements that end from now on are made with the current sources.
void record_sources(const specs::Plan& plan, store::Store& store);

}  // namespace wflow::engine
