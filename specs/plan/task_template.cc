// SPDX-License-Identifier: Apache-2.0
// Plan::task_template(): replaces all tokens of a step's text except those that differ from sample to sample.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/plan/launcher.h"
#include "specs/plan/plan.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

void add_text(Pieces& pieces, std::string_view text) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().kind != Piece::Kind::literal) pieces.emplace_back();
  pieces.back().text += text;
}

// The directory where the trainings of a train: step write.
struct TrainOutputs {
  const Study& study;
  const Expansion& expansion;
  const std::filesystem::path& campaign;
  std::size_t step;

  std::filesystem::path of(std::uint32_t row) const {
    const std::filesystem::path workspace = expansion.workspace(campaign, step, row);
    const yaml::Node* below = study.steps[step].settings.find("output");
    if (below == nullptr || !below->is_scalar()) return workspace;
    const std::string resolved = replace_tokens(
        std::string_view(below->text),
        [&](std::string_view name) { return expansion.resolve(campaign, step, row, name); }, kTokenLevels);
    return (workspace / resolved).lexically_normal();
  }
  std::filesystem::path folder(const std::string& name) const { return campaign / clean_path(name); }
};

// From the second rung on, a training ranks itself among the others. Their outputs have the same names in the
// folder of each rung.
void fill_search(yaml::Node& settings, const TrainOutputs& outputs, std::uint32_t row) {
  const std::string& name = outputs.study.steps[outputs.step].name;
  const auto rung = search_rung(outputs.study.steps[outputs.step]);
  if (!rung || rung->rung == 1) return;
  yaml::Node& search = *settings.find("search");
  std::vector<yaml::Node> folders;
  for (int i = 1; i < rung->rung; ++i)
    folders.push_back(yaml::quoted(outputs.folder(rung->step + rung_suffix(i)).string()));
  folders.push_back(yaml::quoted(outputs.folder(name).string()));
  std::vector<yaml::Node> trainings;
  for (std::uint32_t i = 0; i < outputs.expansion.count(outputs.step); ++i) {
    const std::uint32_t other = outputs.expansion.row(outputs.step, i);
    if (other == row) set_key(search, "training", yaml::scalar(std::to_string(i)));
    trainings.push_back(yaml::quoted(outputs.of(other).lexically_relative(outputs.folder(name)).string()));
  }
  set_key(search, "folders", yaml::sequence(std::move(folders)));
  set_key(search, "trainings", yaml::sequence(std::move(trainings)));
}

}  // namespace

Pieces Plan::pieces(std::string_view text, const PlannedStep& planned, std::uint32_t row,
                    bool launchers) const {
  const std::size_t step = planned.study_step;
  // Launchers last: the brackets behind them may contain parameters.
  std::string resolved = replace_tokens(
      text,
      [&](std::string_view name) {
        const bool kept = name == "LAUNCHER" || (!launchers && name == "VLAUNCHER");
        return kept ? std::nullopt : expansion_->resolve(campaign_, step, row, name);
      },
      kTokenLevels);
  if (launchers && mentions(resolved, "LAUNCHER"))
    resolved = put_launchers(resolved, *study_, expansion_->launcher_keys(campaign_, step, row),
                             expansion_->resources(step, row));
  Pieces pieces;
  const std::string_view rest = resolved;
  std::size_t done = 0;
  for (auto token = find_token(rest); token && planned.sample_dependent;
       token = find_token(rest, token->end)) {
    const auto column = expansion_->column(token->name);
    const auto kind = sample_token(token->name);
    if (!column && !kind) continue;
    add_text(pieces, rest.substr(done, token->begin - done));
    done = token->end;
    Piece piece;
    piece.kind = !column                           ? *kind
                 : token->name.starts_with(kQuote) ? Piece::Kind::quoted_column
                                                   : Piece::Kind::column;
    piece.column = column.value_or(0);
    pieces.push_back(std::move(piece));
  }
  add_text(pieces, rest.substr(done));
  return pieces;
}

yaml::Node Plan::resolved_settings(const PlannedStep& planned, std::uint32_t row) const {
  yaml::Node block = study_->steps[planned.study_step].settings;
  replace_tokens(
      block,
      [&](std::string_view name) { return expansion_->resolve(campaign_, planned.study_step, row, name); },
      kTokenLevels);
  return block;
}

void Plan::fill_shell(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  const Step& step = study_->steps[planned.study_step];
  task.shell = replace_tokens(
      std::string_view(step.shell),
      [&](std::string_view name) { return expansion_->resolve(campaign_, planned.study_step, row, name); },
      kTokenLevels);
  std::string before;
  if (is_shell(task.shell)) {  // in Python they would be a syntax error
    for (const std::string& line : study_->sources) before += line + "\n";
  }
  const auto body = [&](const std::string& script) {
    return pieces(before + launcher_defaults(task.resources, script) + script, planned, row);
  };
  task.command = body(step.command);
  if (!step.restart.empty()) task.restart = body(step.restart);
}

