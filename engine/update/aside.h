// SPDX-License-Identifier: Apache-2.0
// What lies in the way of tasks that are to run again: outputs of an earlier version of the study, or of an
// execution that was not wanted (wflow redo). They are moved to <campaign>/.wflow/old/<name>/, by renames,
// and deleted there unless they are to be kept. The list is written before the record changes and carried out
// after it:
//   <campaign>/.wflow/aside.json   what to move; removed at the end. Without effect if the record does not
//   name it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

struct AsidePart {
  std::string path;            // below the campaign, or absolute: a directory or file
  std::vector<Range> samples;  // of the directory, those of these samples; empty: all of it
  // How the directories of samples are laid out (specs/plan/template.h).
  std::uint64_t layout = 0;
  std::uint32_t level_max_dirs = 25;
  std::uint64_t bundle = 0;
};

struct Aside {
  std::string name;               // of the folder in .wflow/old
  bool keep = false;              // all of it; else only what `kept` names
  std::vector<std::string> kept;  // paths of parts
  std::vector<AsidePart> parts;
};

// Of two plans of the campaign and what compare() says of them; of the same plan twice with again(). Of a
// step that is removed nothing is in the way: what it left stays in its place, or goes with the rest
// (`with_removed`).
std::vector<AsidePart> aside_parts(const specs::Plan& from, const specs::Plan& to, const Changes& changes,
                                   bool with_removed);

// A name that no folder of .wflow/old has.
std::string new_aside_name(const std::filesystem::path& campaign);
std::filesystem::path aside_directory(const std::filesystem::path& campaign, const std::string& name);

void write_aside(const std::filesystem::path& campaign, const Aside& aside);
std::optional<Aside> read_aside(const std::filesystem::path& campaign);
void remove_aside(const std::filesystem::path& campaign);

// Nothing may run. To be repeated after a kill.
void carry_out(const std::filesystem::path& campaign, const Aside& aside);

}  // namespace wflow::engine
