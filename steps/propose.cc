// SPDX-License-Identifier: Apache-2.0
// Propose steps: run `wflow propose` once, with the samples and the files of their values.
#include "base/csv.h"
#include "base/error.h"
#include "base/process.h"
#include "base/yaml.h"
#include "specs/study/blocks.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

class Propose final : public Step {
 public:
  Propose(const specs::TaskTemplate& task_template, const specs::SampleTable* samples)
      : template_(task_template), samples_(samples), program_(sibling_program("wflow")) {
    if (const auto* unread = std::get_if<specs::UnreadBlock>(&template_.settings))
      throw Error(ExitCode::spec, unread->errors);
    if (samples_ == nullptr) throw Error(ExitCode::data, "a propose: step needs samples");
  }

  ArraySetup setup() const override {
    return {{template_.workspace, own_directory()},
            {{config_path(), yaml::emit(specs::to_yaml(template_.settings))}, {samples_path(), table()}}};
  }

  PreparedTask prepare(const Execution& execution) const override {
    PreparedTask task;
    task.directory = template_.workspace;
    task.argv = {program_, "propose", config_path(), "--samples", samples_path()};
    task.out_file = template_.script + ".out";
    task.err_file = template_.script + ".err";
    task.environment = element_environment(template_, execution);
    return task;
  }

 private:
  std::string own_directory() const { return template_.workspace + "/.wflow-propose"; }
  std::string config_path() const { return own_directory() + "/config.yaml"; }
  std::string samples_path() const { return own_directory() + "/samples.csv"; }

  // A row for each sample: its values, and the file with its result.
  std::string table() const {
    const auto& config = std::get<propose::ProposeConfig>(template_.settings);
    std::string text;
    for (const std::string& name : samples_->columns()) text += csv::cell(name) + ",";
    text += "file\n";
    for (std::uint64_t row = 0; row < samples_->count(); ++row) {
      for (std::size_t column = 0; column < samples_->columns().size(); ++column)
        text += csv::cell(samples_->text(row, column)) + ",";
      text += csv::cell(source_directory(template_, row, 0) + "/" + config.file) + "\n";
    }
    return text;
  }

  const specs::TaskTemplate& template_;
  const specs::SampleTable* samples_;
  std::string program_;
};

}  // namespace

std::unique_ptr<const Step> make_propose(const specs::TaskTemplate& task_template,
                                         const specs::SampleTable* samples) {
  return std::make_unique<Propose>(task_template, samples);
}

}  // namespace wflow::steps
