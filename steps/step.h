// SPDX-License-Identifier: Apache-2.0
// Turns one execution of one element of a task array into program, files, environment and working directory,
// on the worker that runs it. Nothing here starts a process; the worker does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "specs/plan/template.h"
#include "specs/samples/samples.h"

namespace wflow::steps {

struct NewFile {
  std::string path;  // absolute
  std::string text;
};

// Directories and files that all elements of an array share. Every worker makes them once, before its first
// element of the array.
struct ArraySetup {
  std::vector<std::string> directories;
  std::vector<NewFile> files;
};

struct Execution {
  specs::Element element = 0;
  std::uint32_t attempt = 0;
  bool restart = false;
  std::uint64_t count = 1;     // elements of this process, within one bundle
  bool through_shell = false;  // use a shell even if the command needs none: its program could not be started
  std::vector<std::string> nodes = {};        // names of the nodes of a task on several, this one first
  std::uint64_t lease = 0;                    // lease of a task on several nodes
  std::vector<specs::LeftOut> left_out = {};  // samples that a conversion leaves out
};

struct PreparedTask {
  std::string program;  // a path, relative to `directory` or absolute; empty: argv[0]
  std::vector<std::string> argv;
  bool direct = false;    // starts the command itself, without a shell
  std::string directory;  // the working directory, created if missing
  std::string
      starts_in;  // for a direct, packed task: the folder where the program starts; empty: `directory`
  // Nothing names `directory` before the task has ended: the task may run elsewhere, and the worker then
  // moves the files from its working directory. It is not made if no files are left.
  bool directory_on_demand = false;
  std::vector<NewFile> files;   // written before the start
  bool packed = false;          // output goes into the step's packed files; out_file and err_file are empty
  std::string out_file;         // relative to `directory`; appended to
  std::string err_file;         // relative to `directory`; appended to
  std::string finished_marker;  // created when the task has ended with 0; empty: none
  std::vector<std::string> environment;  // "KEY=value" of this element, beside those of the array
};

// There is one for each task array; immutable. prepare() runs for every task, so it makes only the necessary
// system calls.
class Step {
 public:
  virtual ~Step() = default;
  virtual ArraySetup setup() const = 0;
  virtual PreparedTask prepare(const Execution& execution) const = 0;
};

// `samples` may be null for a study without any; it and the template must outlive the step. `environment` is
// the array's (array_environment); without it every command goes through its shell. Throws Error{data} for
// a template that needs samples if there are none.
std::unique_ptr<const Step> make_step(const specs::TaskTemplate& task_template,
                                      const specs::SampleTable* samples,
                                      std::span<const std::string> environment = {});

// ---- the environment of tasks, in three layers: the worker's own, the array's, the element's (PreparedTask)

// Returns `environment` ("KEY=value" each) without the variables of a task that this process may itself be,
// and with the folder of wflow's programs first in PATH.
std::vector<std::string> worker_environment(const std::vector<std::string>& environment,
                                            const std::string& program_directory);

// Returns the worker's environment with the array's own variables, WFLOW_WORKSPACE, WFLOW_CAMPAIGN, the cores
// of a rank, at most those of the worker, as WFLOW_CORES and OMP_NUM_THREADS (kept if the user has set it),
// and the campaign's own programs first in PATH.
std::vector<std::string> array_environment(const std::vector<std::string>& worker,
                                           const specs::TaskTemplate& task_template, int worker_cores);

// "WFLOW_LEASE=...": all processes of a task on several nodes have it, and nothing else of the campaign.
std::string lease_variable(std::uint64_t lease);

// The calling process's environment as a list.
std::vector<std::string> own_environment();

// ---- the kinds of steps, for make_step(), and the functions that they share

std::unique_ptr<const Step> make_shell(const specs::TaskTemplate& task_template,
                                       const specs::SampleTable* samples,
                                       std::span<const std::string> environment);
std::unique_ptr<const Step> make_convert(const specs::TaskTemplate& task_template,
                                         const specs::SampleTable* samples);
std::unique_ptr<const Step> make_train(const specs::TaskTemplate& task_template);
std::unique_ptr<const Step> make_propose(const specs::TaskTemplate& task_template,
                                         const specs::SampleTable* samples);
std::unique_ptr<const Step> make_plugin(const specs::TaskTemplate& task_template);

// Returns the working directory of a process that begins with `element`, "<workspace>/00/07": a sample's
// directory, or a bundle's, which are laid out as if bundles were samples.
std::string working_directory(const specs::TaskTemplate& task_template, specs::Element element);

// The same for a sample, or its bundle of `bundle` samples, of the step that a conversion or a proposal
// reads.
std::string source_directory(const specs::TaskTemplate& task_template, std::uint64_t row,
                             std::uint64_t bundle);

// Returns the variables that name one execution.
std::vector<std::string> element_environment(const specs::TaskTemplate& task_template,
                                             const Execution& execution);

// Returns a suffix for files of a process that has only a part of its bundle, because several such processes
// may run in one directory. Empty for a whole bundle.
std::string process_suffix(const specs::TaskTemplate& task_template, const Execution& execution);

}  // namespace wflow::steps
