// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/planner.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/page_pool.h"
#include "trainer/data/transform.h"
#include "trainer/model/network.h"
#include "trainer/model/parts.h"
#include "trainer/model/split_network.h"
#include "trainer/parallel/gradient_exchange.h"
#include "trainer/training/guard.h"
#include "trainer/training/optimizer.h"
#include "trainer/training/part_optimizers.h"
#include "trainer/training/stragglers.h"

namespace wflow::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMostSummed = std::int64_t{1} << 24;
constexpr std::size_t kLeastSteps = 3;
constexpr std::size_t kMostSteps = 200;
constexpr double kMeasuredSeconds = 0.4;  // of a grid, as far as the numbers of steps allow
constexpr std::size_t kSmallMessage = 64;
constexpr std::size_t kLargeMessage = std::size_t{1} << 22;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::int64_t passes_of(const PlanTask& task, const GridPlan& plan) {
  const std::int64_t groups = std::max(1, task.ranks / plan.grid.ranks());
  return std::min((task.config.batch + groups - 1) / groups, task.config.accumulate);
}

// One rank's part of a training, with everything that a step reads and writes.
class MeasuredPart {
 public:
  MeasuredPart(const PlanTask& task, const GridPlan& plan, const Communicator& ranks)
      : samples_(plan.samples),
        passes_(passes_of(task, plan)),
        state_(task.graph),
        shards_(task.config.shard == Shard::none
                    ? StateShards(state_.parameters())
                    : StateShards(state_.parameters(), ranks.size(), ranks.rank())),
        whole_(task.config.shard < Shard::gradients),
        optimizer_(task.config.optimizer, task.config.parts, state_.parameters(), {},
                   task.config.shard == Shard::none ? 1 : ranks.size(),
                   task.config.shard == Shard::none ? 0 : ranks.rank(), [](std::span<double>) {}),
        average_(task.config.ema, shards_, state_.parameters()),
        buckets_(bucket_begins(static_cast<std::int64_t>(state_.exchange().size()))) {
    // Zeros take no memory before they are written, and are multiplied as fast.
    if (whole_) state_.fill_initial_values(1);
    std::int64_t results = task.graph.output_count();
    if (plan.parts) {
      const int rank = ranks.rank() % plan.grid.ranks();
      group_ = ranks.without_others(rank, plan.grid.ranks());
      network_ = make_split_network(
          task.graph, state_, *plan.parts, *group_,
          task.config.backend == Backend::torch ? KernelChoice::library : KernelChoice::fastest);
      results = local_output_count(task.graph, *plan.parts, rank);
    } else {
      network_ = make_network(task.config.backend, task.config.precision, task.graph, state_);
    }
    const Distribution* parts = plan.parts ? &*plan.parts : nullptr;
    for (std::size_t i = 0; i < task.graph.inputs.size(); ++i) {
      shapes_.push_back(task.graph.inputs[i].shape);
      if (parts != nullptr)
        shapes_.back().extent = local_box(*parts, i, ranks.rank() % plan.grid.ranks()).extent();
      inputs_.emplace_back(static_cast<std::size_t>(samples_ * shapes_.back().count()), 0.5F);
    }
    // Cells that are exchanged take longest.
    if (task.config.augment.moves()) usual_.mirror = {true, true, true};
    outputs_.resize(static_cast<std::size_t>(samples_ * results));
  }

