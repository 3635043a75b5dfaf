// SPDX-License-Identifier: Apache-2.0
// Training steps of one network with one kind of kernels, and the processor's peak in the same run; started
// by train_vs_pytorch --steps, which compares it with Python's torch.
//   wflow_network_steps MODEL WIDTH CHANNELS CELLS BATCH THREADS SECONDS fastest|direct|onednn|library|bf16
//   mpirun -n 4 wflow_network_steps MODEL ... fastest|library 2x2x1
// With a grid its ranks share each sample. Prints a line of JSON: samples, wall and CPU seconds, gflop (a
// sample's training step), peak (GFLOP/s of an FMA loop per CPU second), mib (the most memory that the steps
// have added to a process) and exposed (seconds that rank 0 waited for others). CPU seconds and memory are
// those of the rank that needs most.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "trainer/model/network.h"
#include "trainer/model/split_network.h"
#include "trainer/parallel/communicator.h"
#include "trainer/training/optimizer.h"

namespace {

using namespace wflow;
using namespace wflow::trainer;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// 12 independent chains hide the latency of an FMA on every processor; `volatile` ends keep the loop.
#define WFLOW_FMA_LOOP(NAME, TARGET, BYTES)                                        \
  __attribute__((target(TARGET), noinline)) double NAME(std::int64_t rounds) {     \
    typedef float Type __attribute__((vector_size(BYTES)));                        \
    volatile float seed = 1.0F;                                                    \
    Type factor = Type{} + seed, shift = Type{} + 1e-9F * seed;                    \
    Type sums[12];                                                                 \
    for (Type & sum : sums) sum = Type{} + seed;                                   \
    for (std::int64_t i = 0; i < rounds; ++i) {                                    \
      _Pragma("GCC unroll 12") for (Type & sum : sums) sum = sum * factor + shift; \
    }                                                                              \
    Type total{};                                                                  \
    for (const Type& sum : sums) total += sum;                                     \
    volatile float end = total[0];                                                 \
    static_cast<void>(end);                                                        \
    return static_cast<double>(rounds) * 12 * 2 * BYTES / sizeof(float);           \
  }

WFLOW_FMA_LOOP(multiply_avx512, "avx512f", 64)
WFLOW_FMA_LOOP(multiply_avx2, "avx2,fma", 32)

double peak_gflops() {
  auto* const multiply = __builtin_cpu_supports("avx512f") ? multiply_avx512 : multiply_avx2;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double begin = cpu_seconds();
    const double flops = multiply(8'000'000);
    best = std::max(best, flops / (cpu_seconds() - begin));
  }
  return best * 1e-9;
}

// unet: 2-D, from a field to a field; mlp: 5 hidden layers from `channels` numbers to two, CELLS is ignored;
// periodic_NAME: with `padding: periodic`.
ModelGraph graph_of(std::string name, std::int64_t width, std::int64_t channels, std::int64_t cells) {
  constexpr std::string_view kPeriodic = "periodic_";
  Padding padding = Padding::same;
  if (name.starts_with(kPeriodic)) {
    name.erase(0, kPeriodic.size());
    padding = Padding::periodic;
  }
  if (name == "unet") {
    ModelConfig model = default_model(ModelName::unet);
    model.width = width;
    model.padding = padding;
    const TensorShape field = {channels, {1, cells, cells}};
    return build_model(model, ModelTask{{{"x", field}}, field});
  }
  if (name == "mlp") {
    ModelConfig model = default_model(ModelName::mlp);
    model.dense.assign(5, width);
    return build_model(model, {channels, {1, 1, 1}}, 2);
  }
  ModelConfig model = default_model(name == "mlperf" ? ModelName::mlperf : ModelName::cosmoflow);
  model.width = width;
  model.norm = Norm::none;
  model.padding = padding;
  return build_model(model, {channels, {cells, cells, cells}}, 2);
}

