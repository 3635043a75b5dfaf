// SPDX-License-Identifier: Apache-2.0
// Moves outputs out of the way of tasks that run again: outputs of an earlier version of the study, or of an
// unwanted execution (wflow redo). Renames move them to <campaign>/.wflow/old/<name>/, where they are deleted
// unless the user keeps them. A good version of a data set, a training or a single task stays there until its
// successor is done. The list is written before the record changes and carried out after it:
//   <campaign>/.wflow/aside.json   the parts to move; removed at the end. Without effect if the record does
//   not name it. <campaign>/.wflow/old/<name>/replaced.json   the versions that wait for their successors
// A directory of outputs may be a symbolic link to another file system, or a mount point. It stays in place,
// and its entries move to .wflow-old-<name> in it, to which .wflow/old/<name> then has a link.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

struct AsidePart {
  std::string path;            // below the campaign, or absolute: a directory or file
  std::vector<Range> samples;  // only the directories of these samples; empty: all of it
  // How the directories of samples are laid out (specs/plan/template.h).
  std::uint64_t layout = 0;
  std::uint32_t level_max_dirs = 25;
  std::uint64_t bundle = 0;
  // A good version: it is kept until this step is done, or this array of it.
  std::string until_step = {}, until_array = {};
  // It stays in its place, where its successor replaces some of its files: what is kept are hard links to all
  // of them.
  bool linked = false;

  bool waits() const { return !until_step.empty(); }
};

struct Aside {
  std::string name;   // name of the folder in .wflow/old
  bool keep = false;  // all of it; else what waits for its successor
  std::vector<AsidePart> parts;
};

// The parts to move for two plans of the campaign and the result of compare(); for again(), pass the same
// plan twice. The outputs of a removed step are not in the way: they stay in place, or move with the rest
// (`with_removed`). `done`: true if all elements of an array of the old plan are done; called for arrays that
// do not run once a sample.
using IsDone = std::function<bool(ArrayId)>;
std::vector<AsidePart> aside_parts(const specs::Plan& from, const specs::Plan& to, const Changes& changes,
                                   bool with_removed, const IsDone& done);

// The size of a part on disk, estimated from its first entries if it has very many.
struct AsideSize {
  std::uint64_t bytes = 0, files = 0;
  bool whole = true;
};
AsideSize size_of(const std::filesystem::path& campaign, const AsidePart& part);

// A name that no folder of .wflow/old has.
std::string new_aside_name(const std::filesystem::path& campaign);
std::filesystem::path aside_directory(const std::filesystem::path& campaign, const std::string& name);

void write_aside(const std::filesystem::path& campaign, const Aside& aside);
std::optional<Aside> read_aside(const std::filesystem::path& campaign);
void remove_aside(const std::filesystem::path& campaign);

// Error{system} if a part could not be moved, before any change.
void require_movable(const std::filesystem::path& campaign, const Aside& aside);

// No task may run. Repeat it after a kill.
void carry_out(const std::filesystem::path& campaign, const Aside& aside);

// A good version that waits for its successor.
struct KeptVersion {
  std::string step, array;     // empty array: all of the step
  std::filesystem::path path;  // where it is
};
std::vector<KeptVersion> kept_versions(const std::filesystem::path& campaign);
// Removes the versions whose successor is done; returns the others.
std::vector<KeptVersion> drop_replaced(const std::filesystem::path& campaign,
                                       const std::function<bool(const KeptVersion&)>& has_successor);

}  // namespace wflow::engine
