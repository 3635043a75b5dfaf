// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "base/resources.h"
#include "base/text.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/roles.h"
#include "trainer/model/distribution.h"
#include "trainer/model/network.h"
#include "trainer/model/parts.h"
#include "trainer/model/sample_cuts.h"
#include "trainer/model/split_network.h"
#include "trainer/model/tiles.h"
#include "trainer/parallel/exact_sums.h"
#include "trainer/training/contest.h"
#include "trainer/training/heads.h"
#include "trainer/training/pass_times.h"
#include "trainer/training/tournament.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

// With a communicator only rank 0 reads the file.
std::string shared_bytes(const std::string& file, Communicator* communicator) {
  std::string bytes;
  if (communicator == nullptr || communicator->rank() == 0) bytes = read_file(file);
  if (communicator != nullptr) communicator->broadcast(bytes);
  return bytes;
}

// The losses and metrics that the user has written as TorchScript files.
ModuleScores module_scores(const TrainConfig& config, Communicator* communicator) {
  std::vector<std::string> files;
  for (const HeadConfig& head : heads_of(config)) files.push_back(head.loss.file);
  for (const MetricConfig& metric : config.metrics) files.push_back(metric.file);
  ModuleScores scores;
  for (const std::string& file : files) {
    if (file.empty() || scores.contains(file)) continue;
    scores.emplace(file,
                   open_module_score(shared_bytes(file, communicator), fs::path(file).filename().string()));
  }
  return scores;
}

ModelGraph network_graph(const TrainConfig& config, const ModelTask& task, Communicator* communicator) {
  if (config.model.name != ModelName::module) {
    ModelGraph graph = build_model(config.model, task);
    apply_parts(graph, config.parts);
    graph.recomputes = config.recompute != Recompute::none;
    if (config.recompute == Recompute::tiles) graph.tiled = best_tiles(graph);
    return graph;
  }
  return module_graph(shared_bytes(config.model.file, communicator),
                      fs::path(config.model.file).filename().string(), task);
}

// `grid: {space: N}` cuts the longest axis of the largest input; of several, the first: its parts are
// contiguous in memory.
SpaceGrid grid_of(const GridConfig& config, const ModelGraph& graph) {
  SpaceGrid grid;
  if (config.space.empty()) return grid;
  if (config.space.size() == grid.parts.size()) {
    std::ranges::transform(config.space, grid.parts.begin(),
                           [](std::int64_t parts) { return static_cast<int>(parts); });
    return grid;
  }
  const NamedShape& largest = *std::ranges::max_element(
      graph.inputs, {}, [](const NamedShape& input) { return input.shape.voxels(); });
  const auto longest = std::ranges::max_element(largest.shape.extent);
  grid.parts[static_cast<std::size_t>(longest - largest.shape.extent.begin())] =
      static_cast<int>(config.space.front());
  return grid;
}

// Nothing if each rank has whole samples, which are one part.
std::optional<SampleSharing> sharing_in_parts(const TrainConfig& config, const ModelGraph& graph,
                                              const SpaceGrid& grid, Communicator& communicator) {
  check_exact(graph);
  if (communicator.size() > ExactSums::kMostRanks)
    throw Error(ExitCode::spec, fmt::format("'deterministic: grid' sums over at most {} ranks, and there are "
                                            "{}: start fewer, or say 'deterministic: true'",
                                            ExactSums::kMostRanks, communicator.size()));
  if (compute_device() != "cpu")
    throw Error(ExitCode::spec,
                "'deterministic: grid' is for processors, and this machine computes on a GPU: say "
                "'deterministic: true'");
  const SpaceGrid parts = sample_cuts(graph, config.cuts.parts);
  std::vector<int> owners = ranks_of_parts(parts, grid);
  if (parts.ranks() == 1) return std::nullopt;
  SampleSharing sharing = {grid, distribute(graph, parts)};
  sharing.group = communicator.split(communicator.rank() / grid.ranks());
  sharing.parts =
      std::make_unique<SampleParts>(*sharing.group, std::move(owners), static_cast<int>(config.threads));
  return sharing;
}

