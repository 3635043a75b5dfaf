// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/resources.h"
#include "trainer/data/data_loader.h"
#include "trainer/model/direct_kernels.h"
#include "trainer/model/distribution.h"
#include "trainer/model/network.h"
#include "trainer/model/parts.h"
#include "trainer/model/sample_cuts.h"
#include "trainer/model/split_network.h"
#include "trainer/model/tiles.h"
#include "trainer/parallel/exact_sums.h"
#include "trainer/training/checkpoint_writer.h"
#include "trainer/training/pass_times.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostSharedBytes = std::int64_t{48} << 20;  // of the sums of a node: shared_slots.cc
// The program grows by this much after the plan, whatever the network: kernels, buffers of MPI and HDF5.
// Measured on 1 to 4 ranks; predictions are then within 10 % of the peak.
constexpr std::int64_t kLaterBytes = std::int64_t{16} << 20;
constexpr std::int64_t kLaterBytesWithTorch = std::int64_t{32} << 20;
constexpr std::int64_t kLayersInSum = 2;  // gradients of one are computed while those of another are summed
constexpr std::size_t kGridsOfEachSize = 3;  // those that send least are measured

bool is_alone(const SpaceGrid& grid) {
  return grid.ranks() == 1;
}

std::int64_t quotient_rounded_up(std::int64_t dividend, std::int64_t divisor) {
  return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}

// Groups of `sharing` ranks that share each sample.
std::int64_t groups_of(const PlanTask& task, int sharing) {
  return std::max(1, task.ranks / sharing);
}

// Samples that a rank computes at once, if `sharing` ranks share each.
std::int64_t samples_at_once(const PlanTask& task, int sharing) {
  return quotient_rounded_up(quotient_rounded_up(task.config.batch, groups_of(task, sharing)),
                             task.config.accumulate);
}

// Counts the batches of a rank's loaders, for training and for evaluation. Each loader also has one as it is
// stored, for a while.
std::int64_t bytes_of_samples(const PlanTask& task, int sharing, std::int64_t inputs) {
  const std::int64_t samples = samples_at_once(task, sharing);
  const std::int64_t batch = samples * (inputs + task.target_values) * kFloatBytes;
  const auto training = static_cast<std::int64_t>(batches_of_loader(static_cast<std::uint64_t>(batch)));
  const std::int64_t evaluated = quotient_rounded_up(task.most_evaluated, groups_of(task, sharing));
  return (training + std::min(training, quotient_rounded_up(evaluated, samples)) + 2) * batch;
}

// The same training with another configuration.
PlanTask with(const PlanTask& task, const TrainConfig& config) {
  return {config, task.graph, task.target_values, task.given, task.ranks, task.most_evaluated};
}

// Floats of a sample that a rank has. Null: whole samples.
std::int64_t input_values(const ModelGraph& graph, const Distribution* parts, int rank) {
  std::int64_t values = 0;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const TensorShape& shape = graph.inputs[i].shape;
    values += shape.channels * (parts == nullptr ? shape.voxels() : local_box(*parts, i, rank).cells());
  }
  return values;
}

// Factors of `ranks` along three axes, none longer than the axis.
std::vector<SpaceGrid> grids_of(int ranks, const std::array<std::int64_t, 3>& extent) {
  std::vector<SpaceGrid> grids;
  for (int d = 1; d <= ranks; ++d) {
    for (int h = 1; ranks % d == 0 && h <= ranks / d; ++h) {
      if (ranks / d % h != 0) continue;
      const SpaceGrid grid = {{d, h, ranks / d / h}};
      if (d <= extent[0] && h <= extent[1] && grid.parts[2] <= extent[2]) grids.push_back(grid);
    }
  }
  return grids;
}

std::int64_t bytes_sent(const ModelGraph& graph, const Distribution& distribution, HaloGradients gradients) {
  std::int64_t sent = 0;
  for (int rank = 0; rank < distribution.grid.ranks(); ++rank) {
    const RankLoad load = load_of(graph, distribution, rank, gradients);
    sent = std::max(sent, load.sent_forward + load.sent_backward);
  }
  return sent;
}

