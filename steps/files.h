// SPDX-License-Identifier: Apache-2.0
// Puts on disk what a prepared task needs. Not durable by fsync: after a power cut the task is prepared
// again.
#pragma once

#include <optional>

#include "steps/step.h"

namespace wflow::steps {

// Both may run in several workers at the same time, while tasks read the files: a file that is there with
// this text is left alone, any other is replaced as a whole by a rename. No file is ever written in place.
// They throw Error{system} with path and reason, also where the campaign's directory is not there any more: one that
// was moved is not made again.
void write_setup(const ArraySetup& setup, const std::string& campaign);

// The directory and the files of one task.
void write_files(const PreparedTask& task, const std::string& campaign);

// Makes the task's marker of success, if it has one. False: the disk refuses it.
bool mark_finished(const std::string& marker);
// The same for a step with trust_markers: it names the lease, and survives a power cut.
bool seal_marker(const std::string& marker, std::uint64_t lease);
// The lease that a sealed marker names; nothing for any other file.
std::optional<std::uint64_t> sealed_by(const std::string& marker);

// The end of what the task wrote to stderr, or to stdout where that is empty, at most `limit` bytes, from the
// given sizes of the files on (they hold the output of earlier attempts).
struct OutputSizes {
  std::uint64_t out = 0;
  std::uint64_t err = 0;
};
OutputSizes output_sizes(const PreparedTask& task);
std::string output_tail(const std::string& out_path, const std::string& err_path, const OutputSizes& before,
                        std::size_t limit);

}  // namespace wflow::steps