// Every rank finds the same error.
std::optional<SampleSharing> sharing_of(const TrainConfig& config, const ModelGraph& graph,
                                        Communicator& communicator) {
  if (config.grid.ranks() == 1 && !config.cuts.on) return std::nullopt;
  try {
    const SpaceGrid grid = grid_of(config.grid, graph);
    const int sharing = grid.ranks();
    if (communicator.size() % sharing != 0)
      throw Error(ExitCode::spec, fmt::format("{} ranks share each sample, and there are {} ranks: start a "
                                              "multiple of {}, or leave 'grid' out",
                                              sharing, communicator.size(), sharing));
    if (!config.cuts.on) {
      Distribution distribution = distribute(graph, grid);
      return SampleSharing{grid, std::move(distribution), communicator.split(communicator.rank() / sharing)};
    }
    return sharing_in_parts(config, graph, grid, communicator);
  } catch (const CommonError&) {
    throw;
  } catch (const Error& error) {
    throw CommonError(error.code(), error.what());
  }
}

// A collective call.
std::optional<LocalGroup> local_group_of(const TrainConfig& config, Communicator& ranks) {
  if (!config.groups.on()) return std::nullopt;
  const auto sharing = static_cast<int>(config.grid.ranks());
  const int nodes = ranks.groups();
  const int count = config.groups.count > 0 ? static_cast<int>(config.groups.count) : nodes;
  if (ranks.size() % (count * sharing) != 0)
    throw CommonError(
        ExitCode::spec,
        fmt::format("{} ranks can't be {} groups of as many ranks each{}: start a multiple of {}, or say "
                    "another 'count' in 'groups'",
                    ranks.size(), count,
                    config.groups.count > 0 ? "" : fmt::format(", one for each of {} nodes", nodes),
                    count * sharing));
  const int size = ranks.size() / count;
  LocalGroup group;
  group.number = ranks.rank() / size;
  group.count = count;
  group.ranks = ranks.split(group.number);
  group.first_place = static_cast<std::size_t>(group.number * size / sharing);
  group.end_place = group.first_place + static_cast<std::size_t>(size / sharing);
  return group;
}

StepPlan step_plan(const TrainConfig& config, const SearchConfig& search, RunData& data,
                   const Communicator& communicator) {
  const SampleSource& samples = data.train().source();
  const auto sharing = static_cast<std::size_t>(config.grid.ranks());
  TrainingOrder order = {hash64(config.seed, 1), samples.size(), static_cast<std::size_t>(config.batch),
                         static_cast<std::size_t>(communicator.rank()) / sharing,
                         static_cast<std::size_t>(communicator.size()) / sharing};
  if (const HeldSubset* subset = data.subset()) {
    order.subset = subset->draw();
    order.samples = subset->draw().size * subset->draw().subsets;
  }
  order.alike = order_by(config.batch_by, data.info(), samples);
  order.run = static_cast<std::size_t>(config.batch_run > 0 ? config.batch_run : config.batch);
  return {order, config.schedule,
          search.on() ? search.rungs[static_cast<std::size_t>(search.rung - 1)] : config.epochs};
}

// The content of a file tells a loss or a metric from another, not its place.
nlohmann::json fingerprint_of(const TrainConfig& config, const DatasetInfo& data, const ModelGraph& graph,
                              const ModuleScores& modules) {
  nlohmann::json fingerprint = trainer::fingerprint(config, data);
  if (const auto loss = modules.find(config.loss.file); loss != modules.end())
    fingerprint["loss"]["file"] = loss->second->hash();
  for (std::size_t h = 0; h < config.heads.size(); ++h)
    if (const auto loss = modules.find(config.heads[h].loss.file); loss != modules.end())
      fingerprint["heads"][h]["loss"]["file"] = loss->second->hash();
  for (const MetricConfig& metric : config.metrics)
    if (const auto module = modules.find(metric.file); module != modules.end())
      fingerprint["metrics"][metric.name] = module->second->hash();
  if (graph.is_module()) fingerprint["model"]["file"] = hash_bytes(*graph.layers.front().module);
  return fingerprint;
}

