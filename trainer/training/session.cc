// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/session.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/data/roles.h"
#include "trainer/model/network.h"
#include "trainer/training/objective.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// With a communicator only rank 0 reads the file of a module.
ModelGraph network_graph(const TrainConfig& config, const ModelTask& task, Communicator* communicator) {
  if (config.model.name != ModelName::module) return build_model(config.model, task);
  std::string bytes;
  if (communicator == nullptr || communicator->rank() == 0) bytes = read_file(config.model.file);
  if (communicator != nullptr) communicator->broadcast(bytes);
  return module_graph(std::move(bytes), fs::path(config.model.file).filename().string(), task);
}

StepPlan step_plan(const TrainConfig& config, const SearchConfig& search, std::size_t samples,
                   const Communicator& communicator) {
  StepPlan plan;
  plan.order = {hash64(config.seed, 1), samples, static_cast<std::size_t>(config.batch),
                static_cast<std::size_t>(communicator.rank()), static_cast<std::size_t>(communicator.size())};
  plan.steps_per_epoch = static_cast<std::int64_t>(plan.order.steps_per_epoch());
  plan.end_epoch = search.on() ? search.rungs[static_cast<std::size_t>(search.rung - 1)] : config.epochs;
  return plan;
}

nlohmann::json fingerprint_of(const TrainConfig& config, const DatasetInfo& data, const ModelGraph& graph) {
  nlohmann::json fingerprint = trainer::fingerprint(config, data);
  if (graph.is_module()) fingerprint["model"]["file"] = hash_bytes(*graph.layers.front().module);
  return fingerprint;
}

}  // namespace

Session::Session(const TrainConfig& completed, Communicator& ranks, const RunOptions& run_options)
    : config(completed),
      communicator(ranks),
      options(run_options),
      data(config, communicator),
      graph(network_graph(config, task_of(config, data.info(), data.roles()), &communicator)),
      plan(step_plan(config, options.search, data.train().size(), communicator)),
      fingerprint(fingerprint_of(config, data.info(), graph)) {}

ExportedUnits Session::units() const {
  ExportedUnits units = {config.transform, data.normalisation(),
                         config.loss.name, data.roles().field_target(),
                         data.labels(),    data.target_is_transformed()};
  if (config.loss.name == LossName::quantile) units.use_quantiles(config.loss.quantiles);
  for (const DataRoles::Part& part : data.roles().parts)
    if (!data.info().fields[part.field].has_channels) units.without_channels.push_back(part.name);
  units.target_grid = data.target_grid();
  units.target_has_channels = !data.target_is_without_channels();
  for (const DataRoles::Input& input : data.roles().inputs) {
    std::vector<std::string>& columns = units.columns.emplace_back();
    std::vector<std::pair<double, double>>& ranges = units.ranges.emplace_back();
    if (input.label) {
      const LabelRange& range = data.info().label_range[*input.label];
      ranges.emplace_back(range.least, range.most);
      continue;
    }
    const DataField& field = data.info().fields[data.roles().parts[input.part].field];
    for (const LabelRange& range : field.range) ranges.emplace_back(range.least, range.most);
    if (field.shape.voxels() == 1) columns = field.channels;
  }
  return units;
}

std::string describe_run(const TrainConfig& asked) {
  const Dataset dataset = open_dataset(asked.data);
  const TrainConfig config = completed(asked, dataset.info);
  const DataRoles roles = roles_of(config, dataset.info);
  const ModelGraph graph = network_graph(config, task_of(config, dataset.info, roles), nullptr);
  const Objective objective = objective_of(config, target_shape(config, dataset.info, roles), graph);
  const auto ranks = static_cast<std::size_t>(config.ranks);
  const TrainingOrder order = {0, dataset.train->size(), static_cast<std::size_t>(config.batch), 0, ranks};
  const std::size_t on_rank = (order.batch + ranks - 1) / ranks;
  const auto parameters = static_cast<std::uint64_t>(graph.parameter_count());
  const bool adam = config.optimizer.name == OptimizerName::adam ||
                    config.optimizer.name == OptimizerName::adamw ||
                    config.optimizer.name == OptimizerName::lamb;
  std::uint64_t sample_bytes = 0;
  for (const DataRoles::Part& part : roles.parts)
    sample_bytes += static_cast<std::uint64_t>(dataset.info.fields[part.field].shape.count()) * sizeof(float);
  const std::uint64_t states = (adam ? 4 : 3) + (config.ema > 0 ? 1 : 0);
  const std::uint64_t memory = parameters * sizeof(float) * states +
                               (on_rank + static_cast<std::size_t>(config.accumulate) - 1) /
                                   static_cast<std::size_t>(config.accumulate) *
                                   static_cast<std::uint64_t>(graph.activation_bytes()) +
                               on_rank * 3 * sample_bytes;
  std::string out = fmt::format("network {}\n{}", name_of(config.model.name), graph.describe());
  std::string inputs;
  for (const NamedShape& input : graph.inputs)
    inputs += fmt::format("{}{} ({})", inputs.empty() ? "" : ", ", input.name, text_of(input.shape));
  out += fmt::format("learns          {} from {}, loss {}\n", text::join(objective.shape().labels, ", "),
                     inputs, name_of(config.loss.name));
  out += fmt::format("parameters      {} ({})\n", text::format_count(parameters),
                     text::format_bytes(parameters * sizeof(float)));
  if (!graph.is_module())
    out += fmt::format("a sample        {:.3f} Gflop a training step, {:.3f} Gflop a prediction\n",
                       static_cast<double>(graph.training_flops()) * 1e-9,
                       static_cast<double>(graph.forward_flops()) * 1e-9);
  out += fmt::format("memory a rank   {} with {} samples at once, and up to {} for decoded samples\n",
                     text::format_bytes(memory), on_rank,
                     text::format_bytes(sample_bytes * (dataset.train->size() + dataset.validation->size())));
  out += fmt::format("samples         {} training, {} validation, {} test\n", dataset.train->size(),
                     dataset.validation->size(), dataset.test->size());
  out += fmt::format(
      "steps           {} an epoch, {} in all; {} ranks of {} threads\n", order.steps_per_epoch(),
      order.steps_per_epoch() * static_cast<std::size_t>(config.epochs), config.ranks, config.threads);
  if (config.members > 1) {
    const auto members = static_cast<std::uint64_t>(config.members);
    out += fmt::format(
        "members         {}, seeds {} to {}, one after the other: {} steps and {} parameters in all\n",
        members, config.seed, config.seed + members - 1,
        members * order.steps_per_epoch() * static_cast<std::uint64_t>(config.epochs),
        text::format_count(members * parameters));
  }
  const SplitSizes sizes = {dataset.train->size(), dataset.validation->size(), dataset.test->size()};
  for (const std::string& doubt : check_data(config, dataset.info, roles, sizes))
    out += "warning         " + doubt + "\n";
  return out;
}

}  // namespace wflow::trainer