// Those of equally many ranks that send least.
std::vector<Distribution> best_cuts(const ModelGraph& graph, int ranks, HaloGradients gradients) {
  const NamedShape& largest = *std::ranges::max_element(
      graph.inputs, {}, [](const NamedShape& input) { return input.shape.voxels(); });
  std::vector<std::pair<std::int64_t, Distribution>> found;
  for (const SpaceGrid& grid : grids_of(ranks, largest.shape.extent)) {
    try {
      Distribution parts = distribute(graph, grid);
      const std::int64_t sent = bytes_sent(graph, parts, gradients);
      found.emplace_back(sent, std::move(parts));
    } catch (const Error&) {  // no layer can be cut so
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<Distribution> best;
  for (std::size_t i = 0; i < std::min(found.size(), kGridsOfEachSize); ++i)
    best.push_back(std::move(found[i].second));
  return best;
}

std::string memory_text(const RankMemory& memory) {
  return fmt::format("{} a rank: {} activations, {} weights and optimizer, {} samples, {} program",
                     bytes_text(memory.total()), bytes_text(memory.step), bytes_text(memory.state),
                     bytes_text(memory.samples), bytes_text(memory.program));
}

std::string grid_text(const SpaceGrid& grid) {
  return is_alone(grid) ? "whole samples" : text_of(grid);
}

// A value of `recompute` with which the training fits, and its memory; empty if there is none.
std::string advice_to_recompute(const PlanTask& task, std::int64_t program) {
  const bool whole =
      is_alone(task.given.value_or(SpaceGrid())) && task.config.grid.choice == GridChoice::given;
  for (const Recompute recompute : {Recompute::blocks, Recompute::tiles}) {
    if (recompute <= task.config.recompute || task.graph.is_module()) continue;
    if (recompute == Recompute::tiles && (!whole || task.config.cuts.on)) continue;
    ModelGraph graph = task.graph;
    graph.recomputes = true;
    if (recompute == Recompute::tiles) graph.tiled = best_tiles(graph);
    const PlanTask other = {task.config, graph,      task.target_values,
                            task.given,  task.ranks, task.most_evaluated};
    for (const GridPlan& plan : possible_grids(other, program))
      if (plan.fits)
        return fmt::format("'recompute: {}' needs {}", name_of(recompute), bytes_text(plan.memory.total()));
  }
  return {};
}

// A setting with which the training would fit: a grid, if the configuration does not leave the choice to the
// planner, less that is kept of a step, or a divided state.
std::string advice(const PlanTask& task, std::int64_t program) {
  if (task.config.model.initial == InitialWeights::data) {
    TrainConfig config = task.config;
    config.model.initial = InitialWeights::he;
    for (const GridPlan& plan : possible_grids(with(task, config), program))
      if (plan.fits)
        return fmt::format("'init: he' needs {}: 'init: data' measures whole samples on each rank",
                           bytes_text(plan.memory.total()));
  }
  if (task.config.grid.choice == GridChoice::given) {
    TrainConfig config = task.config;
    config.grid = {{}, GridChoice::fit};
    PlanTask other = with(task, config);
    other.given.reset();
    for (const GridPlan& plan : possible_grids(other, program)) {
      if (!plan.fits) continue;
      const auto& [depth, height, width] = plan.grid.parts;
      return fmt::format("'grid: [{}, {}, {}]' needs {}", depth, height, width,
                         bytes_text(plan.memory.total()));
    }
  }
  if (std::string words = advice_to_recompute(task, program); !words.empty()) return words;
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    TrainConfig config = task.config;
    config.shard = shard;
    if (shard <= task.config.shard || task.ranks == 1 || !config.alternate.empty()) continue;
    for (const GridPlan& plan : possible_grids(with(task, config), program))
      if (plan.fits)
        return fmt::format("'shard: {}' needs {}", name_of(shard), bytes_text(plan.memory.total()));
  }
  return "start more ranks, or take a smaller 'batch' or a larger 'accumulate'";
}

// The passes of the grids of a plan: those of earlier plans, and measured ones. Every call is a collective
// one.
class PassSource {
 public:
  PassSource(const PlanTask& task, Communicator& ranks, const std::filesystem::path& times)
      : task_(task), ranks_(ranks), times_(ranks.rank() == 0 ? times : std::filesystem::path()) {
    std::string all;
    for (const std::string& machine :
         ranks.all_gather(fmt::format("{} {} ", hash_bytes(machine_text()), ranks.ranks_on_node())))
      all += machine;
    const TrainConfig& config = task.config;
    setting_ =
        fmt::format("{} {} {} {}\n{} threads {} {} {} {} {} {} {} {} {} {} {}\n{}", kVersion, torch_version(),
                    onednn_version(), compute_device(), config.threads, config.deterministic,
                    name_of(config.backend), name_of(config.precision), name_of(config.shard),
                    name_of(config.optimizer.name), config.optimizer.clip_norm > 0, config.ema > 0,
                    config.accumulate, config.augment.moves(), task.ranks, all, shape_text(task.graph));
  }

  PassSeconds of(const GridPlan& plan) {
    const std::string key = hash_bytes(
        fmt::format("{} {} {}\n{}", text_of(plan.grid), plan.samples, task_.config.batch, setting_));
    // All ranks do as rank 0.
    const std::optional<PassSeconds> before = times_.find(key);
    std::string text = before ? to_json(*before).dump() : "";
    ranks_.broadcast(text);
    if (!text.empty()) {
      ++found_;
      return pass_from_json(nlohmann::json::parse(text)).value();
    }
    ++measured_;
    const PassSeconds pass = measure_passes(task_, plan, ranks_);
    times_.add(key, pass);
    return pass;
  }

  // Sentences for output, on rank 0.
  std::vector<std::string> finish() {
    std::vector<std::string> remarks;
    if (!times_.complaint().empty()) remarks.push_back(times_.complaint());
    if (found_ > 0)
      remarks.push_back(
          fmt::format("the times of {} of {} grids are those of an earlier plan ({}); with "
                      "WFLOW_PASS_TIMES=off all are measured again",
                      found_, found_ + measured_, times_.file().string()));
    times_.write();
    return remarks;
  }

 private:
  const PlanTask& task_;
  Communicator& ranks_;
  PassTimes times_;
  std::string setting_;
  int found_ = 0;
  int measured_ = 0;
};

}  // namespace

