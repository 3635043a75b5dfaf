// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/page_pool.h"
#include "base/resources.h"
#include "base/text.h"
#include "trainer/model/distribution.h"
#include "trainer/model/network.h"
#include "trainer/model/split_network.h"
#include "trainer/model/step_memory.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostSharedBytes = std::int64_t{48} << 20;  // of the sums of a node: shared_slots.cc
// The program grows by this much after the plan, whatever the network: kernels, buffers of MPI and HDF5, the
// export. Measured on 1 to 4 ranks; predictions are then within 10 % of the peak.
constexpr std::int64_t kLaterBytes = std::int64_t{64} << 20;
// One is computed while the next is read, for the training and for the validation; each is also there as it
// is stored, for a while.
constexpr std::int64_t kBatchesInMemory = 8;
constexpr std::int64_t kLayersInSum = 2;  // gradients of one are computed while those of another are summed
constexpr std::size_t kGridsOfEachSize = 3;  // those that send least are measured
constexpr std::int64_t kMostSummed = std::int64_t{1} << 24;
constexpr int kMeasuredSteps = 2;  // the faster one counts
// Part of the backward pass during which sums of gradients travel: the last layers' come first.
constexpr double kHidingPart = 0.5;

bool is_alone(const SpaceGrid& grid) {
  return grid.ranks() == 1;
}

// Samples that a rank computes at once.
std::int64_t samples_at_once(const PlanTask& task, const SpaceGrid& grid) {
  const std::int64_t groups = std::max(1, task.ranks / grid.ranks());
  const std::int64_t on_rank = (task.config.batch + groups - 1) / groups;
  return (on_rank + task.config.accumulate - 1) / task.config.accumulate;
}

std::string bytes_text(std::int64_t bytes) {
  return text::format_bytes(static_cast<std::uint64_t>(bytes));
}

double most_of(Communicator& ranks, double own) {
  const std::vector<double> all = gather_values(ranks, std::vector<double>{own});
  return *std::max_element(all.begin(), all.end());
}

struct WireSpeed {
  double latency = 0;           // seconds of a small message
  double bytes_per_second = 1;  // of large ones
  double gradient_seconds = 0;  // of the sum of all gradients
};

double seconds_of_exchange(Communicator& ranks, std::size_t bytes, int times) {
  const int partner = ranks.rank() ^ 1;
  std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  ranks.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < times && partner < ranks.size(); ++i) ranks.exchange({{partner, out}}, {{partner, in}});
  return most_of(ranks, std::chrono::duration<double>(Clock::now() - begin).count() / times);
}

WireSpeed measure_wire(Communicator& ranks, std::int64_t gradients) {
  WireSpeed wire;
  if (ranks.size() == 1) return wire;
  constexpr std::size_t kSmall = 64;
  constexpr std::size_t kLarge = std::size_t{1} << 22;
  seconds_of_exchange(ranks, kLarge, 1);
  wire.latency = seconds_of_exchange(ranks, kSmall, 20);
  wire.bytes_per_second = kLarge / std::max(1e-9, seconds_of_exchange(ranks, kLarge, 3) - wire.latency);
  // A part is as fast as the whole, and has little memory.
  const std::int64_t part = std::min(gradients, kMostSummed);
  std::vector<float> values(static_cast<std::size_t>(part));
  ranks.all_reduce(values);
  ranks.barrier();
  const Clock::time_point begin = Clock::now();
  ranks.all_reduce(values);
  wire.gradient_seconds = most_of(ranks, std::chrono::duration<double>(Clock::now() - begin).count()) *
                          static_cast<double>(gradients) / static_cast<double>(part);
  return wire;
}

// Floats of a sample that a rank has of each input. Null: whole samples.
std::vector<std::int64_t> input_counts(const ModelGraph& graph, const Distribution* distribution, int rank) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const TensorShape& shape = graph.inputs[i].shape;
    counts.push_back(shape.channels *
                     (distribution == nullptr ? shape.voxels() : local_box(*distribution, i, rank).cells()));
  }
  return counts;
}