PlanTask plan_task(const TrainConfig& config, const DatasetInfo& info, const ModelGraph& graph, int ranks) {
  PlanTask task = {config, graph, 0, std::nullopt, ranks, static_cast<std::int64_t>(info.most_evaluated)};
  const DataRoles roles = roles_of(config, info);
  for (std::size_t part = 0; part < roles.parts.size(); ++part)
    if (roles.is_target(part) || roles.is_mask(part))
      task.target_values += info.fields[roles.parts[part].field].shape.count();
  if (!config.grid.space.empty()) task.given = grid_of(config.grid, graph);
  return task;
}

fs::path plan_file(const TrainConfig& config) {
  return fs::path(config.output) / "plan.json";
}

// Names the training, on so many ranks, that a plan is for.
std::string plan_key(const TrainConfig& config, const DatasetInfo& info, const ModelGraph& graph,
                     const ModuleScores& modules, int ranks) {
  return hash_bytes(fmt::format("{} {} {} {} {} {} {}", fingerprint_of(config, info, graph, modules).dump(),
                                static_cast<int>(config.grid.choice), config.memory, config.threads, ranks,
                                name_of(config.shard), name_of(config.recompute)));
}

// The plan in the file, if it is that of this training; otherwise empty.
std::string kept_text(const fs::path& file, const std::string& key) {
  if (!fs::exists(file)) return {};
  const nlohmann::json kept = nlohmann::json::parse(read_file(file), nullptr, false);
  if (!kept.is_object() || kept.value("training", "") != key) return {};
  return kept.value("plan", nlohmann::json()).dump();
}

// The plan of an earlier start of the same training; rank 0 reads it.
std::optional<TrainingPlan> kept_plan(const fs::path& file, const std::string& key, Communicator& ranks) {
  std::string text = ranks.rank() == 0 ? kept_text(file, key) : std::string();
  ranks.broadcast(text);
  if (text.empty()) return std::nullopt;
  return plan_from_json(nlohmann::json::parse(text));
}

void keep_plan(const fs::path& file, const std::string& key, const TrainingPlan& plan) {
  fs::create_directories(file.parent_path());
  write_file_durably(file, nlohmann::json{{"training", key}, {"plan", to_json(plan)}}.dump(1) + "\n");
}

}  // namespace

PlannedConfig planned(const TrainConfig& asked, Communicator& ranks) {
  const DatasetInfo info = read_dataset_info(asked.data);
  PlannedConfig planned = {completed(asked, info), {}, 0};
  planned.network = network_name(asked, planned.config);
  planned.program = static_cast<std::int64_t>(most_of(ranks, static_cast<double>(peak_memory())));
  TrainConfig& config = planned.config;
  if (config.stage_subset > 0) {
    if (config.ranks == 1) config.ranks = ranks.size();  // started by hand
    const std::string why = subset_refusal(config, ranks.size());
    if (!why.empty()) throw CommonError(ExitCode::spec, why);
  }
  if (config.memory == 0 && config.grid.choice == GridChoice::given) return planned;
  const ModelGraph graph = network_graph(config, task_of(config, info, roles_of(config, info)), &ranks);
  const fs::path file = plan_file(config);
  const std::string key = plan_key(config, info, graph, module_scores(config, &ranks), ranks.size());
  planned.plan = kept_plan(file, key, ranks);
  if (!planned.plan) {
    planned.plan = plan_training(plan_task(config, info, graph, ranks.size()), ranks, pass_times_file());
    if (ranks.rank() == 0) keep_plan(file, key, *planned.plan);
  }
  const GridPlan& choice = planned.plan->choice();
  config.grid = {{choice.grid.parts.begin(), choice.grid.parts.end()}, GridChoice::given};
  if (choice.grid.ranks() == 1) config.grid.space.clear();
  // Decoded samples get what is left.
  if (config.memory > 0 && config.cache_bytes < 0) {
    config.cache_bytes =
        std::min(usual_cache_bytes(ranks), std::max<std::int64_t>(0, config.memory - choice.memory.total()));
  }
  return planned;
}