  // Seconds in which a thread of the loader prepares the samples of a step.
  double prepare() {
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      const auto count = static_cast<std::size_t>(shapes_[i].count());
      const std::vector<converters::Scale> scales(static_cast<std::size_t>(shapes_[i].channels));
      prepared_.resize(inputs_[i].size());
      for (std::size_t first = 0; first < prepared_.size(); first += count)
        copy_sample(std::span(inputs_[i]).subspan(first, count), std::span(prepared_).subspan(first, count),
                    shapes_[i], scales, usual_);
    }
    return static_cast<double>(passes_) * since(begin);
  }

  // Seconds until the last backward pass, of that pass, and of the update; then when each bucket was final.
  std::vector<double> step() {
    std::vector<double> ready;
    const Clock::time_point begin = Clock::now();
    for (std::int64_t pass = 0; pass + 1 < passes_; ++pass) {
      forward();
      network_->backward(outputs_, [](std::int64_t) {});
    }
    forward();
    const double before = since(begin);
    network_->backward(outputs_, [&](std::int64_t from) {
      while (ready.size() < buckets_.size() && buckets_[ready.size()] >= from)
        ready.push_back(since(begin) - before);
      if (!whole_) give_back_pages(state_.exchange().subspan(static_cast<std::size_t>(from)));
    });
    const double backward = since(begin) - before;
    update();
    std::vector<double> seconds = {before, backward, since(begin) - before - backward};
    ready.resize(buckets_.size(), backward);
    seconds.insert(seconds.end(), ready.begin(), ready.end());
    return seconds;
  }

 private:
  void forward() {
    const std::vector<std::span<const float>> x(inputs_.begin(), inputs_.end());
    network_->forward(x, samples_, {1, 1, 0}, outputs_);
  }

  // With the rate 0: the values stay, and so does the work.
  void update() {
    if (whole_) largest_ = std::max(largest_, largest_of(state_.gradients()));
    optimizer_.step(state_.values(), state_.gradients(), 0);
    average_.update(state_.values(), ++steps_);
    network_->values_changed();
  }

  const std::int64_t samples_;
  const std::int64_t passes_;  // over as many samples
  FlatState state_;
  const StateShards shards_;
  const bool whole_;  // all gradients are there at the same time
  PartOptimizers optimizer_;
  WeightAverage average_;
  const std::vector<std::int64_t> buckets_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Network> network_;
  std::vector<TensorShape> shapes_;  // of a sample's inputs on this rank
  std::vector<std::vector<float>> inputs_;
  Augmentation usual_;
  std::vector<float> prepared_;
  std::vector<float> outputs_;
  std::int64_t steps_ = 0;
  double largest_ = 0;
};

double seconds_of_exchange(Communicator& ranks, int partner, std::size_t bytes, int times) {
  std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < times && partner < ranks.size(); ++i) ranks.exchange({{partner, out}}, {{partner, in}});
  return since(begin) / times;
}

double seconds_of_sum(Communicator& ranks, std::size_t floats, int times) {
  std::vector<float> values(floats);
  ranks.all_reduce(values);
  ranks.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < times; ++i) ranks.all_reduce(values);
  return most_of(ranks, since(begin) / times);
}

double free_cores_of(const PlanTask& task, Communicator& ranks) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  const double free = static_cast<double>(CPU_COUNT(&cores)) / ranks.ranks_on_node() -
                      static_cast<double>(task.config.threads);
  return -most_of(ranks, -std::clamp(free, 0.0, 1.0));  // of the rank with the fewest
}

// The time that the sums of gradients add to a step: a bucket is summed while the layers before it are
// computed.
double sum_seconds(const PlanTask& task, const PassSeconds& pass, const WireSpeed& wire) {
  if (task.ranks == 1) return 0;
  const bool divided = task.config.shard != Shard::none;
  const auto seconds = [&](std::int64_t floats, double part) {
    return wire.sum_latency + part * static_cast<double>(floats) * wire.sum_seconds;
  };
  const std::int64_t weights = task.graph.parameter_count();
  double end = 0;
  double all = 0;
  // Frozen weights at the ends of the array are left out.
  const auto [first, last] = learned_range(task.graph, FlatLayout(task.graph.parameters()));
  const Range learned = {kScalarSpace + first, kScalarSpace + last};
  std::int64_t above = weights + kScalarSpace;
  const std::vector<std::int64_t> begins = bucket_begins(above);
  for (std::size_t i = 0; i < begins.size(); ++i) {
    // With shares, a rank gets the sums of its share only.
    const std::int64_t floats = intersection(Range{begins[i], above}, learned).count();
    const double bucket = floats == 0 && begins[i] > 0 ? 0 : seconds(floats, divided ? 0.5 : 1.0);
    end = std::max(end, i < pass.ready.size() ? pass.ready[i] : pass.backward) + bucket;
    all += bucket;
    above = begins[i];
  }
  const double hiding = pass.forward + pass.backward;
  const double shown =
      task.config.optimizer.lag > 0 ? std::max(0.0, all - hiding) : std::max(0.0, end - pass.backward);
  // The others' shares of the weights: after the update, or for each pass.
  const double gathered = divided ? (task.config.shard == Shard::weights ? 2 : 1) * seconds(weights, 0.5) : 0;
  return gathered + wire.free_cores * shown + (1 - wire.free_cores) * std::max(shown, all);
}

