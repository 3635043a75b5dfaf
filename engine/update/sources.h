// SPDX-License-Identifier: Apache-2.0
// `sources:` of a step: files whose content decides its outputs (scripts, meshes, tables). Their checksums
// are recorded when a coordinator begins, and with what each task was made, in runs (store/schema.h: sources,
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
  std::string checksum;  // "absent" where it is not there; of a directory, of all files in it
  // While both are as they were, the file is not read again.
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
};
using SourceFiles = std::map<std::string, SourceFile>;  // by the path as written

std::string to_json_text(const SourceFiles& files);
SourceFiles sources_from_json(const std::string& text);

// As they are now. `known`: as they were at an earlier time; of the files that a command names, these alone.
SourceFiles read_sources(const specs::Study& study, const specs::Step& step, const SourceFiles* known = nullptr);
// Whether it declares some, or its command names files beside the study.
bool has_sources(const specs::Study& study, const specs::Step& step);
// Of the steps that have some: with what take() records for a new version.
std::vector<store::SourcesRow> rows_of_sources(const specs::Study& study, store::Store& store,
                                               std::uint64_t version);
// The files that both have and that differ.
std::vector<std::string> differing_files(const SourceFiles& from, const SourceFiles& to);

// Elements of `from` that were made with sources other than those that the steps of `to` have now.
ArrayParts made_with_others(const specs::Plan& from, const specs::Study& to, store::Store& store);
// "model.py of simulate": those that differ from what is recorded as newest.
std::vector<std::string> changed_sources(const specs::Study& study, store::Store& store);

// When a coordinator begins: from now on, what ends is made with the sources as they are.
void record_sources(const specs::Plan& plan, store::Store& store);

}  // namespace wflow::engine
