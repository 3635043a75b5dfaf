// SPDX-License-Identifier: Apache-2.0
// The files of a task: those that it needs, its marker of success, and the outputs that it must leave.
// Nothing here is synced to disk except sealed markers: after a power cut the worker prepares the task again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "steps/step.h"

namespace wflow::steps {

// Writes the files that the elements of an array share. Several workers may call it and write_files() at the
// same time, while tasks read the files: a file that already has this text is left alone, any other is
// replaced as a whole by a rename, and no file is written in place. Both throw Error{system} with path and
// reason, also if the campaign's directory is missing: a campaign that was moved is not made again.
void write_setup(const ArraySetup& setup, const std::string& campaign);

// Makes the directory and the files of one task.
void write_files(const PreparedTask& task, const std::string& campaign);

// Makes the task's marker of success, if it has one. Returns false if the disk refuses it.
bool mark_finished(const std::string& marker);
// Makes the marker of a step with trust_markers: it contains the lease, and survives a power cut.
bool seal_marker(const std::string& marker, std::uint64_t lease);
// Returns the lease in a sealed marker; no value for any other file.
std::optional<std::uint64_t> sealed_by(const std::string& marker);

// Sizes of the output files, which may already hold the output of earlier attempts.
struct OutputSizes {
  std::uint64_t out = 0;
  std::uint64_t err = 0;
};
OutputSizes output_sizes(const PreparedTask& task);
// Returns the end of the task's stderr, or of stdout if that is empty: at most `limit` bytes, without the
// first `before` bytes of the files.
std::string output_tail(const std::string& out_path, const std::string& err_path, const OutputSizes& before,
                        std::size_t limit);

// The marker of success: the empty file that a task leaves in its directory when it has ended with 0, the
// same as in Merlin. Only these functions decide which tasks leave one, and where.
inline constexpr const char* kFinishedMarker = "MERLIN_FINISHED";

// True if each element of the array leaves a marker of its own. False for elements that share a directory
// (bundle:) or have none (packed output), for conversions and for trainings.
bool leaves_marker(const specs::TaskTemplate& task);

// Returns the path of an element's marker. The file need not exist.
std::filesystem::path finished_marker(const specs::TaskTemplate& task, specs::Element element);

// A file that an execution must leave (`outputs:` of its step).
struct OutputFile {
  std::string path;  // absolute
  const specs::DeclaredOutput* declared = nullptr;
};

// Returns the declared outputs of an execution. The template must outlive them.
std::vector<OutputFile> output_files(const specs::TaskTemplate& task_template,
                                     const specs::SampleTable* samples, const Execution& execution);

// Returns a sentence about the first file that is missing, empty, or a pipe or similar; an empty string if
// there is none.
std::string missing_output(const std::vector<OutputFile>& files);

// Returns the command that checks the contents of the files (dataset, shape, values). Its exit code 0 means
// that they are right; 4 that its one line of stderr names the error. Empty if the outputs declare only
// existence.
std::vector<std::string> check_command(const std::vector<OutputFile>& files);

}  // namespace wflow::steps