// A line of /proc/self/status in MiB: VmRSS, VmHWM (the most so far).
double memory_mib(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == name + ":" && status >> kib) return kib / 1024;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 9 && count != 10) {
    fmt::print(stderr, "usage: {} MODEL WIDTH CHANNELS CELLS BATCH THREADS SECONDS KERNELS [GRID]\n",
               arguments[0]);
    return 2;
  }
  Communicator world(count, arguments);
  const auto number = [&](int i) { return std::strtoll(arguments[i], nullptr, 10); };
  const std::int64_t batch = number(5);
  const std::string kernels = arguments[8];
  const std::array<std::string, 4> names = {"fastest", "direct", "onednn", "library"};
  const bool rounds = kernels == "bf16";  // oneDNN's, with factors of 16 bits
  std::size_t choice = rounds ? 2 : 0;
  while (!rounds && choice + 1 < names.size() && names[choice] != kernels) ++choice;

  set_compute_threads(static_cast<int>(number(6)), true);
  const ModelGraph graph = graph_of(arguments[1], number(2), number(3), number(4));
  FlatState state(graph);
  state.fill_initial_values(1);
  std::unique_ptr<Network> network;
  std::int64_t inputs = graph.input().count();
  std::int64_t results = graph.output_count();
  if (count == 10) {
    const Distribution distribution = distribute(graph, read_space_grid(arguments[9]));
    inputs = graph.input().channels * local_box(distribution, 0, world.rank()).cells();
    results = local_output_count(graph, distribution, world.rank());
    network = make_split_network(graph, state, distribution, world, static_cast<KernelChoice>(choice));
  } else {
    network = make_torch_network(graph, state, static_cast<KernelChoice>(choice), false,
                                 rounds ? Precision::bf16 : Precision::full);
  }
  OptimizerConfig config;
  config.weight_decay = 0.01;
  Optimizer optimizer(config, state.parameters());
  std::vector<float> x(static_cast<std::size_t>(batch * inputs));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(unit_real(hash64(1, i)));
  std::vector<float> outputs(static_cast<std::size_t>(batch * results));
  std::uint64_t step = 0;
  double forward_wait = 0;  // for halos, gathers and sums over the ranks of a sample
  double backward_wait = 0;
  const auto train = [&] {
    const double begin = world.exposed_seconds();
    network->forward(x, batch, {1, step++, 0}, outputs);
    const double between = world.exposed_seconds();
    network->backward(outputs, [](std::int64_t) {});
    forward_wait += between - begin;
    backward_wait += world.exposed_seconds() - between;
    if (world.size() > 1) world.all_reduce(state.exchange());
    optimizer.step(state.values(), state.gradients(), 1e-3);
    network->values_changed();
  };
  const double peak = peak_gflops();
  const double before = memory_mib("VmRSS");
  train();
  train();
  world.barrier();
  forward_wait = backward_wait = 0;
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  std::int64_t samples = 0;
  const double seconds = std::strtod(arguments[7], nullptr);
  while (samples < 3 * batch || most_of(world, wall_seconds() - wall) < seconds) {
    train();
    samples += batch;
  }
  const double gflop = static_cast<double>(graph.training_flops()) * 1e-9;
  const double elapsed = wall_seconds() - wall;
  const double used = most_of(world, cpu_seconds() - cpu);
  const double memory = most_of(world, memory_mib("VmHWM") - before);
  forward_wait = most_of(world, forward_wait);
  backward_wait = most_of(world, backward_wait);
  if (world.rank() != 0) return 0;
  fmt::print(
      R"({{"samples": {}, "wall": {}, "cpu": {}, "gflop": {}, "peak": {}, "mib": {}, "exposed": {}, "forward_wait": {}, "backward_wait": {}}})"
      "\n",
      samples, elapsed, used, gflop, std::max(peak, peak_gflops()), memory, world.exposed_seconds(),
      forward_wait, backward_wait);
  if (std::getenv("WFLOW_DESCRIBE") != nullptr) {
    for (const std::string& line : network->describe()) fmt::print(stderr, "{}\n", line);
  }
  return 0;
}
