// SPDX-License-Identifier: Apache-2.0
// The files that an execution must have left (outputs: of its step), and how they are looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "steps/step.h"

namespace wflow::steps {

struct OutputFile {
  std::string path;  // absolute
  const specs::DeclaredOutput* declared = nullptr;
};

// The template must outlive them.
std::vector<OutputFile> output_files(const specs::TaskTemplate& task_template,
                                     const specs::SampleTable* samples, const Execution& execution);

// A sentence about the first file that is not there, is a pipe or the like, or is empty; nothing where all
// are there.
std::string missing_output(const std::vector<OutputFile>& files);

// The command that looks into the files (dataset, shape, values), whose exit code 0 means that all is well, 4
// that its one line of stderr says what is not. Empty where existence is all that is declared.
std::vector<std::string> check_command(const std::vector<OutputFile>& files);

// Whether check_command() will be needed.
bool looks_into_outputs(const std::vector<specs::DeclaredOutput>& outputs);

}  // namespace wflow::steps