// The copy of the state on the rank that writes a checkpoint (checkpoint_writer.h).
static std::int64_t copied_floats(const TrainConfig& config, std::int64_t kept) {
  const bool copied = config.shard == Shard::none &&
                      kept * kFloatBytes <= static_cast<std::int64_t>(CheckpointWriter::kMostCopiedBytes);
  return copied ? kept : 0;
}

// Weights, gradients, the optimizer's arrays and the average of the rank that writes, and the memory of its
// sums.
static std::int64_t state_bytes(const PlanTask& task) {
  const TrainConfig& config = task.config;
  const bool two_moments = config.optimizer.name == OptimizerName::adam ||
                           config.optimizer.name == OptimizerName::adamw ||
                           config.optimizer.name == OptimizerName::lamb;
  const auto part = [&](std::int64_t all, Shard from) {
    return all / (config.shard >= from ? task.ranks : 1);
  };
  const std::int64_t weights = task.graph.parameter_count();
  std::int64_t learned = 0;
  std::int64_t largest = 0;
  std::int64_t largest_learned = 0;
  for (const ParameterSpec& spec : task.graph.parameters()) {
    largest = std::max(largest, spec.count());
    if (spec.frozen) continue;
    learned += spec.count();
    largest_learned = std::max(largest_learned, spec.count());
  }
  const auto [first, last] = learned_range(task.graph, FlatLayout(task.graph.parameters()));
  const std::int64_t summed = std::min(weights, last - first);
  const std::int64_t moments = (two_moments ? 2 : 1) * learned;
  const std::int64_t average = config.ema > 0 ? weights : 0;
  std::int64_t floats = part(moments + average, Shard::optimizer);
  // Passes are added up, and a late sum is made, over whole gradients.
  const bool whole_gradients = config.accumulate > 1 || config.optimizer.lag > 0;
  floats += whole_gradients ? summed + weights : part(summed, Shard::gradients);
  floats += part(weights, Shard::weights);
  floats += copied_floats(config, moments + weights + average);
  std::int64_t lent = 0;  // of the pool of pages
  if (config.shard >= Shard::gradients) lent += std::min(learned, kLayersInSum * largest_learned);
  // One layer is computed while the next is collected; at the end, rank 0 collects all.
  if (config.shard >= Shard::weights)
    lent = std::max(lent + std::min(weights, 2 * largest), weights - part(weights, Shard::weights));
  floats += lent;
  if (config.groups.on() && !config.groups.outer.is_mean())
    floats += (config.groups.outer.momentum > 0 ? 2 : 1) * weights;
  if (task.ranks > 1) floats += std::min(kMostSharedBytes / kFloatBytes, 2 * summed);
  return floats * kFloatBytes;
}

