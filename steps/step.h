// SPDX-License-Identifier: Apache-2.0
// What one execution of one element of a task array is, worked out on the worker that runs it: program,
// files, working directory. Nothing here starts a process; the worker does.
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

// What all elements of an array share; made once by every worker before the array's first element there.
struct ArraySetup {
  std::vector<std::string> directories;
  std::vector<NewFile> files;
};

struct Execution {
  specs::Element element = 0;
  std::uint32_t attempt = 0;
  bool restart = false;
  std::uint64_t count = 1;     // elements of this process, within one bundle
  bool through_shell = false;  // also where the command needs no shell: its program could not be started
  std::vector<std::string> nodes = {};  // of a task on several: their names, this one first
  std::uint64_t lease = 0;              // of such a task
  std::vector<specs::LeftOut> left_out = {};  // samples that a conversion leaves out
};

struct PreparedTask {
  std::string program;  // a path, from `directory` where relative; empty: argv[0]
  std::vector<std::string> argv;
  bool direct = false;    // the command itself, without a shell
  std::string directory;  // made where missing; the working directory
  std::string starts_in;  // of a direct, packed one: where the program starts in its place; empty: there
  // Nothing names `directory` before the task has ended: it may run elsewhere, and what it leaves in its
  // working directory is moved there; it is not made where nothing is left.
  bool directory_on_demand = false;
  std::vector<NewFile> files;   // written before the start
  bool packed = false;          // output goes into the step's packed files; out_file, err_file are empty
  std::string out_file;         // relative to `directory`; appended to
  std::string err_file;         // the same
  std::string finished_marker;  // made when the task ended with 0; empty: none
  std::vector<std::string> environment;  // "KEY=value" of this element, beside those of the array
};

// One a task array; immutable. prepare() is on the path of every task: no system call but those that it must
// make.
class Step {
 public:
  virtual ~Step() = default;
  virtual ArraySetup setup() const = 0;
  virtual PreparedTask prepare(const Execution& execution) const = 0;
};

// `samples` may be null for a study without any; it and the template must outlive the step. `environment` is
// the array's (steps/environment.h); without it every command goes through its shell. Throws Error{data} for
// a template that asks for samples there are none of.
std::unique_ptr<const Step> make_step(const specs::TaskTemplate& task_template,
                                      const specs::SampleTable* samples,
                                      std::span<const std::string> environment = {});

}  // namespace wflow::steps