Session::Session(PlannedConfig planned, Communicator& ranks, const RunOptions& run_options)
    : config(std::move(planned.config)),
      network_name(planned.network),
      training_plan(std::move(planned.plan)),
      communicator(ranks),
      options(run_options),
      data(config, communicator, options.contest == nullptr ? nullptr : &options.contest->part()),
      graph(network_graph(config, task_of(config, data.info(), data.roles()), &communicator)),
      modules(module_scores(config, &communicator)),
      sharing(sharing_of(config, graph, communicator)),
      local(local_group_of(config, communicator)),
      plan(step_plan(config, options.search, data, communicator)),
      fingerprint(fingerprint_of(config, data.info(), graph, modules)) {
  data.complete_targets(graph);
  if (sharing && sharing->grid.ranks() > 1) share_data();
  prediction = predict(planned.program);
}

void Session::share_data() {
  const std::vector<int> parts =
      sharing->parts ? sharing->parts->own() : std::vector<int>{sharing->group->rank()};
  std::vector<Box> boxes;
  for (std::size_t input = 0; input < graph.inputs.size(); ++input)
    boxes.push_back(box_of_parts(sharing->distribution, input, parts));
  data.share(std::move(boxes), communicator, *sharing->group);
}

Prediction Session::predict(std::int64_t program) const {
  Prediction found;
  if (training_plan && training_plan->choice().seconds() > 0)
    found.step_seconds = training_plan->choice().seconds();
  if (!predicts_memory(config, graph)) return found;
  const PlanTask task = plan_task(config, data.info(), graph, communicator.size());
  const RankMemory memory = training_plan
                                ? training_plan->choice().memory
                                : memory_of(task, sharing ? &sharing->distribution : nullptr, program);
  found.memory_bytes =
      memory.total() + data.kept_bytes(plan.order.ranks, plan.end_epoch) + data.shared_bytes();
  return found;
}

std::unique_ptr<Network> Session::network(FlatState& state) const {
  if (!sharing) {
    auto network = make_network(config.backend, config.precision, graph, state);
    if (!config.cuts.on) return network;
    return make_exact_network(graph, state, std::move(network));
  }
  const KernelChoice kernels =
      config.backend == Backend::torch ? KernelChoice::library : KernelChoice::fastest;
  if (sharing->parts)
    return make_exact_network(graph, state, sharing->distribution, *sharing->parts, kernels);
  return make_sharing_network(graph, state, sharing->distribution, *sharing->group, kernels);
}

ExportedUnits Session::units() const {
  ExportedUnits units = {config.transform, data.normalisation(), {}};
  const std::vector<HeadConfig> heads = heads_of(config);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::vector<std::string>& labels = data.targets()[h].labels;
    OutputUnits& output = units.outputs.emplace_back();
    output.name = heads[h].name;
    output.loss = heads[h].loss.name;
    output.fields = data.roles().heads[h].learns_fields();
    output.targets = labels;
    const auto slice = [&](const std::vector<double>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(data.first_target(h));
      return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(labels.size()));
    };
    output.mean = slice(data.normalisation().y_mean);
    output.deviation = slice(data.normalisation().y_std);
    if (heads[h].loss.name == LossName::quantile) output.use_quantiles(heads[h].loss.quantiles);
    if (heads[h].loss.name == LossName::mixture)
      output.use_density(static_cast<std::size_t>(heads[h].loss.components));
    if (heads[h].loss.name == LossName::detection) output.classes = data.targets()[h].classes;
    if (data.target_is_transformed(h)) output.transform = config.transform;
    output.grid = data.target_grid(h);
    output.has_channels = !data.target_is_without_channels(h);
    if (data.targets()[h].truth == Truth::constant && data.targets()[h].cells > 1) {
      output.grid = {data.targets()[h].cells};
      output.has_channels = false;
    }
  }
  for (const MetricConfig& metric : config.metrics)
    if (metric.file.empty()) units.metrics.push_back(metric);
  for (const DataRoles::Part& part : data.roles().parts)
    if (!data.info().fields[part.field].has_channels) units.without_channels.push_back(part.name);
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
  for (const RandomInput& input : config.random_inputs) units.random_inputs.push_back(input.name);
  units.columns.resize(graph.inputs.size());  // random inputs have neither
  units.ranges.resize(graph.inputs.size());
  return units;
}

