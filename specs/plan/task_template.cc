// SPDX-License-Identifier: Apache-2.0
// Plan::task_template(): replaces all tokens of a step's text except those that differ from sample to sample.
#include <fmt/format.h>

#include <utility>

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
void fill_search(trainer::SearchConfig& search, const TrainOutputs& outputs, std::uint32_t row) {
  if (search.rung <= 1) return;
  const Step& step = outputs.study.steps[outputs.step];
  for (int i = 1; i < search.rung; ++i)
    search.folders.push_back(outputs.folder(search_rung(step)->step + rung_suffix(i)).string());
  search.folders.push_back(outputs.folder(step.name).string());
  for (std::uint32_t i = 0; i < outputs.expansion.count(outputs.step); ++i) {
    const std::uint32_t other = outputs.expansion.row(outputs.step, i);
    if (other == row) search.training = i;
    search.trainings.push_back(outputs.of(other).lexically_relative(outputs.folder(step.name)).string());
  }
}

// A training goes on from the stages before it, and a stage reads a data set of its first blocks, which its
// task makes.
void fill_follow(trainer::TrainConfig& config, const std::string& workspace, const TrainOutputs& outputs,
                 std::uint32_t row, std::uint64_t blocks) {
  const auto stage = follow_stage(outputs.study.steps[outputs.step]);
  if (!stage) return;
  const std::int64_t end = stage->stage > 0 ? stage->stage : stage->stages + 1;
  for (std::int64_t before = 1; before < end; ++before) {
    const std::size_t step = *outputs.expansion.step_index(follow_step(stage->step, before));
    config.follow.folders.push_back(
        TrainOutputs{outputs.study, outputs.expansion, outputs.campaign, step}.of(row).string());
  }
  if (stage->stage == 0) return;
  config.follow.blocks = static_cast<std::int64_t>(blocks_of_stage(*stage, blocks));
  config.follow.source = std::exchange(config.data, workspace + "/shards");
}

