// SPDX-License-Identifier: Apache-2.0
// The kinds of steps, for make_step(), and what they share.
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
std::unique_ptr<const Step> make_plugin(const specs::TaskTemplate& task_template);

// "<workspace>/00/07": where a process that begins with `element` works: a sample's directory, or a bundle's,
// which are laid out as if bundles were samples.
std::string working_directory(const specs::TaskTemplate& task_template, specs::Element element);

// The variables that name one execution.
std::vector<std::string> element_environment(const specs::TaskTemplate& task_template,
                                             const Execution& execution);

// What names a process of a bundled step that has a part of its bundle only: several of them may run in one
// directory. Empty for a whole bundle.
std::string process_suffix(const specs::TaskTemplate& task_template, const Execution& execution);

}  // namespace wflow::steps