std::int64_t input_values(const ModelGraph& graph, const Distribution* distribution, int rank) {
  const std::vector<std::int64_t> counts = input_counts(graph, distribution, rank);
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Seconds of a step's passes over this rank's part, without the others.
double measure_compute(const PlanTask& task, const SpaceGrid& grid, const Communicator& ranks) {
  const ModelGraph& graph = task.graph;
  const std::int64_t samples = samples_at_once(task, grid);
  FlatState state(graph);
  // Zeros take no memory before they are written, and are multiplied as fast.
  const bool whole = task.config.shard < Shard::gradients;
  if (whole) state.fill_initial_values(1);
  std::vector<std::int64_t> counts;
  std::unique_ptr<Communicator> group;
  std::unique_ptr<Network> network;
  std::int64_t results = graph.output_count();
  if (is_alone(grid)) {
    network = make_network(task.config.backend, task.config.precision, graph, state);
    counts = input_counts(graph, nullptr, 0);
  } else {
    const Distribution distribution = distribute(graph, grid);
    const int rank = ranks.rank() % grid.ranks();
    group = ranks.without_others(rank, grid.ranks());
    network = make_split_network(
        graph, state, distribution, *group,
        task.config.backend == Backend::torch ? KernelChoice::library : KernelChoice::fastest);
    counts = input_counts(graph, &distribution, rank);
    results = local_output_count(graph, distribution, rank);
  }
  std::vector<std::vector<float>> inputs;
  for (const std::int64_t count : counts)
    inputs.emplace_back(static_cast<std::size_t>(samples * count), 0.5F);
  const std::vector<std::span<const float>> x(inputs.begin(), inputs.end());
  std::vector<float> outputs(static_cast<std::size_t>(samples * results));
  double best = 1e30;
  for (int i = 0; i <= kMeasuredSteps; ++i) {
    const Clock::time_point begin = Clock::now();
    network->forward(x, samples, {1, 1, 0}, outputs);
    network->backward(outputs, [&](std::int64_t from) {
      if (!whole) give_back_pages(state.exchange().subspan(static_cast<std::size_t>(from)));
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 0) best = std::min(best, seconds);  // the first step makes the kernels
  }
  return best;
}

// The time that messages add to a step, after Dryden et al. 2019, section V: a halo is waited for before a
// layer's forward pass; in the backward pass it travels while the gradients of weights are computed.
double wire_seconds(const PlanTask& task, const SpaceGrid& grid, const WireSpeed& wire,
                    double compute_seconds) {
  const double gradients = std::max(0.0, wire.gradient_seconds - kHidingPart * compute_seconds);
  if (is_alone(grid)) return gradients;
  const Distribution distribution = distribute(task.graph, grid);
  double messages = 0;
  for (const LayerSplit& layer : distribution.layers) {
    messages += layer.halo.empty() ? 0 : 1;
    messages += layer.gradient_halo.empty() ? 0 : 1;
    messages += layer.forward_sums > 0 ? 2 : 0;
    messages += layer.backward_sums > 0 ? 1 : 0;
  }
  messages += static_cast<double>(distribution.switches.size());
  std::int64_t most = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank)
    most = std::max(most, load_of(task.graph, distribution, rank).sent_forward);
  const auto bytes = static_cast<double>(most * samples_at_once(task, grid));
  return gradients + messages * wire.latency + bytes / wire.bytes_per_second;
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

std::int64_t bytes_sent(const ModelGraph& graph, const SpaceGrid& grid) {
  const Distribution distribution = distribute(graph, grid);
  std::int64_t sent = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const RankLoad load = load_of(graph, distribution, rank);
    sent = std::max(sent, load.sent_forward + load.sent_backward);
  }
  return sent;
}

// Those of equally many ranks that send least.
std::vector<SpaceGrid> best_grids(const ModelGraph& graph, int ranks) {
  const NamedShape& largest = *std::ranges::max_element(
      graph.inputs, {}, [](const NamedShape& input) { return input.shape.voxels(); });
  std::vector<std::pair<std::int64_t, SpaceGrid>> found;
  for (const SpaceGrid& grid : grids_of(ranks, largest.shape.extent)) {
    try {
      found.emplace_back(bytes_sent(graph, grid), grid);
    } catch (const Error&) {  // no layer can be cut so
    }
  }
  std::ranges::stable_sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<SpaceGrid> grids;
  for (std::size_t i = 0; i < std::min(found.size(), kGridsOfEachSize); ++i) grids.push_back(found[i].second);
  return grids;
}

std::string memory_text(const RankMemory& memory) {
  return fmt::format("{} a rank: {} activations, {} weights and optimizer, {} samples, {} program",
                     bytes_text(memory.total()), bytes_text(memory.step), bytes_text(memory.state),
                     bytes_text(memory.samples), bytes_text(memory.program));
}

std::string grid_text(const SpaceGrid& grid) {
  return is_alone(grid) ? "whole samples" : text_of(grid);
}

// A grid that would fit, if the configuration does not leave the choice to the planner.
std::string advice(const PlanTask& task, std::int64_t program) {
  if (task.config.grid.choice == GridChoice::given) {
    TrainConfig config = task.config;
    config.grid = {{}, GridChoice::fit};
    for (const GridPlan& plan :
         possible_grids({config, task.graph, task.target_values, std::nullopt, task.ranks}, program)) {
      if (!plan.fits) continue;
      const auto& [depth, height, width] = plan.grid.parts;
      return fmt::format("'grid: [{}, {}, {}]' needs {}", depth, height, width,
                         bytes_text(plan.memory.total()));
    }
  }
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::weights}) {
    TrainConfig config = task.config;
    config.shard = shard;
    if (shard <= task.config.shard || task.ranks == 1 || !config.alternate.empty()) continue;
    for (const GridPlan& plan :
         possible_grids({config, task.graph, task.target_values, task.given, task.ranks}, program))
      if (plan.fits)
        return fmt::format("'shard: {}' needs {}", name_of(shard), bytes_text(plan.memory.total()));
  }
  return "start more ranks, or take a smaller 'batch' or a larger 'accumulate'";
}