// A part of a tournament has the ranks of one trainer.
void fill_tournament(trainer::TrainConfig& config, const TrainOutputs& outputs, std::uint32_t row) {
  if (!config.tournament.part) return;
  const TournamentStep part = *tournament_part(outputs.study.steps[outputs.step]);
  for (const std::string& name : tournament_steps_before(part.step, config)) {
    const std::size_t step = *outputs.expansion.step_index(name);
    config.tournament.before.push_back(
        TrainOutputs{outputs.study, outputs.expansion, outputs.campaign, step}.of(row).string());
  }
  config.ranks = part.ranks ? 1 : config.ranks / config.tournament.trainers;
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

yaml::Node Plan::written_block(ArrayId array) const {
  const PlannedStep& planned = steps_[step_of(array)];
  return expansion_->block(campaign_, planned.study_step, row_of(planned, array)).node;
}

// Only a block with values of the combination is read here; any other has been read with the study.
Block Plan::block(const PlannedStep& planned, std::uint32_t row) const {
  ResolvedBlock resolved = expansion_->block(campaign_, planned.study_step, row);
  if (!resolved.has_values) return study_->steps[planned.study_step].block;
  yaml::Diagnostics diagnostics(planned.name);
  Block block = read_block(planned.kind, resolved.node, diagnostics);
  if (diagnostics.has_errors()) return UnreadBlock{std::move(resolved.node), diagnostics.to_string()};
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

namespace {

// A campaign that began before fractions were split evenly splits them by hash, unless the block names an
// order.
bool keeps_hash_split(const Study& study, const Step& step) {
  if (study.options.split_version >= 2) return false;
  const yaml::Node* split = step.settings.find("split");
  return split == nullptr || split->find("order") == nullptr;
}

}  // namespace

void Plan::fill_convert(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  const Step& step = study_->steps[planned.study_step];
  const std::size_t source = *expansion_->step_index(source_step(step));
  const Step& simulation = study_->steps[source];
  task.block_samples = planned.block_samples;
  task.source_workspace = expansion_->workspace(campaign_, source, row).string();
  task.settings = block(planned, row);
  auto* config = std::get_if<converters::ConvertConfig>(&task.settings);
  if (config == nullptr) return;
  config->output = task.workspace;
  config->count = task.sample_count;
  config->block_starts = task.sample_starts;
  config->grown = study_->samples->design.grown;
  config->shard_samples = convert_block_samples(step);
  if (config->split.order == converters::SplitOrder::even && keeps_hash_split(*study_, step))
    config->split.order = converters::SplitOrder::hash;
  if (simulation.bundle > 0) config->bundle = simulation.bundle;
  config->stacked = config->stacked || simulation.kind == StepKind::plugin;
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
  const TrainOutputs outputs{*study_, *expansion_, campaign_, planned.study_step};
  task.settings = block(planned, row);
  auto* config = std::get_if<trainer::TrainConfig>(&task.settings);
  if (config == nullptr) return;
  const auto source = expansion_->step_index(source_step(study_->steps[planned.study_step]));
  config->data =
      source ? expansion_->workspace(campaign_, *source, row).string() : found(located_.files, config->data);
  config->output = outputs.of(row).string();
  if (!config->init_from.empty() && config->init_from != trainer::kInitFromLast)
    config->init_from = found(located_.files, config->init_from);
  const auto locate_module = [&](std::string& file) {
    if (!file.empty() && file.find("$(") == std::string::npos) file = found(located_.files, file);
  };
  locate_module(config->model.file);
  locate_module(config->loss.file);
  for (trainer::HeadConfig& head : config->heads) locate_module(head.loss.file);
  for (trainer::MetricConfig& metric : config->metrics) locate_module(metric.file);
  fill_search(config->search, outputs, row);
  fill_tournament(*config, outputs, row);
  if (const auto data = source ? last_of_[*source] : std::nullopt; data && *data > 0)
    fill_follow(*config, task.workspace, outputs, row, steps_[*data - 1].elements);
}

void Plan::fill_plugin(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  task.settings = block(planned, row);
  auto* plugin = std::get_if<PluginBlock>(&task.settings);
  if (plugin == nullptr) return;
  plugin->library = found(located_.libraries, plugin->library);
  if (!plugin->command.empty())
    plugin->directory = found(located_.files, plugin->directory.empty() ? "." : plugin->directory);
  plugin->bundle = task.bundle;
  plugin->samples = study_->samples->design;
}

void Plan::fill_propose(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const {
  task.settings = block(planned, row);
  auto* config = std::get_if<propose::ProposeConfig>(&task.settings);
  const Step& step = study_->steps[planned.study_step];
  const auto source = expansion_->step_index(source_step(step));
  if (config == nullptr || !source || !study_->samples) return;
  task.source_workspace = expansion_->workspace(campaign_, *source, row).string();
  if (config->file.empty()) {
    const std::string label = expansion_->label(*source, row);
    const std::string suffix = script_suffix(*study_, expansion_->launcher_keys(campaign_, *source, row));
    config->file = clean_path(study_->steps[*source].name) + (label.empty() ? "" : "_" + clean_path(label)) +
                   suffix + ".out";
  }
  for (std::string& model : config->models) model = found(located_.files, model);
  config->output = task.workspace;
  const Iteration& iteration = study_->options.iteration;
  if (iteration.number > 1)
    config->previous = expansion_->workspace(iteration.previous, planned.study_step, row).string();
  if (study_->iterate) config->event = study_->iterate->until;
  if (config->bounds.empty()) config->bounds = design_bounds(study_->samples->design);
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
    case StepKind::propose:
      fill_propose(task, planned, row);
      break;
  }
  task.resources = slot_resources(*study_, task.resources);
  return task;
}

}  // namespace wflow::specs