namespace {

// The trainers' samples, and their rounds: those of the trainer with the least of them.
std::string tournament_lines(const TrainConfig& config, const SampleSource& samples, TrainingOrder order) {
  const auto trainers = static_cast<int>(config.tournament.trainers);
  TrainerPart part = {config.seed, 0, trainers, config.tournament.fraction,
                      config.tournament.data == TournamentData::disjoint};
  std::string lines;
  std::optional<std::int64_t> rounds;
  for (; part.trainer < trainers; ++part.trainer) {
    const DividedSamples own = divided(samples, part);
    order.samples = own.training.size();
    const StepPlan plan(order, config.schedule, config.epochs);
    const std::int64_t most = RoundPlan(config.tournament, plan).most_rounds();
    rounds = std::min(most, rounds.value_or(most));
    lines += fmt::format("trainer {:<7} {} training and {} held-out samples, {} steps\n", part.trainer + 1,
                         own.training.size(), own.held_out.size(), plan.total_steps());
  }
  if (config.tournament.rounds > 0) rounds = std::min(*rounds, config.tournament.rounds);
  return fmt::format("tournament      {} trainers of {} ranks, {} rounds\n", trainers,
                     config.ranks / config.tournament.trainers, *rounds) +
         lines;
}

std::string groups_line(const GroupsConfig& groups, std::int64_t ranks, const StepPlan& plan) {
  std::int64_t outer = 0;
  for (std::int64_t epoch = 0; epoch < plan.end_epoch; ++epoch)
    outer += (plan.steps(epoch) + groups.steps - 1) / groups.steps;
  const std::string count =
      groups.count == 0 ? "one a node" : fmt::format("{} of {} ranks", groups.count, ranks / groups.count);
  return fmt::format("groups          {}, {} outer steps\n", count, outer);
}

// A line for each part of the network, with what is said of it.
std::string part_lines(const TrainConfig& config, const ModelGraph& graph) {
  std::string lines;
  for (const std::string& name : part_names(graph)) {
    std::uint64_t parameters = 0;
    for (const ParameterSpec& spec : graph.parameters())
      if (spec.part == name) parameters += static_cast<std::uint64_t>(spec.count());
    std::string settings;
    for (const PartConfig& part : config.parts) {
      if (part.name != name) continue;
      if (part.freeze) settings += ", frozen";
      if (!part.init_from.empty()) settings += ", begins with " + part.init_from;
      if (part.rate != 1) settings += fmt::format(", rate times {:g}", part.rate);
      if (part.own_optimizer) settings += fmt::format(", {} of its own", name_of(part.optimizer.name));
    }
    lines +=
        fmt::format("part            {}: {} parameters{}\n", name, text::format_count(parameters), settings);
  }
  return lines;
}

// A line for each update of a step that has several.
std::string update_lines(const TrainConfig& config) {
  std::string lines;
  for (std::size_t i = 0; i < config.alternate.size(); ++i) {
    const AlternateConfig& update = config.alternate[i];
    const GradientPenalty& penalty = update.penalty;
    lines += fmt::format(
        "update {:<8} {} moved by {}{}{}\n", i + 1,
        update.learn.empty() ? "all parts" : text::join(update.learn, ", "), text::join(update.heads, ", "),
        penalty.of.empty() ? ""
                           : fmt::format(" and a penalty on the slope of {} by {}", penalty.of, penalty.from),
        update.every == 1 ? "" : fmt::format(", every {} steps", update.every));
  }
  return lines;
}

// Takes the seconds and the choice of a plan that the training has kept in its folder.
bool take_times(const nlohmann::json& kept, TrainingPlan& plan) {
  const std::optional<TrainingPlan> earlier = plan_from_json(kept);
  if (!earlier) return false;
  for (GridPlan& grid : plan.grids) {
    const auto same = std::ranges::find(earlier->grids, grid.grid, &GridPlan::grid);
    if (same == earlier->grids.end()) continue;
    grid.compute_seconds = same->compute_seconds;
    grid.wire_seconds = same->wire_seconds;
    grid.update_seconds = same->update_seconds;
    grid.samples_seconds = same->samples_seconds;
    if (grid.grid == earlier->choice().grid)
      plan.chosen = static_cast<std::size_t>(&grid - plan.grids.data());
  }
  return plan.choice().seconds() > 0;
}

MemoryTable memory_table_of(const TrainConfig& config, const DatasetInfo& info, const ModelGraph& graph) {
  const int ranks = static_cast<int>(config.ranks);
  const PlanTask task = plan_task(config, info, graph, ranks);
  TrainingPlan possible;
  possible.limit = config.memory;
  const std::int64_t program = peak_memory();
  possible.grids = possible_grids(task, program);
  const fs::path file = plan_file(config);
  const std::string kept =
      kept_text(file, plan_key(config, info, graph, module_scores(config, nullptr), ranks));
  const bool timed = !kept.empty() && take_times(nlohmann::json::parse(kept), possible);
  MemoryTable table = {describe(possible), refusal_of(task, possible.grids, program), to_json(possible)};
  if (timed) table.text += fmt::format("the seconds are those of the last plan ({})\n", file.string());
  if (!timed) table.json["chosen"] = nullptr;
  table.json["ranks"] = config.ranks;
  table.json["refusal"] = table.refusal.empty() ? nlohmann::json() : nlohmann::json(table.refusal);
  return table;
}

}  // namespace

