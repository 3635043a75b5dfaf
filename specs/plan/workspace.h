// SPDX-License-Identifier: Apache-2.0
// The campaign directory: made once, read again by every resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "specs/plan/plan.h"
#include "specs/study/study.h"

namespace wflow::specs {

// The timestamp of a campaign that has no time yet (wflow validate, wflow plan).
inline constexpr std::string_view kNoTimestamp = "YYYYMMDD-HHMMSS";

// OUTPUT_PATH/<name with blanks as _>_<timestamp>, absolute.
std::filesystem::path campaign_directory(const Study& study, std::string_view timestamp);

// Makes `plan.campaign()`: merlin_info/ with the three copies of the study and the sample file, .wflow/spec/
// with the files for read_campaign(), git dependencies, and the sample file if the study has a command for
// it. Returns the plan to run: read back from the directory, so that every resume has the same plan, and with
// the number of samples known. Throws Error{usage} if the directory is a campaign already.
[[nodiscard]] Plan create_campaign(const Plan& plan);

// Error{system} if another user owns the campaign, or could replace it or its study (base/folders.h): the
// commands of a study run with the rights of the calling user. Every command calls this before it reads any
// file of a campaign.
void require_trusted(const std::filesystem::path& campaign);

// The study of a campaign, with the options it was created with. Checks as require_trusted() does.
Study read_campaign(const std::filesystem::path& campaign);

// The file that a campaign's study was read from; it may be gone.
std::filesystem::path study_file(const std::filesystem::path& campaign);

// Writes the copies of the study in merlin_info/, for users and for Merlin's own tools.
void write_copies(const Study& study, const std::filesystem::path& campaign);

// Reads one of its versions (specs/plan/versions.h).
Study read_version(const std::filesystem::path& campaign, std::uint64_t number);

// The options to read a new study of the campaign: those of its current one, but with the sample file and the
// parameters' generator in their present state.
// `version`: the version that counts as the current one; 0: the campaign's.
ReadOptions update_options(const std::filesystem::path& campaign, std::uint64_t version = 0);

// True if the command that generates the samples of `now` differs from that of the campaign's study, or has
// not written its file yet.
bool generates_samples(const Study& campaigns, const Study& now);

// Runs that command while no coordinator runs the campaign; the caller reads the study again afterwards.
// Moves an existing table to `NAME.before` and returns that path; empty if there was none. If the command
// fails, moves the table back and throws Error{data}. The campaign's own copy of its table stays.
std::filesystem::path generate_samples_anew(const Study& now, const std::filesystem::path& campaign);
// Restores the former table, if the change is not accepted.
void undo_generated_samples(const Study& now, const std::filesystem::path& before);

// Writes study.yaml and options.json into a folder, with the checksums of its tables of samples, whose copies
// are in its samples/ or named by `info`.
void write_study_files(const Study& study, const std::filesystem::path& folder,
                       const std::filesystem::path& info);
// Checks the files in a version's folder against their checksums: returns a sentence for each damaged file.
std::vector<std::string> version_damage(const std::filesystem::path& campaign, std::uint64_t number);

// Writes only the files for read_campaign(): the first version, below `campaign`.
void record_study(const Study& study, const std::filesystem::path& campaign);

// The copy of the study, as its author wrote it, in a campaign's directory.
std::filesystem::path study_copy(const std::filesystem::path& campaign);

// Reads `copy`, a copy of the study `file`, as if it were that file.
StudyAndWarnings read_study_copy(const std::filesystem::path& copy, const std::filesystem::path& file,
                                 const ReadOptions& options);

// The options that a study was read with, except for the campaign. from: throws Error{data} that names
// `where`.
nlohmann::json options_to_json(const ReadOptions& options);
ReadOptions options_from_json(const nlohmann::json& json, const std::filesystem::path& where);

// Clones a repository to <path>/<name>, unless that exists. The clone gets its name when it is complete: a
// killed clone leaves only a hidden directory beside it. Throws Error{system} with git's message.
void clone_dependency(const GitDependency& git);

}  // namespace wflow::specs
