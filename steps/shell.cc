// SPDX-License-Identifier: Apache-2.0
// Shell steps, with the files that Merlin leaves: a script, its output beside it, MERLIN_FINISHED after
// success.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "steps/command.h"
#include "steps/files.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

// One of the two texts of a step, and the way to run it.
struct Script {
  const specs::Pieces* body = nullptr;
  std::string base;         // file name without ".sh"
  bool shared = false;      // the text is the same for every element
  std::string shared_path;  // path of the shared text, if a shell runs it
  std::string program;      // program to start directly; empty: all elements go through the shell
  std::string folder;  // FOLDER of `cd FOLDER && ...`: start the program there; empty: the working directory
  specs::Pieces rest;  // with `folder`: the command after it
};

// Maestro, which writes Merlin's scripts, removes characters such as "=" from the name of a script, and not
// from that of a restart script. In both, blanks become "_".
std::string restart_base(const specs::TaskTemplate& task) {
  std::string name = task.label.empty() ? task.step : task.step + "_" + task.label;
  std::ranges::replace(name, ' ', '_');
  std::erase(name, '/');
  return name + ".restart";
}

constexpr std::size_t kMaxArgument = 120'000;  // the kernel's limit for one argument is 131,071 bytes

// Splits "#!/usr/bin/env python3" as the kernel does: the program, and all the rest as one argument.
// A direct start of the interpreter spares the kernel a second read of the file, and works on file systems
// without execution.
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

// Returns the program of a command that can be started without a shell for some samples at least: its
// first word must be plain and the same for all samples.
std::string direct_program(const specs::Pieces& body, std::span<const std::string> environment) {
  if (body.empty() || body.front().kind != specs::Piece::Kind::literal) return {};
  std::string_view first = body.front().text;
  first.remove_prefix(std::min(first.find_first_not_of(' '), first.size()));
  const std::size_t end = first.find_first_of(" \t\n");
  if (end == std::string_view::npos && body.size() > 1) return {};
  const auto words = plain_words(first.substr(0, end));
  std::string all;  // the command with a harmless value for every token
  for (const specs::Piece& piece : body) all += piece.kind == specs::Piece::Kind::literal ? piece.text : "0";
  if (!words || words->size() != 1 || !plain_words(all)) return {};
  return program_path(words->front(), environment).value_or("");
}

// Splits `cd /path && program ...` into the path and the command after it.
std::optional<std::pair<std::string, specs::Pieces>> behind_cd(const specs::Pieces& body) {
  constexpr std::string_view kAnd = " && ";
  if (body.empty() || body.front().kind != specs::Piece::Kind::literal) return std::nullopt;
  const std::string& text = body.front().text;
  const std::size_t end = text.find(kAnd);
  if (!text.starts_with("cd ") || end == std::string::npos) return std::nullopt;
  const auto words = plain_words(std::string_view(text).substr(0, end));
  if (!words || words->size() != 2 || !words->at(1).starts_with('/')) return std::nullopt;
  specs::Pieces rest = body;
  rest.front().text = text.substr(end + kAnd.size());
  return std::pair(words->at(1), std::move(rest));
}

class Shell final : public Step {
 public:
  Shell(const specs::TaskTemplate& task_template, const specs::SampleTable* samples,
        std::span<const std::string> environment)
      : template_(task_template),
        samples_(samples),
        packed_(template_.output == specs::OutputMode::packed),
        interpreter_(interpreter(task_template.shell)),
        takes_text_(takes_text(interpreter_)) {
    const bool may_be_direct = !template_.shell_given && takes_text_ && interpreter_.size() == 1;
    if (!may_be_direct) environment = {};
    command_ = make_script(template_.command, template_.script, environment);
    restart_ = template_.restart.empty()
                   ? command_
                   : make_script(template_.restart, restart_base(template_), environment);
    names_directory_ = names_directory(command_) || names_directory(restart_);
  }

  ArraySetup setup() const override {
    ArraySetup setup{{template_.workspace}, {}};
    for (const Script* script : {&command_, &restart_}) {
      if (script == &restart_ && template_.restart.empty()) break;  // the command again
      if (const std::string path = shared_file(*script); !path.empty())
        setup.files.push_back({path, file_text(*script, 0, {})});
    }
    return setup;
  }

