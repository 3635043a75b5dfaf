// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/expansion.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "specs/plan/launcher.h"
#include "specs/study/blocks.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

bool is_funnel(const Step& step, std::string_view parent) {
  return std::any_of(step.depends.begin(), step.depends.end(), [&](const Dependency& dependency) {
    return dependency.step == parent && dependency.funnel;
  });
}

}  // namespace

Expansion::Expansion(const Study& study) : study_(study) {
  for (std::size_t i = 0; i < study.steps.size(); ++i) step_index_.emplace(study.steps[i].name, i);
  for (std::size_t i = 0; i < study.parameters.size(); ++i) {
    parameter_index_.emplace(study.parameters[i].name, static_cast<std::uint32_t>(i));
  }
  for (const auto& [name, value] : study.labels) labels_.emplace(name, value);
  for (const auto& [name, value] : study.labels)
    labels_.emplace(upper(name), value);  // in upper case, like variables
  if (study.samples) {
    const auto& columns = study.samples->design.columns;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns_.emplace(columns[i].name, static_cast<std::uint32_t>(i));
      lower_columns_.emplace(text::lower(columns[i].name), static_cast<std::uint32_t>(i));
    }
  }
  WhenConditions conditions(study);
  find_used_parameters(conditions);
  find_left_out(conditions);
  problems_ = conditions.problems();
  find_sample_dependent_steps();
}

