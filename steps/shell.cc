// SPDX-License-Identifier: Apache-2.0
// Shell steps as Merlin leaves them: a script, its output beside it, MERLIN_FINISHED after success.
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "steps/kinds.h"
#include "steps/render.h"

namespace wflow::steps {

namespace {

// One of the two texts of a step, and how it is run.
struct Script {
  const specs::Pieces* body = nullptr;
  std::string base;         // file name without suffix
  std::string shared_path;  // set when the text is the same for every element: one file for the array
};

// "#!/usr/bin/env python3" as the kernel takes it apart: the program, and all the rest as one argument.
// Starting the interpreter directly spares the kernel's second look at the file, and works where scripts may
// not be executed.
std::vector<std::string> interpreter(const std::string& shell) {
  const std::string_view text = text::trim(shell);
  const std::size_t end = text.find_first_of(" \t");
  std::string program(text.substr(0, end));
  if (program.empty()) program = "/bin/bash";
  if (program.find('/') == std::string::npos) program = find_program(program).value_or(program);
  std::vector<std::string> argv = {program};
  if (end != std::string_view::npos) argv.emplace_back(text::trim(text.substr(end)));
  return argv;
}

class Shell final : public Step {
 public:
  Shell(const specs::TaskTemplate& task_template, const specs::SampleTable* samples)
      : template_(task_template), samples_(samples), interpreter_(interpreter(task_template.shell)) {
    command_ = make_script(template_.command, template_.script);
    restart_ =
        template_.restart.empty() ? command_ : make_script(template_.restart, template_.script + ".restart");
  }

  ArraySetup setup() const override {
    ArraySetup setup{{template_.workspace}, {}};
    for (const Script* script : {&command_, &restart_}) {
      if (!script->shared_path.empty()) setup.files.push_back({script->shared_path, text_of(*script, 0, {})});
    }
    return setup;
  }

  PreparedTask prepare(const Execution& execution) const override {
    const Script& script = execution.restart ? restart_ : command_;
    PreparedTask task;
    task.directory = template_.workspace;
    std::string path;
    if (template_.sample_dependent) {
      path = specs::sample_path(execution.element, template_.sample_count, template_.level_max_dirs);
      if (!path.empty()) task.directory.append("/").append(path);
    }
    task.argv.reserve(interpreter_.size() + 1);
    task.argv = interpreter_;
    if (script.shared_path.empty()) {
      task.argv.push_back(task.directory + "/" + script.base + ".sh");
      task.files.push_back({task.argv.back(), text_of(script, execution.element, path)});
    } else {
      task.argv.push_back(script.shared_path);
    }
    task.out_file = script.base + ".out";
    task.err_file = script.base + ".err";
    task.finished_marker = task.directory + "/MERLIN_FINISHED";
    task.environment = element_environment(template_, execution);
    return task;
  }

 private:
  Script make_script(const specs::Pieces& body, const std::string& base) const {
    check_columns(body, samples_);
    return {&body, base, has_sample_tokens(body) ? "" : template_.workspace + "/" + base + ".sh"};
  }

  std::string text_of(const Script& script, std::uint64_t row, std::string_view path) const {
    std::string text = "#!" + (template_.shell.empty() ? "/bin/bash" : template_.shell) + "\n\n";
    text += render(*script.body, samples_, row, path);
    if (!text.ends_with('\n')) text += '\n';
    return text;
  }

  const specs::TaskTemplate& template_;
  const specs::SampleTable* samples_;
  std::vector<std::string> interpreter_;
  Script command_;
  Script restart_;
};

}  // namespace

std::unique_ptr<const Step> make_shell(const specs::TaskTemplate& task_template,
                                       const specs::SampleTable* samples) {
  return std::make_unique<Shell>(task_template, samples);
}

}  // namespace wflow::steps