bool predicts_memory(const TrainConfig& config, const ModelGraph& graph) {
  return !graph.is_module() && config.alternate.empty() && !config.tournament.on() &&
         config.stage == Stage::none && compute_device() == "cpu";
}

// Rank 0 joins the members of an ensemble with libtorch, and ranks that share samples compute with it, also
// while possible grids are measured.
static std::int64_t bytes_of_program(const PlanTask& task, bool shares_samples, std::int64_t program) {
  const std::optional<std::int64_t> growth = growth_by_torch();
  shares_samples = shares_samples || (task.ranks > 1 && task.config.grid.choice != GridChoice::given);
  const bool without =
      !growth || (*growth > 0 && !shares_samples && task.config.members <= 1 &&
                  runs_without_torch(task.graph, task.config.backend, task.config.precision));
  return program + (without ? kLaterBytes : *growth + kLaterBytesWithTorch);
}

static bool copies_fields() {
  return std::string_view(direct_kernels().name).starts_with("avx2");
}

// Bytes that `init: data` (data_initial.cc) needs: three copies of a layer's output for a whole sample, in
// the layout of the kernels, in the plain layout, and in the buffer that is measured.
static std::int64_t initial_bytes(const PlanTask& task) {
  constexpr std::int64_t kCopies = 3;
  if (task.config.model.initial != InitialWeights::data || !task.config.init_from.empty()) return 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < task.graph.layers.size(); ++i)
    if (is_scaled_by_data(task.graph, i, {})) most = std::max(most, task.graph.layers[i].output.count());
  return kCopies * most * kFloatBytes;
}

// With `deterministic: grid`: one sample at a time, in the parts of its finest grid, each with gradients of
// its own, and the exact sums of all gradients.
static RankMemory memory_by_sample(const PlanTask& task, std::int64_t program) {
  const SpaceGrid grid = task.given.value_or(SpaceGrid());
  const SpaceGrid cuts = sample_cuts(task.graph, task.config.cuts.parts);
  const std::vector<int> owners = ranks_of_parts(cuts, grid);
  std::optional<Distribution> parts;
  if (cuts.ranks() > 1) parts = distribute(task.graph, cuts);
  std::int64_t inputs = 0;  // of the rank that needs most
  std::int64_t most_parts = 1;
  RankMemory memory;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    std::int64_t step = 0;
    std::int64_t own = 0;
    std::int64_t count = 0;
    for (int part = 0; part < cuts.ranks(); ++part) {
      if (owners[static_cast<std::size_t>(part)] != rank) continue;
      const std::int64_t values = input_values(task.graph, parts ? &*parts : nullptr, part);
      // A part has copies of its inputs and of the outputs.
      const std::int64_t copies = parts ? values + task.graph.output_count() : 0;
      step += step_bytes(task.graph, parts ? &*parts : nullptr, part, copies_fields()) + copies * kFloatBytes;
      own += values;
      ++count;
    }
    memory.step = std::max(memory.step, step);
    inputs = std::max(inputs, own);
    most_parts = std::max(most_parts, count);
  }
  memory.step = std::max(memory.step, initial_bytes(task));
  const std::int64_t weights = task.graph.parameter_count();
  memory.program = bytes_of_program(task, cuts.ranks() > 1, program);
  memory.state = state_bytes(task) + weights * ExactSums::kBytes;
  if (parts) memory.state += most_parts * weights * kFloatBytes;
  memory.samples = bytes_of_samples(task, grid.ranks(), inputs);
  return memory;
}