std::optional<std::size_t> Expansion::step_index(std::string_view name) const {
  const auto at = step_index_.find(name);
  return at == step_index_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<std::uint32_t> Expansion::column(std::string_view token) const {
  const std::string_view name = without_quote(token);
  if (const auto at = columns_.find(name); at != columns_.end()) return at->second;
  const auto at = lower_columns_.find(text::lower(name));
  return at == lower_columns_.end() ? std::nullopt : std::optional(at->second);
}

std::string Expansion::with_labels(std::string_view text) const {
  return replace_tokens(
      text,
      [&](std::string_view name) -> std::optional<std::string> {
        const auto at = labels_.find(name);
        return at == labels_.end() ? std::nullopt : std::optional(at->second);
      },
      kTokenLevels);
}

namespace {

// Maestro takes a token for a use of the parameter if these follow its name: dots, then letters, digits and
// underscores.
bool begins_token(std::string_view parameter, std::string_view token) {
  if (!token.starts_with(parameter)) return false;
  token.remove_prefix(parameter.size());
  token.remove_prefix(std::min(token.find_first_not_of('.'), token.size()));
  return std::ranges::all_of(token, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

}  // namespace

// The parameters that `text` itself names.
void Expansion::add_used(std::string_view text, std::vector<bool>& used) const {
  for (auto token = find_token(text); token; token = find_token(text, token->end)) {
    if (study_.options.uses_by_prefix) {
      for (const auto& [name, index] : parameter_index_) {
        if (begins_token(name, token->name)) used[index] = true;
      }
    }
    for (const std::string_view name : {token->name, parameter_of(token->name)}) {
      const auto at = parameter_index_.find(name);
      if (at != parameter_index_.end()) used[at->second] = true;
    }
  }
}

void Expansion::find_used_parameters(const WhenConditions& conditions) {
  const std::size_t count = study_.steps.size();
  std::vector<std::vector<bool>> used(count, std::vector<bool>(study_.parameters.size()));
  std::vector<std::vector<std::size_t>> inherits(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = study_.steps[i];
    const auto look_at = [&](std::string_view written) {
      const std::string text = with_labels(written);
      add_used(text, used[i]);
      for (auto token = find_token(text); token; token = find_token(text, token->end)) {
        if (!token->name.ends_with(kWorkspaceSuffix)) continue;
        const std::string_view name = token->name.substr(0, token->name.size() - kWorkspaceSuffix.size());
        const auto other = step_index(name);
        if (other && *other != i && !is_funnel(step, name)) inherits[i].push_back(*other);
      }
    };
    for (const std::string* text :
         {&step.description, &step.command, &step.restart, &step.shell, &step.task_queue}) {
      look_at(*text);
    }
    look_at(conditions.tokens(i));
    for (const auto& [key, value] : step.launcher_keys) look_at(value);
    for (const StepOutput& output : step.outputs) look_at(output.file);
    for_each_scalar(step.settings, [&](const yaml::Node& node, bool) { look_at(node.text); });
    for (const Dependency& dependency : step.depends) {
      const auto parent = step_index(dependency.step);
      if (parent && !dependency.funnel) inherits[i].push_back(*parent);
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::size_t parent : inherits[i]) {
        for (std::size_t p = 0; p < used[i].size(); ++p) {
          if (!used[parent][p] || used[i][p]) continue;
          used[i][p] = true;
          changed = true;
        }
      }
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::uint32_t> parameters;
    for (const auto& [name, index] : parameter_index_) {  // sorted by name
      if (used[i][index]) parameters.push_back(index);
    }
    make_group(parameters);
    used_.push_back(std::move(parameters));
  }
}

// Refines the group without the last parameter by that parameter's labels: equal labels are one directory,
// and so one instance.
const Instances& Expansion::make_group(const std::vector<std::uint32_t>& parameters) {
  if (const auto at = groups_.find(parameters); at != groups_.end()) return at->second;
  Instances group;
  group.parameters = parameters;
  if (parameters.empty()) {
    group.rows = {0};
    return groups_.emplace(parameters, std::move(group)).first->second;
  }
  const Instances& coarse = make_group({parameters.begin(), parameters.end() - 1});
  const Parameter& last = study_.parameters[parameters.back()];
  std::unordered_map<std::string_view, std::uint32_t> label_ids;
  std::unordered_map<std::uint64_t, std::uint32_t> ids;
  for (std::uint32_t row = 0; row < last.labels.size(); ++row) {
    const auto label =
        label_ids.emplace(last.labels[row], static_cast<std::uint32_t>(label_ids.size())).first->second;
    const std::uint64_t key = (std::uint64_t{coarse.at_row(row)} << 32) | label;
    const auto [at, fresh] = ids.emplace(key, group.count());
    if (fresh) group.rows.push_back(row);
    group.instance_of.push_back(at->second);
  }
  return groups_.emplace(parameters, std::move(group)).first->second;
}

// Removing a step's source removes the step, too; sources come first.
void Expansion::find_left_out(WhenConditions& conditions) {
  kept_.resize(study_.steps.size());
  std::vector<bool> seen(study_.steps.size());
  const std::function<void(std::size_t)> find = [&](std::size_t step) {
    if (seen[step]) return;
    seen[step] = true;  // before its source: a cycle is reported later
    const auto source = step_index(source_step(study_.steps[step]));
    if (source) find(*source);
    if (!conditions.has(step) && (!source || !kept_[*source])) return;
    const Instances& all = group(step);
    kept_[step].emplace(all.count(), [&](std::uint32_t instance) {
      const std::uint32_t row = all.rows[instance];
      return conditions.holds(step, row) && (!source || combination_at(*source, row));
    });
  };
  for (std::size_t i = 0; i < study_.steps.size(); ++i) find(i);
}

std::uint32_t Expansion::count(std::size_t step) const {
  return kept_[step] ? kept_[step]->count() : group(step).count();
}

std::uint32_t Expansion::row(std::size_t step, std::uint32_t combination) const {
  return group(step).rows[kept_[step] ? kept_[step]->at(combination) : combination];
}

std::optional<std::uint32_t> Expansion::combination_at(std::size_t step, std::uint32_t row) const {
  const std::uint32_t instance = group(step).at_row(row);
  if (!kept_[step]) return instance;
  return kept_[step]->contains(instance) ? std::optional(kept_[step]->position(instance)) : std::nullopt;
}

// True if the token makes a step run once a sample. In Merlin's files a column must be written as in
// column_labels to do so; once a step is one of samples, its tokens are found in any case.
bool Expansion::makes_samples(std::string_view name) const {
  const bool exact = study_.format.dialect == Dialect::merlin;
  return sample_token(name) || (exact ? columns_.contains(without_quote(name)) : column(name).has_value());
}

// True if `text`, with its labels replaced, has a token that differs from sample to sample. The values of a
// parameter may contain such a token, too.
bool Expansion::names_samples(std::string_view text) const {
  for (auto token = find_token(text); token; token = find_token(text, token->end)) {
    if (makes_samples(token->name)) return true;
    const auto parameter = parameter_index_.find(token->name);
    if (parameter == parameter_index_.end()) continue;
    for (const std::string& value : study_.parameters[parameter->second].values) {
      for (auto inner = find_token(value); inner; inner = find_token(value, inner->end)) {
        if (makes_samples(inner->name)) return true;
      }
    }
  }
  return false;
}

void Expansion::find_sample_dependent_steps() {
  for (const Step& step : study_.steps) {
    const bool named = study_.samples &&
                       (names_samples(with_labels(step.command)) || names_samples(with_labels(step.restart)));
    sample_dependent_.push_back(step.bundle > 0 || named);
  }
}

std::string Expansion::label(std::size_t step, std::uint32_t row) const {
  std::vector<std::string> labels;
  for (const std::uint32_t index : used_[step]) labels.push_back(study_.parameters[index].labels[row]);
  return text::join(labels, ".");
}

fs::path Expansion::workspace(const fs::path& campaign, std::size_t step, std::uint32_t row) const {
  const fs::path directory = campaign / clean_path(study_.steps[step].name);
  return used_[step].empty() ? directory : directory / clean_path(label(step, row));
}

std::optional<std::string> Expansion::label_or_parameter(std::string_view name, std::uint32_t row) const {
  if (const auto at = labels_.find(name); at != labels_.end()) return at->second;
  for (const std::string_view parameter : {name, parameter_of(name)}) {
    const auto at = parameter_index_.find(parameter);
    if (at != parameter_index_.end()) return parameter_text(study_.parameters[at->second], name, row);
  }
  return std::nullopt;
}

std::optional<std::string> Expansion::resolve(const fs::path& campaign, std::size_t step, std::uint32_t row,
                                              std::string_view name) const {
  if (auto text = label_or_parameter(name, row)) return text;
  if (name == "WORKSPACE") return workspace(campaign, step, row).string();
  if (name.ends_with(kWorkspaceSuffix)) {
    const std::string_view other = name.substr(0, name.size() - kWorkspaceSuffix.size());
    const auto index = step_index(other);
    if (!index) return std::nullopt;
    if (is_funnel(study_.steps[step], other)) return (campaign / clean_path(other)).string();
    return workspace(campaign, *index, row).string();
  }
  if (name == "LAUNCHER") return launcher(study_, launcher_keys(campaign, step, row), resources(step, row));
  if (name == "VLAUNCHER")
    return variable_launcher(study_, launcher_keys(campaign, step, row), resources(step, row));
  if (const auto code = return_code(name)) return std::to_string(*code);
  if (!study_.samples) return std::nullopt;
  if (name == "MERLIN_GLOB_PATH") return glob_path(*study_.samples);
  if (name == "MERLIN_PATHS_ALL") return all_sample_paths(*study_.samples);
  if (name == "MERLIN_SAMPLE_NAMES") {
    std::vector<std::string> names;
    for (const SampleColumn& column : study_.samples->design.columns) names.push_back(column.name);
    return text::join(names, " ");
  }
  return std::nullopt;
}

ResolvedBlock Expansion::block(const fs::path& campaign, std::size_t step, std::uint32_t row) const {
  ResolvedBlock block{study_.steps[step].settings};
  replace_tokens(
      block.node,
      [&](std::string_view name) {
        auto value = resolve(campaign, step, row, name);
        block.has_values = block.has_values || value.has_value();
        return value;
      },
      kTokenLevels);
  return block;
}

Resources Expansion::resources(std::size_t step, std::uint32_t row) const {
  const Step& from = study_.steps[step];
  Resources result = from.resources;
  const auto put = [&](std::string_view key, int& number) {
    const auto at = from.launcher_keys.find(std::string(key));
    if (at == from.launcher_keys.end() || !find_token(at->second)) return;
    const std::string value = replace_tokens(
        std::string_view(at->second), [&](std::string_view name) { return label_or_parameter(name, row); });
    if (const auto whole = text::to_integer(text::trim(value)); whole && *whole >= 0 && *whole < 10'000'000) {
      number = static_cast<int>(*whole);
    }
  };
  put("nodes", result.nodes);
  put("procs", result.procs);
  put("min_nodes", result.min_nodes);
  put("cores per task", result.cores);
  put("cores", result.cores);
  const bool merlin = study_.format.dialect == Dialect::merlin;
  for (const char* key : {merlin ? "gpus" : "gpus per task", merlin ? "gpus per task" : "gpus"})
    put(key, result.gpus);
  return result;
}

LauncherKeys Expansion::launcher_keys(const fs::path& campaign, std::size_t step, std::uint32_t row) const {
  LauncherKeys keys = study_.steps[step].launcher_keys;
  for (auto& [key, text] : keys) {
    text = replace_tokens(
        std::string_view(text),
        [&](std::string_view name) {
          const bool itself = name == "LAUNCHER" || name == "VLAUNCHER";
          return itself ? std::nullopt : resolve(campaign, step, row, name);
        },
        kTokenLevels);
  }
  return keys;
}

std::string parameter_text(const Parameter& parameter, std::string_view name, std::uint32_t row) {
  if (name == parameter.name) return parameter.values[row];
  return name.ends_with(".label") ? parameter.labels[row] : parameter.title;
}

std::string glob_path(const Samples& samples) {
  const std::string path = sample_path(0, samples.layout_count(), samples.level_max_dirs);
  const auto levels = path.empty() ? 0 : 1 + std::count(path.begin(), path.end(), '/');
  std::string glob;
  for (std::ptrdiff_t i = 0; i < levels; ++i) glob += "*/";
  return glob;
}

std::string all_sample_paths(const Samples& samples) {
  std::string all;
  for (std::uint64_t i = 0; i < samples.design.count; ++i) {
    if (i > 0) all += ' ';
    all += sample_path(i, samples.layout_count(), samples.level_max_dirs);
  }
  return all;
}

}  // namespace wflow::specs