// The time that halos and sums over the ranks of a sample add to a pass, after Dryden et al. 2019, section V:
// a halo is waited for before a layer's forward pass; in the backward pass it travels while the gradients of
// weights are computed.
double halo_seconds(const PlanTask& task, const GridPlan& plan, const WireSpeed& wire) {
  if (!plan.parts) return 0;
  double messages = static_cast<double>(plan.parts->switches.size());
  for (const LayerSplit& layer : plan.parts->layers) {
    messages += layer.halo.empty() ? 0 : 1;
    messages += layer.gradient_halo.empty() ? 0 : 1;
    messages += layer.forward_sums > 0 ? 2 : 0;
    messages += layer.backward_sums > 0 ? 1 : 0;
  }
  double most = 0;
  for (int rank = 0; rank < plan.grid.ranks(); ++rank) {
    const RankLoad load = load_of(task.graph, *plan.parts, rank, halo_gradients(task.config));
    most = std::max(most, static_cast<double>(load.sent_forward) +
                              (1 - wire.free_cores) * static_cast<double>(load.sent_backward));
  }
  return messages * wire.latency + most * static_cast<double>(plan.samples) / wire.bytes_per_second;
}

}  // namespace

PassSeconds measure_passes(const PlanTask& task, const GridPlan& plan, Communicator& ranks) {
  MeasuredPart part(task, plan, ranks);
  part.step();  // makes the kernels
  ranks.barrier();
  const Clock::time_point begin = Clock::now();
  const std::size_t numbers = 1 + part.step().size();
  const double wanted = kMeasuredSeconds / std::max(1e-6, most_of(ranks, since(begin)));
  const std::size_t steps = std::clamp(static_cast<std::size_t>(wanted), kLeastSteps, kMostSteps);
  std::vector<double> own;
  for (std::size_t i = 0; i < steps; ++i) {
    ranks.barrier();  // in the training, a sum ends each step
    const std::vector<double> step = part.step();
    own.push_back(part.prepare());
    own.insert(own.end(), step.begin(), step.end());
  }
  const std::vector<double> all = gather_values(ranks, own);
  std::vector<double> medians;
  for (std::size_t number = 0; number < numbers; ++number) {
    std::vector<double> slowest(steps, 0);  // of the ranks, in each step
    for (std::size_t i = number; i < all.size(); i += numbers) {
      double& seconds = slowest[i / numbers % steps];
      seconds = std::max(seconds, all[i]);
    }
    medians.push_back(median_of(std::move(slowest)));
  }
  return {medians[1], medians[2], medians[3], {medians.begin() + 4, medians.end()}, medians[0]};
}

WireSpeed measure_wire(const PlanTask& task, Communicator& ranks) {
  WireSpeed wire;
  wire.free_cores = free_cores_of(task, ranks);
  if (ranks.size() == 1) return wire;
  const int partner = ranks.rank() ^ 1;
  const auto seconds = [&](std::size_t bytes, int times) {
    ranks.barrier();
    return most_of(ranks, seconds_of_exchange(ranks, partner, bytes, times));
  };
  seconds(kLargeMessage, 1);
  const double small = seconds(kSmallMessage, 50);
  wire.bytes_per_second = kLargeMessage / std::max(1e-9, seconds(kLargeMessage, 5) - small);
  // The passes are measured without the others, but hand their messages to the communication thread, too.
  const auto alone = ranks.without_others(0, 2);
  wire.latency = std::max(0.0, small - seconds_of_exchange(*alone, 1, kSmallMessage, 50));
  wire.sum_latency = seconds_of_sum(ranks, kScalarSpace, 20);
  // A part is as fast as the whole, and has little memory.
  const auto part = static_cast<std::size_t>(std::min(task.graph.parameter_count(), kMostSummed));
  if (part > 0)
    wire.sum_seconds =
        std::max(0.0, seconds_of_sum(ranks, part, 3) - wire.sum_latency) / static_cast<double>(part);
  return wire;
}

void set_seconds(const PlanTask& task, const PassSeconds& pass, const WireSpeed& wire, GridPlan& plan) {
  plan.compute_seconds = pass.forward + pass.backward;
  plan.update_seconds = pass.update;
  plan.samples_seconds = (1 - wire.free_cores) * pass.samples;
  plan.wire_seconds = sum_seconds(task, pass, wire) +
                      static_cast<double>(passes_of(task, plan)) * halo_seconds(task, plan, wire);
}

}  // namespace wflow::trainer
