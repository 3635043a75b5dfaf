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

// Stands where a campaign has no time yet (wflow validate, wflow plan).
inline constexpr std::string_view kNoTimestamp = "YYYYMMDD-HHMMSS";

// OUTPUT_PATH/<name with blanks as _>_<timestamp>, absolute.
std::filesystem::path campaign_directory(const Study& study, std::string_view timestamp);

// Makes `plan.campaign()`: merlin_info/ with the three copies of the study and the sample file,
// .wflow/spec/ with what read_campaign() needs, git dependencies, and the sample file where the study has a
// command for it. Gives the plan to run: read back from the directory, so that every resume has the same one,
// and with the number of samples known. Throws Error{usage} when the directory is a campaign already.
[[nodiscard]] Plan create_campaign(const Plan& plan);

// Error{system} where another user owns the campaign, or could replace it or its study
// (base/folders.h): a study's commands run as whoever uses it. Every command comes through here before
// it reads anything of a campaign.
void require_trusted(const std::filesystem::path& campaign);

// The study of a campaign, with the options it was created with. Checks as require_trusted() does.
Study read_campaign(const std::filesystem::path& campaign);

// The file that a campaign's study was read from; it may be gone.
std::filesystem::path study_file(const std::filesystem::path& campaign);

// The copies of the study in merlin_info/, for people and for Merlin's own tools.
void write_copies(const Study& study, const std::filesystem::path& campaign);

// One of its versions (specs/plan/versions.h).
Study read_version(const std::filesystem::path& campaign, std::uint64_t number);

// What a study is read with to be taken into the campaign: as its current one, but with the sample file and
// the parameters' generator as they are now.
ReadOptions update_options(const std::filesystem::path& campaign);

// Whether the command that generates the samples of `now` is not that of the campaign's study, or has its
// file still to write.
bool generates_samples(const Study& campaigns, const Study& now);

// Runs that command while nobody coordinates the campaign: the study is to be read again afterwards. A table
// that is in its place is moved to `NAME.before`, which is given back; empty: there was none. Of a command
// that fails it is moved back. The campaign's own copy of its table stays. Error{data} where the command
// fails.
std::filesystem::path generate_samples_anew(const Study& now, const std::filesystem::path& campaign);
// As it was: the change is not taken in.
void undo_generated_samples(const Study& now, const std::filesystem::path& before);

// Writes study.yaml and options.json into a folder, which has the copies of its tables of samples in samples/, or else
// `info` has them: their checksums go along.
void write_study_files(const Study& study, const std::filesystem::path& folder, const std::filesystem::path& info);
// Whether what a version's folder holds is what was written: a sentence for each file that is not.
std::vector<std::string> version_damage(const std::filesystem::path& campaign, std::uint64_t number);

// Writes what read_campaign() needs, and nothing else: the first version, below `campaign`.
void record_study(const Study& study, const std::filesystem::path& campaign);

// The copy of its study as its author wrote it, in a campaign's directory.
std::filesystem::path study_copy(const std::filesystem::path& campaign);

// Reads `copy`, which was made of the study `file`, as that would be read.
StudyAndWarnings read_study_copy(const std::filesystem::path& copy, const std::filesystem::path& file,
                                 const ReadOptions& options);

// What a study was read with, but for the campaign. from: throws Error{data} that names `where`.
nlohmann::json options_to_json(const ReadOptions& options);
ReadOptions options_from_json(const nlohmann::json& json, const std::filesystem::path& where);

}  // namespace wflow::specs
