// SPDX-License-Identifier: Apache-2.0
// The versions of a campaign's study. Each has a folder, which is written once:
//   .wflow/studies/N/study.yaml     as its author wrote it
//   .wflow/studies/N/options.json   the options it is read with
//   .wflow/studies/N/about.json     user, time and reason of the change
//   .wflow/studies/N/samples/       its table of samples, if that is a file and N > 1 (for 1: merlin_info/)
//   .wflow/spec                     a link to the folder of the current version
// Numbers begin with 1. The newest folder without the link belongs to an update that was interrupted
// (engine/update/).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::specs {

struct VersionInfo {
  std::uint64_t number = 0;
  double time_s = 0;  // Unix time
  std::string user, host;
  std::string why;                   // given by its author (-m); may be empty
  std::string command;               // command that made this version: "run", "resume --update", "extend"
  std::vector<std::string> changes;  // a line a step: "simulate: cmd changed, 200 of 200 stale"
};

std::filesystem::path version_directory(const std::filesystem::path& campaign, std::uint64_t number);
bool has_version(const std::filesystem::path& campaign, std::uint64_t number);
// The version of the link. Error{data} if the directory is not a campaign's.
std::uint64_t current_version(const std::filesystem::path& campaign);
// The versions up to `last`, the oldest first.
std::vector<VersionInfo> versions(const std::filesystem::path& campaign, std::uint64_t last);

// Writes the folder of a version: completely or not at all, and durable on return. The caller sets number,
// command, why and changes of `info`. `with_samples`: also copies the study's table of samples. Replaces a
// folder of this number.
void write_version(const Study& study, const std::filesystem::path& campaign, VersionInfo info,
                   bool with_samples);
void remove_version(const std::filesystem::path& campaign, std::uint64_t number);
// Makes this version the current one, by one rename.
void make_current(const std::filesystem::path& campaign, std::uint64_t number);

// The basis of a task array: all settings that decide its outputs, except its inputs. If the bases of an
// array are equal in two plans, the array writes the same outputs for equal rows of samples and equal inputs.
// Not part of it: retries, time-outs, resources, priorities, workers, batch systems, descriptions, checks of
// outputs.

struct Basis {
  // Name ("cmd", "shell", "settings", "depends", ...) and text, always in the same order for a kind of step.
  // The text has $(CAMPAIGN) for the campaign's own path and $(LAUNCHER) for a launcher.
  std::vector<std::pair<std::string, std::string>> parts;
  // The columns of the samples whose values it uses.
  std::vector<std::string> columns;
};

Basis basis_of(const Plan& plan, ArrayId array);

// The hash of the basis and of the signatures of its columns, 32 hex digits.
std::string fingerprint_of(const Plan& plan, ArrayId array);

// The names of the parts that differ.
std::vector<std::string> differing_parts(const Basis& from, const Basis& to);

}  // namespace wflow::specs
