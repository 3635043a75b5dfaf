// SPDX-License-Identifier: Apache-2.0
// The versions of a campaign's study. Each has a folder, which is written once:
//   .wflow/studies/N/study.yaml     as its author wrote it
//   .wflow/studies/N/options.json   what it is read with
//   .wflow/studies/N/about.json     who took it in, when and why
//   .wflow/studies/N/samples/       its table of samples, where that is a file and N > 1 (that of 1:
//   merlin_info/) .wflow/spec                     a link to the folder of the current version
// Numbers begin with 1. A folder without the link is one that an update was about to take in
// (engine/update/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "specs/study/study.h"

namespace wflow::specs {

struct VersionInfo {
  std::uint64_t number = 0;
  double time_s = 0;  // Unix time
  std::string user, host;
  std::string why;                   // as its author gave it (-m); may be empty
  std::string command;               // that took it in: "run", "resume --update", "extend"
  std::vector<std::string> changes;  // a line a step: "simulate: cmd changed, 200 of 200 stale"
};

std::filesystem::path version_directory(const std::filesystem::path& campaign, std::uint64_t number);
bool has_version(const std::filesystem::path& campaign, std::uint64_t number);
// That of the link. Error{data} where the directory is no campaign's.
std::uint64_t current_version(const std::filesystem::path& campaign);
// Up to `last`, the oldest first.
std::vector<VersionInfo> versions(const std::filesystem::path& campaign, std::uint64_t last);

// Whole or not at all, and durable on return. `info`: number, command, why and changes; the rest is filled
// in. `with_samples`: the study's table of samples is copied, too. A folder of this number is replaced.
void write_version(const Study& study, const std::filesystem::path& campaign, VersionInfo info,
                   bool with_samples);
void remove_version(const std::filesystem::path& campaign, std::uint64_t number);
// By one rename.
void make_current(const std::filesystem::path& campaign, std::uint64_t number);

}  // namespace wflow::specs
