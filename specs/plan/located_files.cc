// SPDX-License-Identifier: Apache-2.0
// The one part of a plan that asks the file system: where the files are that train:, plugin: and
// propose: blocks name.
#include <initializer_list>
#include <utility>

#include "base/file.h"
#include "specs/plan/expansion.h"
#include "specs/plan/plan.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

// The file of a block that may be one or name one.
void add_file_key(const yaml::Node& settings, const char* name, yaml::Node& keys) {
  const yaml::Node* block = settings.find(name);
  const yaml::Node* file = block != nullptr && block->is_map() ? block->find("file") : block;
  if (file != nullptr && file->is_scalar())
    set_key(keys, name, block->is_map() ? yaml::map({{"file", *file}}) : *file);
}

// Returns the keys of a step's block that name files; of `model:` and `loss:`, only the file.
yaml::Node file_keys(const yaml::Node& settings) {
  yaml::Node keys = yaml::map({});
  for (const char* name : {"data", "init_from", "library", "directory", "heads", "metrics", "models"}) {
    if (const yaml::Node* value = settings.find(name); value != nullptr) set_key(keys, name, *value);
  }
  add_file_key(settings, "model", keys);
  add_file_key(settings, "loss", keys);
  return keys;
}

}  // namespace

Plan::Plan(Study study, const std::filesystem::path& campaign)
    : Plan(std::move(study), absolute_path(campaign).lexically_normal(), LocatedFiles()) {
  located_ = locate_files();
}

// Looks once for each text: most blocks name the same files for all combinations of parameters.
LocatedFiles Plan::locate_files() const {
  LocatedFiles located;
  const auto add_file = [&](const std::string& text) {
    if (!located.files.contains(text)) located.files.emplace(text, locate(*study_, text).string());
  };
  for (const PlannedStep& planned : steps_) {
    if (planned.kind == StepKind::shell || planned.kind == StepKind::convert) continue;
    const Step& step = study_->steps[planned.study_step];
    const yaml::Node keys = file_keys(step.settings);
    const std::uint32_t combinations = has_token(keys) ? planned.arrays : 1;
    for (std::uint32_t i = 0; i < combinations; ++i) {
      yaml::Node settings = keys;
      replace_tokens(
          settings,
          [&](std::string_view name) {
            return expansion_->resolve(campaign_, planned.study_step, expansion_->row(planned.study_step, i),
                                       name);
          },
          kTokenLevels);
      if (planned.kind == StepKind::plugin) {
        const auto text_of = [&](const char* key, const char* otherwise) {
          const yaml::Node* node = settings.find(key);
          return node == nullptr ? std::string(otherwise) : node->text;
        };
        const std::string library = text_of("library", kCommandLibrary);
        if (!located.libraries.contains(library))
          located.libraries.emplace(library, locate_library(*study_, library).string());
        add_file(text_of("directory", "."));
        continue;
      }
      if (planned.kind == StepKind::propose) {
        for (const yaml::Node& model : items_of(settings.find("models"))) add_file(model.text);
        continue;
      }
      const yaml::Node* data = settings.find("data");
      if (!expansion_->step_index(source_step(step))) add_file(data == nullptr ? "" : data->text);
      if (const yaml::Node* init = settings.find("init_from"); init != nullptr && init->is_scalar())
        add_file(init->text);
      for (const yaml::Node& file : trainer::module_files(settings)) add_file(file.text);
    }
  }
  return located;
}

}  // namespace wflow::specs
