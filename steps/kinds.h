// SPDX-License-Identifier: Apache-2.0
// The kinds of steps, for make_step().
#pragma once

#include <memory>

#include "steps/step.h"

namespace wflow::steps {

std::unique_ptr<const Step> make_shell(const specs::TaskTemplate& task_template,
                                       const specs::SampleTable* samples,
                                       std::span<const std::string> environment);
std::unique_ptr<const Step> make_convert(const specs::TaskTemplate& task_template,
                                         const specs::SampleTable* samples);
std::unique_ptr<const Step> make_train(const specs::TaskTemplate& task_template);

// The variables that name one execution.
std::vector<std::string> element_environment(const specs::TaskTemplate& task_template,
                                             const Execution& execution);

}  // namespace wflow::steps
