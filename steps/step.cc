// SPDX-License-Identifier: Apache-2.0
#include "steps/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/blocks.h"
#include "base/error.h"
#include "base/text.h"
#include "specs/plan/plan.h"
#include "steps/environment.h"
#include "steps/kinds.h"

namespace wflow::steps {

std::unique_ptr<const Step> make_step(const specs::TaskTemplate& task_template,
                                      const specs::SampleTable* samples,
                                      std::span<const std::string> environment) {
  switch (task_template.kind) {
    case specs::StepKind::shell:
      return make_shell(task_template, samples, environment);
    case specs::StepKind::convert:
      return make_convert(task_template, samples);
    case specs::StepKind::train:
      return make_train(task_template);
    case specs::StepKind::plugin:
      return make_plugin(task_template);
  }
  throw Error(ExitCode::internal, "a step of an unknown kind");
}

std::string working_directory(const specs::TaskTemplate& t, specs::Element element) {
  if (!t.sample_dependent) return t.workspace;
  std::string path;
  if (t.bundle == 0) {
    path = specs::sample_path(element, layout_of(t), t.level_max_dirs);
  } else {
    const Blocks bundles(t.bundle, t.sample_starts);
    path = specs::sample_path(bundles.block_of(element), bundles.count(layout_of(t)), t.level_max_dirs);
  }
  return path.empty() ? t.workspace : t.workspace + "/" + path;
}

std::string process_suffix(const specs::TaskTemplate& t, const Execution& execution) {
  if (t.bundle == 0) return {};
  const BlockRange bundle = Blocks(t.bundle, t.sample_starts).around(execution.element, t.sample_count);
  const bool whole = execution.element == bundle.first && execution.count == bundle.size();
  return whole ? "" : fmt::format("-{}-{}", execution.element, execution.count);
}

std::vector<std::string> element_environment(const specs::TaskTemplate& task_template,
                                             const Execution& execution) {
  std::vector<std::string> environment;
  environment.reserve(6);  // with room for what the worker adds
  environment.push_back("WFLOW_TASK=" +
                        specs::numbered_task_name(specs::array_name(task_template.step, task_template.label),
                                                  execution.element));
  environment.push_back("WFLOW_ATTEMPT=" + std::to_string(execution.attempt));
  if (task_template.bundle > 0) {
    environment.push_back("WFLOW_FIRST=" + std::to_string(execution.element));
    environment.push_back("WFLOW_COUNT=" + std::to_string(execution.count));
  } else if (task_template.sample_dependent) {
    environment.push_back("WFLOW_SAMPLE_ID=" + std::to_string(execution.element));
  }
  const specs::Resources& asked = task_template.resources;
  const int nodes = std::max<int>(1, static_cast<int>(execution.nodes.size()));
  const int ranks = execution.nodes.empty() ? asked.procs : specs::ranks_on(asked, nodes);
  if (ranks > 1 || nodes > 1) environment.push_back("WFLOW_WORLD_SIZE=" + std::to_string(ranks));
  if (execution.nodes.empty()) return environment;
  environment.push_back("WFLOW_NODES=" + text::join(execution.nodes, ","));
  environment.push_back(lease_variable(execution.lease));
  return environment;
}

}  // namespace wflow::steps