MemoryTable memory_table(const TrainConfig& asked) {
  const DatasetInfo info = read_dataset_info(asked.data);
  const TrainConfig config = completed(asked, info);
  return memory_table_of(config, info,
                         network_graph(config, task_of(config, info, roles_of(config, info)), nullptr));
}

// On as many ranks as the configuration has, if they can be such grids.
static void use_grid(const SpaceGrid& grid, TrainConfig& config) {
  config.grid = {{grid.parts.begin(), grid.parts.end()}, GridChoice::given};
  const std::int64_t multiple = config.tournament.groups() * grid.ranks();
  if (config.ranks % multiple != 0) config.ranks = multiple;
}

std::string describe_run(const TrainConfig& asked, const std::optional<SpaceGrid>& asked_grid) {
  const Dataset dataset = open_dataset(asked.data);
  TrainConfig config = completed(asked, dataset.info);
  if (asked_grid) use_grid(*asked_grid, config);
  const DataRoles roles = roles_of(config, dataset.info);
  const ModelGraph graph = network_graph(config, task_of(config, dataset.info, roles), nullptr);
  const Heads heads = network_heads(config, target_shapes(config, dataset.info, roles), graph,
                                    module_scores(config, nullptr));
  std::optional<SpaceGrid> grid;
  if (!config.grid.space.empty()) grid = grid_of(config.grid, graph);
  const auto groups =
      static_cast<std::size_t>(config.ranks / config.tournament.groups() / config.grid.ranks());
  const std::size_t drawn = static_cast<std::size_t>(config.stage_subset * config.ranks);
  const TrainingOrder order = {0, drawn > 0 ? drawn : dataset.train->size(),
                               static_cast<std::size_t>(config.batch), 0, groups};
  const StepPlan plan(order, config.schedule, config.epochs);
  const auto steps = static_cast<std::uint64_t>(plan.total_steps());
  const auto parameters = static_cast<std::uint64_t>(graph.parameter_count());
  std::uint64_t sample_bytes = 0;
  for (const DataRoles::Part& part : roles.parts)
    sample_bytes += static_cast<std::uint64_t>(dataset.info.fields[part.field].shape.count()) * sizeof(float);
  const MemoryTable memory = memory_table_of(config, dataset.info, graph);
  std::string out = fmt::format("network {}\n{}", name_of(network_name(asked, config)), graph.describe());
  std::string inputs;
  for (const NamedShape& input : graph.inputs)
    inputs += fmt::format("{}{} ({})", inputs.empty() ? "" : ", ", input.name, text_of(input.shape));
  for (const Heads::Head& head : heads.all()) {
    const std::string weight = head.weight == 1 ? "" : fmt::format(", weight {:g}", head.weight);
    out += fmt::format(
        "{:<15} {}{} from {}, loss {}{}\n", "learns", head.name.empty() ? "" : head.name + ": ",
        text::join(head.objective.shape().labels, ", "), inputs, name_of(head.objective.name()), weight);
  }
  if (!config.parts.empty() || !config.alternate.empty()) out += part_lines(config, graph);
  out += update_lines(config);
  out += fmt::format("parameters      {} ({})\n", text::format_count(parameters),
                     text::format_bytes(parameters * sizeof(float)));
  if (!graph.is_module())
    out += fmt::format("a sample        {:.3f} Gflop a training step, {:.3f} Gflop a prediction\n",
                       static_cast<double>(graph.training_flops()) * 1e-9,
                       static_cast<double>(graph.forward_flops()) * 1e-9);
  for (const ModelGraph::Tiled& chain : graph.tiled)
    out += fmt::format("tiles           {}\n", describe(cut_into_tiles(graph, chain), graph));
  if (config.recompute == Recompute::tiles && graph.tiled.empty())
    out += "tiles           none: they would save less than a tenth of a step's memory\n";
  out += memory.text;
  if (!memory.refusal.empty()) out += fmt::format("refused         {}\n", memory.refusal);
  out += fmt::format("decoded samples up to {}\n",
                     text::format_bytes(sample_bytes * (dataset.train->size() + dataset.validation->size())));
  out += fmt::format("samples         {} training, {} validation, {} test\n", dataset.train->size(),
                     dataset.validation->size(), dataset.test->size());
  if (config.stage_subset > 0)
    out += fmt::format(
        "subset          {} draws on each of {} ranks: up to {} a rank\n", config.stage_subset, config.ranks,
        text::format_bytes(sample_bytes *
                           static_cast<std::uint64_t>(std::min<std::int64_t>(
                               config.stage_subset, static_cast<std::int64_t>(dataset.train->size())))));
  out += fmt::format("steps           {} an epoch, {} in all; {} ranks of {} threads\n",
                     order.steps_per_epoch(), steps, config.ranks, config.threads);
  for (const std::int64_t epoch : config.schedule.batch_epochs)
    out += fmt::format("                batch {} and {} steps an epoch after epoch {}\n",
                       plan.order_in(epoch).batch, plan.steps(epoch), epoch);
  if (config.groups.on()) out += groups_line(config.groups, config.ranks, plan);
  if (config.tournament.trainers > 1) out += tournament_lines(config, *dataset.train, order);
  if (config.members > 1) {
    const auto members = static_cast<std::uint64_t>(config.members);
    out += fmt::format(
        "members         {}, seeds {} to {}, one after the other: {} steps and {} parameters in all\n",
        members, config.seed, config.seed + members - 1, members * steps,
        text::format_count(members * parameters));
  }
  if (config.cuts.on) {
    check_exact(graph);
    const SpaceGrid parts = sample_cuts(graph, config.cuts.parts);
    ranks_of_parts(parts, grid.value_or(SpaceGrid()));
    out += fmt::format("parts           {} (depth x height x width) of each sample, on any number of ranks\n",
                       text_of(parts));
  }
  if (grid) out += describe(graph, distribute(graph, *grid), halo_gradients(config));
  const SplitSizes sizes = {dataset.train->size(), dataset.validation->size(), dataset.test->size()};
  for (const std::string& doubt : check_data(config, dataset.info, roles, sizes))
    out += "warning         " + doubt + "\n";
  return out;
}

}  // namespace wflow::trainer