void Plan::fill_convert(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  const Step& step = study_->steps[planned.study_step];
  const std::size_t source = *expansion_->step_index(source_step(step));
  const std::uint64_t block = convert_block_samples(step.settings);
  task.block_samples = planned.block_samples;
  task.source_workspace = expansion_->workspace(campaign_, source, row).string();
  yaml::Node settings = resolved_settings(planned, row);
  set_key(settings, "output", yaml::quoted(task.workspace));
  set_key(settings, "count", yaml::scalar(std::to_string(task.sample_count)));
  set_counts(settings, "block_starts", task.sample_starts);
  set_counts(settings, "grown", study_->samples->design.grown);
  set_key(settings, "shard_samples", yaml::scalar(std::to_string(block)));
  if (study_->options.split_version < 2) keep_hash_split(settings);
  const Step& simulation = study_->steps[source];
  if (simulation.bundle > 0) set_key(settings, "bundle", yaml::scalar(std::to_string(simulation.bundle)));
  if (simulation.kind == StepKind::plugin) set_key(settings, "stacked", yaml::scalar("true"));
  task.settings = yaml::emit(settings);
}

namespace {

// Throws nothing: locate_files() has looked for every text that a template can ask for.
const std::string& found(const std::map<std::string, std::string, std::less<>>& located,
                         std::string_view text) {
  const auto at = located.find(text);
  WFLOW_CHECK(at != located.end());
  return at->second;
}

}  // namespace

void Plan::fill_train(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  const Step& step = study_->steps[planned.study_step];
  const TrainOutputs outputs{*study_, *expansion_, campaign_, planned.study_step};
  yaml::Node settings = resolved_settings(planned, row);
  const auto source = expansion_->step_index(source_step(step));
  const yaml::Node* data = settings.find("data");
  const std::filesystem::path directory =
      source ? expansion_->workspace(campaign_, *source, row)
             : std::filesystem::path(found(located_.files, data == nullptr ? "" : data->text));
  const yaml::Node* init = settings.find("init_from");
  if (init != nullptr && init->is_scalar() && init->text != "last" && init->text != "none")
    set_key(settings, "init_from", yaml::quoted(found(located_.files, init->text)));
  if (const std::string file = trainer::module_file(settings); !file.empty())
    settings = trainer::with_module_file(std::move(settings), found(located_.files, file));
  set_key(settings, "data", yaml::quoted(directory.string()));
  set_key(settings, "output", yaml::quoted(outputs.of(row).string()));
  fill_search(settings, outputs, row);
  task.settings = yaml::emit(settings);
}

void Plan::fill_plugin(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  yaml::Node settings = resolved_settings(planned, row);
  const yaml::Node* library = settings.find("library");
  if (library != nullptr)
    set_key(settings, "library", yaml::quoted(found(located_.libraries, library->text)));
  set_key(settings, "bundle", yaml::scalar(std::to_string(task.bundle)));
  // The data from which a process computes any row itself.
  set_key(settings, "samples", yaml::quoted(to_json(study_->samples->design).dump()));
  task.settings = yaml::emit(settings);
}

double Plan::walltime_s(ArrayId array) const {
  const PlannedStep& planned = steps_[step_of(array)];
  return specs::walltime_s(expansion_->launcher_keys(campaign_, planned.study_step, row_of(planned, array)))
      .value_or(0);
}

TaskTemplate Plan::task_template(ArrayId array) const {
  const PlannedStep& planned = steps_[step_of(array)];
  const std::size_t index = planned.study_step;
  const std::uint32_t row = row_of(planned, array);
  const Step& step = study_->steps[index];
  TaskTemplate task;
  task.array = array;
  task.step = planned.name;
  task.label = expansion_->label(index, row);
  task.kind = step.kind;
  task.workspace = expansion_->workspace(campaign_, index, row).string();
  task.script =
      task.label.empty() ? clean_path(planned.name) : clean_path(planned.name) + "_" + clean_path(task.label);
  task.suffix = step.kind == StepKind::shell
                    ? script_suffix(*study_, expansion_->launcher_keys(campaign_, index, row))
                    : "";
  task.campaign = campaign_.string();
  task.sample_dependent = planned.sample_dependent;
  task.sample_count = study_->samples ? study_->samples->design.count : 1;
  if (block_starts_) task.sample_starts = *block_starts_;
  task.layout_samples = study_->samples ? study_->samples->layout_count() : 1;
  task.level_max_dirs = study_->samples ? study_->samples->level_max_dirs : 25;
  task.resources = expansion_->resources(index, row);
  task.timeout_s = step.timeout_s;
  task.stall_timeout_s = step.stall_timeout_s;
  task.trust_markers = step.trust_markers;
  // Merlin puts the script of every task into its directory.
  task.shell_given = step.shell_given || study_->merlin;
  task.bundle = step.bundle;
  task.output = step.output;
  for (const StepOutput& output : step.outputs)
    task.outputs.push_back({pieces(output.file, planned, row), output.dataset, output.shape, output.finite});
  switch (step.kind) {
    case StepKind::shell:
      fill_shell(task, planned, row);
      break;
    case StepKind::convert:
      fill_convert(task, planned, row);
      break;
    case StepKind::train:
      fill_train(task, planned, row);
      break;
    case StepKind::plugin:
      fill_plugin(task, planned, row);
      break;
  }
  task.resources = slot_resources(*study_, task.resources);
  return task;
}

}  // namespace wflow::specs