RankMemory memory_of(const PlanTask& task, const Distribution* parts, std::int64_t program) {
  if (task.config.cuts.on) return memory_by_sample(task, program);
  const int sharing = parts == nullptr ? 1 : parts->grid.ranks();
  const std::int64_t samples = samples_at_once(task, sharing);
  std::int64_t step = 0;
  std::int64_t inputs = 0;
  for (int rank = 0; rank < sharing; ++rank) {
    step = std::max(step, step_bytes(task.graph, parts, rank, copies_fields()));
    inputs = std::max(inputs, input_values(task.graph, parts, rank));
  }
  RankMemory memory;
  memory.program = bytes_of_program(task, parts != nullptr, program);
  memory.state = state_bytes(task);
  memory.samples = bytes_of_samples(task, sharing, inputs);
  memory.step = std::max(samples * step, initial_bytes(task));
  return memory;
}

std::vector<GridPlan> possible_grids(const PlanTask& task, std::int64_t program) {
  std::vector<std::optional<Distribution>> cuts;
  if (task.given && !is_alone(*task.given)) {
    cuts.emplace_back(distribute(task.graph, *task.given));
  } else if (task.given || task.config.grid.choice == GridChoice::given) {
    cuts.emplace_back();
  } else {
    for (int sharing = 1; sharing <= task.ranks; ++sharing) {
      // A group without a sample would idle.
      if (task.ranks % sharing != 0 || task.ranks / sharing > task.config.batch) continue;
      if (sharing == 1) {
        cuts.emplace_back();
        continue;
      }
      for (Distribution& parts : best_cuts(task.graph, sharing, halo_gradients(task.config)))
        cuts.emplace_back(std::move(parts));
    }
  }
  std::vector<GridPlan> plans;
  for (std::optional<Distribution>& parts : cuts) {
    GridPlan& plan = plans.emplace_back();
    plan.parts = std::move(parts);
    if (plan.parts) plan.grid = plan.parts->grid;
    plan.samples = task.config.cuts.on ? 1 : samples_at_once(task, plan.grid.ranks());
    plan.memory = memory_of(task, plan.parts ? &*plan.parts : nullptr, program);
    plan.fits = task.config.memory == 0 || plan.memory.total() <= task.config.memory;
  }
  return plans;
}

std::string refusal_of(const PlanTask& task, const std::vector<GridPlan>& grids, std::int64_t program) {
  if (grids.empty()) {
    return fmt::format(
        "{} ranks can't share a batch of {}, and no layer of the network can be cut "
        "into so many parts: start fewer ranks or raise 'batch'",
        task.ranks, task.config.batch);
  }
  if (std::ranges::any_of(grids, &GridPlan::fits)) return {};
  const GridPlan& least =
      *std::ranges::min_element(grids, {}, [](const GridPlan& grid) { return grid.memory.total(); });
  return fmt::format("the training needs more memory than 'memory' ({}) allows: with {}, {}; {}",
                     bytes_text(task.config.memory), grid_text(least.grid), memory_text(least.memory),
                     advice(task, program));
}

