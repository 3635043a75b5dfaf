// SPDX-License-Identifier: Apache-2.0
// Plugin steps: wflow-plugin-host once a bundle of samples, started without a shell.
#include <fmt/format.h>

#include "base/process.h"
#include "base/yaml.h"
#include "specs/study/blocks.h"
#include "steps/files.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

class Plugin final : public Step {
 public:
  explicit Plugin(const specs::TaskTemplate& task_template)
      : template_(task_template), program_(sibling_program("wflow-plugin-host")) {}

  ArraySetup setup() const override {
    return {{template_.workspace, own_directory()},
            {{config_path(), yaml::emit(specs::to_yaml(template_.settings))}}};
  }

  PreparedTask prepare(const Execution& execution) const override {
    PreparedTask task;
    task.directory = working_directory(template_, execution.element);
    task.argv = {program_,
                 "--config",
                 config_path(),
                 "--first",
                 std::to_string(execution.element),
                 "--count",
                 std::to_string(execution.count)};
    task.out_file = template_.script + ".out";
    task.err_file = template_.script + ".err";
    task.finished_marker = task.directory + "/" + kFinishedMarker;
    task.environment = element_environment(template_, execution);
    return task;
  }

 private:
  std::string own_directory() const { return template_.workspace + "/.wflow-plugin"; }
  std::string config_path() const { return own_directory() + "/config.yaml"; }

  const specs::TaskTemplate& template_;
  std::string program_;
};

}  // namespace

std::unique_ptr<const Step> make_plugin(const specs::TaskTemplate& task_template) {
  return std::make_unique<Plugin>(task_template);
}

}  // namespace wflow::steps