  PreparedTask prepare(const Execution& execution) const override {
    const Script& script = execution.restart ? restart_ : command_;
    PreparedTask task;
    task.directory = working_directory(template_, execution.element);
    task.environment = element_environment(template_, execution);
    const std::string suffix = process_suffix(template_, execution);
    BundleRows rows;
    if (template_.bundle > 0) {
      rows = {task.directory + "/samples" + suffix + ".csv", execution.element, execution.count};
      task.files.push_back({rows.file, samples_csv(*samples_, rows.first, rows.count)});
      task.environment.push_back("WFLOW_SAMPLES_FILE=" + rows.file);
    }
    if (execution.through_shell || !start_directly(script, execution.element, rows, task)) {
      start_shell(script, execution.element, rows, suffix, task);
    }
    // Merlin writes both scripts before the first execution.
    const bool leave_restart = template_.shell_given && !template_.restart.empty() && !execution.restart;
    if (leave_restart && !packed_ && template_.bundle == 0 && restart_.shared_path.empty())
      task.files.push_back(
          {task.directory + "/" + restart_.base + ".sh", file_text(restart_, execution.element, rows)});
    task.packed = packed_;
    task.directory_on_demand =
        packed_ && task.directory != template_.workspace && !names_directory_ && task.files.empty();
    if (packed_) return task;
    task.out_file = script.base + ".out";
    task.err_file = script.base + ".err";
    task.finished_marker = task.directory + "/" + kFinishedMarker;
    return task;
  }

 private:
  // A step without samples leaves its script, as in Merlin and Maestro, even if no shell has to read it.
  std::string shared_file(const Script& script) const {
    const bool leaves = script.shared && !packed_ && !template_.sample_dependent;
    return leaves ? template_.workspace + "/" + script.base + ".sh" : script.shared_path;
  }

  Script make_script(const specs::Pieces& body, const std::string& base,
                     std::span<const std::string> environment) const {
    check_columns(body, samples_);
    if (template_.bundle > 0 && samples_ == nullptr)
      throw Error(ExitCode::data, "a step takes bundles of samples, and there are no samples");
    // Scripts that users may want to read are written in every sample's directory.
    const bool own_script = template_.shell_given && template_.sample_dependent;
    Script script;
    script.body = &body;
    script.base = base + template_.suffix;
    script.shared = !has_sample_tokens(body) && !own_script;
    if (!environment.empty()) script.program = direct_program(body, environment);
    // Only with packed output: other output files have names in the working directory.
    auto elsewhere = packed_ && !environment.empty() ? behind_cd(body) : std::nullopt;
    if (elsewhere) {
      script.program = direct_program(elsewhere->second, environment);
      std::tie(script.folder, script.rest) = std::move(*elsewhere);
    }
    if (script.shared && script.program.empty())
      script.shared_path = template_.workspace + "/" + script.base + ".sh";
    return script;
  }

  static bool names_directory(const Script& script) {
    return std::any_of(script.body->begin(), script.body->end(),
                       [](const auto& piece) { return piece.kind == specs::Piece::Kind::sample_path; });
  }

  bool start_directly(const Script& script, std::uint64_t row, const BundleRows& rows,
                      PreparedTask& task) const {
    if (script.program.empty()) return false;
    auto words = plain_words(text_of(script.folder.empty() ? *script.body : script.rest, row, rows));
    if (!words) return false;  // this sample's cells contain characters that a shell would interpret
    task.argv = std::move(*words);
    task.program = script.program;
    task.direct = true;
    task.starts_in = script.folder;
    return true;
  }

  void start_shell(const Script& script, std::uint64_t row, const BundleRows& rows, const std::string& suffix,
                   PreparedTask& task) const {
    task.argv.reserve(interpreter_.size() + 3);
    task.argv = interpreter_;
    if (!script.shared_path.empty()) {
      task.argv.push_back(script.shared_path);
      return;
    }
    // A task with packed output, or with a program that could not be started, gets its script as an
    // argument.
    const std::string name = task.directory + "/" + script.base + suffix + ".sh";
    if (takes_text_ && (packed_ || script.shared)) {
      std::string text = text_of(*script.body, row, rows);
      if (text.size() <= kMaxArgument) {
        for (std::string word : {std::string("-c"), std::move(text), name})
          task.argv.push_back(std::move(word));
        return;
      }
    }
    task.argv.push_back(name);
    task.files.push_back({name, file_text(script, row, rows)});
  }

  std::string text_of(const specs::Pieces& body, std::uint64_t row, const BundleRows& rows) const {
    const std::string path = template_.sample_dependent && template_.bundle == 0
                                 ? specs::sample_path(row, layout_of(template_), template_.level_max_dirs)
                                 : "";
    return render(body, samples_, row, path, template_.bundle > 0 ? &rows : nullptr);
  }

  std::string file_text(const Script& script, std::uint64_t row, const BundleRows& rows) const {
    std::string text = "#!" + (template_.shell.empty() ? "/bin/bash" : template_.shell) + "\n\n";
    text += text_of(*script.body, row, rows);
    if (!text.ends_with('\n')) text += '\n';
    return text;
  }

  const specs::TaskTemplate& template_;
  const specs::SampleTable* samples_;
  bool packed_ = false;
  std::vector<std::string> interpreter_;
  bool takes_text_ = false;  // after "-c"
  bool names_directory_ = false;
  Script command_;
  Script restart_;
};

}  // namespace

std::unique_ptr<const Step> make_shell(const specs::TaskTemplate& task_template,
                                       const specs::SampleTable* samples,
                                       std::span<const std::string> environment) {
  return std::make_unique<Shell>(task_template, samples, environment);
}

}  // namespace wflow::steps
