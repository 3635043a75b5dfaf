// SPDX-License-Identifier: Apache-2.0
// Training steps: wflow-train, under mpirun if it has several ranks. A restart is the same command:
// the training continues from its own last checkpoint.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "base/program_file.h"
#include "base/trainer_mpi.h"
#include "base/yaml.h"
#include "specs/study/blocks.h"
#include "steps/step.h"

namespace wflow::steps {

namespace {

std::string mpirun() {
  if (auto found = find_mpirun()) return *std::move(found);
  throw Error(ExitCode::system,
              fmt::format("training on several ranks needs {}, which is not in PATH; install {}",
                          mpirun_name(), kTrainsOnMpich ? "mpich" : "openmpi-bin"));
}

// A stage of a training that follows its data set makes the data set of the first blocks beforehand. The
// words of a command that does that, and then becomes the command behind them; none for any other training.
std::vector<std::string> makes_data(const specs::TaskTemplate& task) {
  const auto* config = std::get_if<trainer::TrainConfig>(&task.settings);
  if (config == nullptr || !config->follow.is_stage()) return {};
  return {"/bin/sh",
          "-c",
          R"("$1" "$2" --finish --first-blocks "$3" --into "$4" && shift 4 && exec "$@")",
          "sh",
          sibling_program("wflow-convert"),
          config->follow.source + "/.wflow-convert/config.yaml",
          std::to_string(config->follow.blocks),
          config->data};
}

class Train final : public Step {
 public:
  explicit Train(const specs::TaskTemplate& task_template) : template_(task_template) {
    const int ranks = template_.resources.procs;
    if (ranks > 1) argv_ = mpirun_words(mpirun(), ranks);
    // A simulation that runs again after the training changes the training data.
    const std::vector<std::string> program = {sibling_program("wflow-train"),
                                              template_.workspace + "/train.yaml", "--fresh-on-new-data"};
    if (template_.resources.nodes > 1) across_nodes_ = {sibling_program("wflow"), "launch", "--"};
    const std::vector<std::string> before = makes_data(template_);
    for (std::vector<std::string>* argv : {&argv_, &across_nodes_}) {
      argv->insert(argv->end(), program.begin(), program.end());
      argv->insert(argv->begin(), before.begin(), before.end());
    }
  }

  ArraySetup setup() const override {
    return {{template_.workspace},
            {{template_.workspace + "/train.yaml", yaml::emit(specs::to_yaml(template_.settings))}}};
  }

  PreparedTask prepare(const Execution& execution) const override {
    PreparedTask task;
    task.argv = execution.nodes.size() > 1 ? across_nodes_ : argv_;
    task.directory = template_.workspace;
    task.out_file = "train.out";
    task.err_file = "train.err";
    task.environment = element_environment(template_, execution);
    return task;
  }

 private:
  const specs::TaskTemplate& template_;
  std::vector<std::string> argv_;
  std::vector<std::string> across_nodes_;  // the command for several nodes
};

}  // namespace

std::unique_ptr<const Step> make_train(const specs::TaskTemplate& task_template) {
  return std::make_unique<Train>(task_template);
}

}  // namespace wflow::steps