[[noreturn]] void refuse(const PlanTask& task, const TrainingPlan& plan) {
  const GridPlan& least =
      *std::ranges::min_element(plan.grids, {}, [](const GridPlan& grid) { return grid.memory.total(); });
  throw CommonError(ExitCode::spec,
                    fmt::format("the training needs more memory than 'memory' ({}) allows: with {}, {}; {}",
                                bytes_text(plan.limit), grid_text(least.grid), memory_text(least.memory),
                                advice(task, least.memory.program)));
}

}  // namespace

// Weights, gradients, the optimizer's arrays and the average of a rank, and the memory of its sums.
static std::int64_t state_bytes(const PlanTask& task) {
  const TrainConfig& config = task.config;
  const bool two_moments = config.optimizer.name == OptimizerName::adam ||
                           config.optimizer.name == OptimizerName::adamw ||
                           config.optimizer.name == OptimizerName::lamb;
  const std::int64_t weights = task.graph.parameter_count();
  const auto kept = [&](Shard from) { return weights / (config.shard >= from ? task.ranks : 1); };
  std::int64_t largest = 0;
  for (const ParameterSpec& spec : task.graph.parameters()) largest = std::max(largest, spec.count());
  std::int64_t floats = ((two_moments ? 2 : 1) + (config.ema > 0 ? 1 : 0)) * kept(Shard::optimizer);
  // Passes are added up, and a late sum is made, over whole gradients.
  const bool whole_gradients = config.accumulate > 1 || config.optimizer.lag > 0;
  floats += whole_gradients ? 2 * weights : kept(Shard::gradients);
  floats += kept(Shard::weights);
  if (config.shard >= Shard::gradients) floats += std::min(weights, kLayersInSum * largest);
  // One layer is computed while the next is collected.
  if (config.shard >= Shard::weights) floats += std::min(weights, 2 * largest);
  if (config.groups.on() && !config.groups.outer.is_mean())
    floats += (config.groups.outer.momentum > 0 ? 2 : 1) * weights;
  if (task.ranks > 1) floats += std::min(kMostSharedBytes / kFloatBytes, 2 * weights);
  return floats * kFloatBytes;
}