TrainingPlan plan_training(const PlanTask& task, Communicator& ranks, const std::filesystem::path& times) {
  TrainingPlan plan;
  plan.limit = task.config.memory;
  // That of the largest program, so that all ranks choose the same.
  const auto program = static_cast<std::int64_t>(most_of(ranks, static_cast<double>(peak_memory())));
  plan.grids = possible_grids(task, program);
  if (const std::string why = refusal_of(task, plan.grids, program); !why.empty())
    throw CommonError(ExitCode::spec, why);
  const auto first = std::ranges::find(plan.grids, true, &GridPlan::fits);
  const bool fewest = task.config.grid.choice == GridChoice::fit;
  const int sharing = first->grid.ranks();
  const WireSpeed wire = measure_wire(task, ranks);
  PassSource passes(task, ranks, times);
  plan.chosen = static_cast<std::size_t>(first - plan.grids.begin());
  for (std::size_t i = 0; i < plan.grids.size(); ++i) {
    GridPlan& grid = plan.grids[i];
    if (!grid.fits || (fewest && grid.grid.ranks() != sharing)) continue;
    set_seconds(task, passes.of(grid), wire, grid);
    if (grid.seconds() < plan.choice().seconds()) plan.chosen = i;
  }
  plan.remarks = passes.finish();
  return plan;
}

std::string describe(const TrainingPlan& plan) {
  const bool timed = std::any_of(plan.grids.begin(), plan.grids.end(),
                                 [](const GridPlan& grid) { return grid.seconds() > 0; });
  std::string out = fmt::format("{:<15} {:<14} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11}{}\n", "memory a rank",
                                "grid", "at once", "activations", "weights", "samples", "program", "all",
                                timed ? "    a step" : "");
  for (std::size_t i = 0; i < plan.grids.size(); ++i) {
    const GridPlan& grid = plan.grids[i];
    out += fmt::format("{:<15} {:<14} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11}", "", grid_text(grid.grid),
                       grid.samples, bytes_text(grid.memory.step), bytes_text(grid.memory.state),
                       bytes_text(grid.memory.samples), bytes_text(grid.memory.program),
                       bytes_text(grid.memory.total()));
    if (timed)
      out += grid.seconds() > 0 ? fmt::format("{:>8.3g} s", grid.seconds()) : fmt::format("{:>10}", "-");
    if (!grid.fits) out += "  too much";
    if (grid.seconds() > 0 && i == plan.chosen) out += "  chosen";
    out += "\n";
  }
  return out;
}

nlohmann::json to_json(const TrainingPlan& plan) {
  nlohmann::json grids = nlohmann::json::array();
  for (const GridPlan& grid : plan.grids) {
    grids.push_back({{"grid", grid.grid.parts},
                     {"samples_at_once", grid.samples},
                     {"fits", grid.fits},
                     {"memory_bytes",
                      {{"all", grid.memory.total()},
                       {"program", grid.memory.program},
                       {"state", grid.memory.state},
                       {"samples", grid.memory.samples},
                       {"activations", grid.memory.step}}},
                     {"seconds",
                      {{"step", grid.seconds()},
                       {"compute", grid.compute_seconds},
                       {"wire", grid.wire_seconds},
                       {"update", grid.update_seconds},
                       {"samples", grid.samples_seconds}}}});
  }
  return {{"memory_limit", plan.limit}, {"grids", grids}, {"chosen", plan.chosen}};
}

std::optional<TrainingPlan> plan_from_json(const nlohmann::json& json) try {
  TrainingPlan plan;
  plan.limit = json.at("memory_limit").get<std::int64_t>();
  plan.chosen = json.at("chosen").get<std::size_t>();
  for (const nlohmann::json& entry : json.at("grids")) {
    GridPlan& grid = plan.grids.emplace_back();
    grid.grid.parts = entry.at("grid").get<std::array<int, 3>>();
    grid.samples = entry.at("samples_at_once").get<std::int64_t>();
    grid.fits = entry.at("fits").get<bool>();
    const nlohmann::json& bytes = entry.at("memory_bytes");
    grid.memory = {bytes.at("program").get<std::int64_t>(), bytes.at("state").get<std::int64_t>(),
                   bytes.at("samples").get<std::int64_t>(), bytes.at("activations").get<std::int64_t>()};
    grid.compute_seconds = entry.at("seconds").at("compute").get<double>();
    grid.wire_seconds = entry.at("seconds").at("wire").get<double>();
    grid.update_seconds = entry.at("seconds").value("update", 0.0);
    grid.samples_seconds = entry.at("seconds").value("samples", 0.0);
  }
  if (plan.chosen >= plan.grids.size()) return std::nullopt;
  return plan;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace wflow::trainer
