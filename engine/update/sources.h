// SPDX-License-Identifier: Apache-2.0
// `sources:` of a step: files whose content decides its outputs (scripts, meshes, tables). The coordinator
// records their checksums at its start, and the sources of each done task, in runs (store/schema.h: sources,
// made).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/store/store.h"
#include "engine/update/changes.h"
#include "specs/plan/plan.h"

namespace wflow::engine {

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