RankMemory memory_of(const PlanTask& task, const SpaceGrid& grid, std::int64_t program) {
  const std::int64_t samples = samples_at_once(task, grid);
  std::int64_t step = 0;
  std::int64_t inputs = 0;
  if (is_alone(grid)) {
    step = step_bytes(task.graph, nullptr, 0);
    inputs = input_values(task.graph, nullptr, 0);
  } else {
    const Distribution distribution = distribute(task.graph, grid);
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      step = std::max(step, step_bytes(task.graph, &distribution, rank));
      inputs = std::max(inputs, input_values(task.graph, &distribution, rank));
    }
  }
  RankMemory memory;
  memory.program = program + kLaterBytes;
  memory.state = state_bytes(task);
  memory.samples = kBatchesInMemory * samples * (inputs + task.target_values) * kFloatBytes;
  memory.step = samples * step;
  return memory;
}

std::vector<GridPlan> possible_grids(const PlanTask& task, std::int64_t program) {
  std::vector<SpaceGrid> grids;
  if (task.given) {
    grids.push_back(*task.given);
  } else if (task.config.grid.choice == GridChoice::given) {
    grids.push_back({});
  } else {
    for (int sharing = 1; sharing <= task.ranks; ++sharing) {
      // A group without a sample would idle.
      if (task.ranks % sharing != 0 || task.ranks / sharing > task.config.batch) continue;
      const std::vector<SpaceGrid> best =
          sharing == 1 ? std::vector<SpaceGrid>{{}} : best_grids(task.graph, sharing);
      grids.insert(grids.end(), best.begin(), best.end());
    }
  }
  std::vector<GridPlan> plans;
  for (const SpaceGrid& grid : grids) {
    GridPlan& plan = plans.emplace_back();
    plan.grid = grid;
    plan.samples = samples_at_once(task, grid);
    plan.memory = memory_of(task, grid, program);
    plan.fits = task.config.memory == 0 || plan.memory.total() <= task.config.memory;
  }
  return plans;
}

TrainingPlan plan_training(const PlanTask& task, Communicator& ranks) {
  TrainingPlan plan;
  plan.limit = task.config.memory;
  // That of the largest program, so that all ranks choose the same.
  plan.grids =
      possible_grids(task, static_cast<std::int64_t>(most_of(ranks, static_cast<double>(peak_memory()))));
  if (plan.grids.empty()) {
    throw CommonError(
        ExitCode::spec,
        fmt::format("{} ranks can't share a batch of {}, and no layer of the network can be cut "
                    "into so many parts: start fewer ranks or raise 'batch'",
                    task.ranks, task.config.batch));
  }
  const auto first = std::ranges::find(plan.grids, true, &GridPlan::fits);
  if (first == plan.grids.end()) refuse(task, plan);
  const bool fewest = task.config.grid.choice == GridChoice::fit;
  const int sharing = first->grid.ranks();
  const WireSpeed wire = measure_wire(ranks, task.graph.parameter_count());
  plan.chosen = static_cast<std::size_t>(first - plan.grids.begin());
  for (std::size_t i = 0; i < plan.grids.size(); ++i) {
    GridPlan& grid = plan.grids[i];
    if (!grid.fits || (fewest && grid.grid.ranks() != sharing)) continue;
    ranks.barrier();
    grid.compute_seconds = most_of(ranks, measure_compute(task, grid.grid, ranks));
    grid.wire_seconds = wire_seconds(task, grid.grid, wire, grid.compute_seconds);
    if (grid.seconds() < plan.choice().seconds()) plan.chosen = i;
  }
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
    grids.push_back(
        {{"grid", grid.grid.parts},
         {"samples_at_once", grid.samples},
         {"fits", grid.fits},
         {"memory_bytes",
          {{"all", grid.memory.total()},
           {"program", grid.memory.program},
           {"state", grid.memory.state},
           {"samples", grid.memory.samples},
           {"activations", grid.memory.step}}},
         {"seconds",
          {{"step", grid.seconds()}, {"compute", grid.compute_seconds}, {"wire", grid.wire_seconds}}}});
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
  }
  if (plan.chosen >= plan.grids.size()) return std::nullopt;
  return plan;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace wflow::trainer
