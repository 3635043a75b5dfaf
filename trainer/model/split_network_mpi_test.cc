// SPDX-License-Identifier: Apache-2.0
// mpirun runs this on 2 to 8 ranks. Each rank computes its box of the samples with the others, and the whole
// samples by itself. Not a GoogleTest program: all ranks must take the same path, so a failed check ends all
// ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "trainer/model/flat_state.h"
#include "trainer/model/graph_builder.h"
#include "trainer/model/split_network.h"
#include "trainer/parallel/communicator.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kSamples = 2;
constexpr StepKey kKey = {5, 3, 11};

// Relative to the largest value; for the gradients of an array of weights, to their length.
constexpr double kRounding = 1e-6;
// Each of ten to twenty norms and activations rounds otherwise, and the gradients are sums of thousands of
// terms of both signs.
constexpr double kNetworkRounding = 1e-5;

std::vector<float> noise(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(2 * unit_real(hash64(seed, i)) - 1);
  return values;
}

// The cells of a box of [samples, channels, whole field].
std::vector<float> cut(const std::vector<float>& all, const TensorShape& shape, const Box& box) {
  std::vector<float> cells;
  const auto& [depth, height, width] = box.axes;
  for (std::int64_t plane = 0; plane < kSamples * shape.channels; ++plane) {
    for (std::int64_t d = depth.begin; d < depth.end; ++d) {
      for (std::int64_t h = height.begin; h < height.end; ++h) {
        const std::int64_t line = ((plane * shape.extent[0] + d) * shape.extent[1] + h) * shape.extent[2];
        for (std::int64_t w = width.begin; w < width.end; ++w)
          cells.push_back(all[static_cast<std::size_t>(line + w)]);
      }
    }
  }
  return cells;
}

struct Values {
  std::vector<float> predicted;
  std::vector<float> outputs;
  std::vector<float> exchange;  // statistics and gradients
};

// Counts the bytes that this rank sends to others in exchanges; sums are not among them.
class CountingGroup final : public RankGroup {
 public:
  explicit CountingGroup(RankGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  ExchangeTicket start_exchange(std::vector<Outgoing> outgoing, std::vector<Incoming> incoming) override {
    for (const Outgoing& message : outgoing)
      if (message.to != rank()) sent_ += std::ssize(message.bytes);
    return group_.start_exchange(std::move(outgoing), std::move(incoming));
  }
  void wait(ExchangeTicket ticket) override { group_.wait(ticket); }
  void sum_by_rank(std::span<double> values) override { group_.sum_by_rank(values); }

  std::int64_t take_sent() { return std::exchange(sent_, 0); }

 private:
  RankGroup& group_;
  std::int64_t sent_ = 0;
};

class Run {
 public:
  Run(const ModelGraph& graph, const SpaceGrid& grid, Communicator& group, std::uint64_t seed)
      : graph_(graph), plan_(distribute(graph, grid)), group_(group) {
    for (const NamedShape& input : graph.inputs)
      inputs_.push_back(noise(kSamples * input.shape.count(), hash64(seed, inputs_.size())));
  }

  Values plain() {
    FlatState state(graph_);
    fill(state);
    const auto network = make_torch_network(graph_, state, KernelChoice::library, false);
    std::vector<float> gradients;
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) append(gradients, output_gradient(i));
    Values values = step(*network, state, inputs_, gradients);
    // The outputs that the split network has here.
    values.predicted = own_outputs(values.predicted);
    values.outputs = own_outputs(values.outputs);
    return values;
  }

  Values split(KernelChoice kernels) {
    FlatState state(graph_);
    fill(state);
    const auto network = make_split_network(graph_, state, plan_, group_, kernels);
    return step(*network, state, own_inputs(), own_gradients());
  }

  // The bytes that this rank sends in a step, and those that the plan counts.
  struct Sent {
    std::array<std::int64_t, 2> found = {};  // in the forward and the backward pass
    std::array<std::int64_t, 2> planned = {};
  };
  Sent sent(KernelChoice kernels) {
    FlatState state(graph_);
    fill(state);
    CountingGroup counting(group_);
    const auto network = make_split_network(graph_, state, plan_, counting, kernels);
    const std::vector<std::vector<float>> inputs = own_inputs();
    const std::vector<float> gradients = own_gradients();
    std::vector<float> outputs(gradients.size());
    counting.take_sent();
    Sent sent;
    const std::vector<std::span<const float>> x(inputs.begin(), inputs.end());
    network->forward(x, kSamples, kKey, outputs);
    sent.found[0] = counting.take_sent();
    network->backward(gradients, [](std::int64_t) {});
    sent.found[1] = counting.take_sent();
    const RankLoad load =
        load_of(graph_, plan_, group_.rank(),
                kernels == KernelChoice::library ? HaloGradients::parts : HaloGradients::groups);
    sent.planned = {kSamples * load.sent_forward, kSamples * load.sent_backward};
    return sent;
  }

 private:
  std::vector<std::vector<float>> own_inputs() const {
    std::vector<std::vector<float>> own;
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      own.push_back(cut(inputs_[i], graph_.shape_of(i), box(i)));
    return own;
  }
  std::vector<float> own_gradients() const {
    std::vector<float> gradients;
    for (const ModelGraph::Output& output : graph_.outputs) {
      const auto i = static_cast<std::size_t>(&output - graph_.outputs.data());
      append(gradients, cut(output_gradient(i), graph_.shape_of(output.value), box(output.value)));
    }
    return gradients;
  }
  const Box& box(std::size_t value) const { return local_box(plan_, value, group_.rank()); }
  static void append(std::vector<float>& to, const std::vector<float>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  static void fill(FlatState& state) {
    state.fill_initial_values(7);
    state.fill_initial_buffers();
    // Biases and scales are equal at first.
    for (const FlatEntry& entry : state.parameters().entries) {
      if (entry.spec.decays) continue;
      const std::span<float> values = state.value(entry);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.01F * static_cast<float>(i % 7);
    }
  }
  std::vector<float> output_gradient(std::size_t i) const {
    return noise(kSamples * graph_.shape_of(graph_.outputs[i].value).count(), 100 + i);
  }

  std::vector<float> own_outputs(const std::vector<float>& all) const {
    std::vector<float> own;
    auto from = all.begin();
    for (const ModelGraph::Output& output : graph_.outputs) {
      const TensorShape& shape = graph_.shape_of(output.value);
      const std::vector<float> one(from, from + kSamples * shape.count());
      from += kSamples * shape.count();
      append(own, cut(one, shape, box(output.value)));
    }
    return own;
  }

  static Values step(Network& network, FlatState& state, const std::vector<std::vector<float>>& inputs,
                     const std::vector<float>& gradients) {
    const std::vector<std::span<const float>> x(inputs.begin(), inputs.end());
    Values values;
    values.predicted.resize(gradients.size());
    values.outputs.resize(gradients.size());
    network.predict(x, kSamples, values.predicted);
    std::ranges::fill(state.exchange(), 77.0F);  // of a step before
    network.forward(x, kSamples, kKey, values.outputs);
    std::int64_t last = std::ssize(state.exchange());
    network.backward(gradients, [&](std::int64_t from) {
      WFLOW_CHECK(from <= last);
      last = from;
    });
    for (const FlatEntry& entry : state.buffers().entries)
      append_span(values.exchange, state.batch_statistic(entry));
    for (const FlatEntry& entry : state.parameters().entries)
      append_span(values.exchange, state.gradient(entry));
    return values;
  }
  static void append_span(std::vector<float>& to, std::span<const float> more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  const ModelGraph& graph_;
  Distribution plan_;
  Communicator& group_;
  std::vector<std::vector<float>> inputs_;
};

// The largest difference over the largest value.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 1e30;
  double most = 0;
  double largest = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return 1e30;
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return most / largest;
}

// The length of the difference over that of the value.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0;
  double length = 1e-60;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - b[i], 2);
    length += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(apart / length);
}

struct Differences {
  double predicted = 0;
  double outputs = 0;
  double input = 0;      // its gradient
  double gradients = 0;  // of each array of weights or statistics
};

void compare_arrays(const ModelGraph& graph, const Values& split, const Values& plain, Differences& d) {
  const FlatState state(graph);
  auto at = split.exchange.begin();
  auto from = plain.exchange.begin();
  const auto compare = [&](const FlatLayout& layout) {
    for (const FlatEntry& entry : layout.entries) {
      const double found = distance({at, at + entry.count}, {from, from + entry.count});
      double& most = entry.spec.name == "input.table" ? d.input : d.gradients;
      most = std::max(most, found);
      at += entry.count;
      from += entry.count;
    }
  };
  compare(state.buffers());
  compare(state.parameters());
}

Differences compare(const ModelGraph& graph, const SpaceGrid& grid, Communicator& group, KernelChoice kernels,
                    std::uint64_t seed) {
  Run run(graph, grid, group, seed);
  const Values plain = run.plain();
  Values split = run.split(kernels);
  group.all_reduce(split.exchange);
  Differences d = {difference(split.predicted, plain.predicted), difference(split.outputs, plain.outputs)};
  compare_arrays(graph, split, plain, d);
  return d;
}

using Value = GraphBuilder::Value;
using Add = std::function<Value(GraphBuilder& builder, Value from)>;

// equal: outputs and the input's gradient are those of one rank bit for bit.
enum class Bits { equal, rounded };

enum class Kernels { library, onednn_too };

struct Case {
  const char* name;
  Add add;
  Bits bits = Bits::equal;
  Kernels kernels = Kernels::library;
};

// Learned positions before the layer: their gradient is that of the layer's input, summed over the samples.
ModelGraph graph_of(const Case& layer, const TensorShape& field) {
  GraphBuilder builder({{"x", field}}, {});
  const auto input = builder.positions("input", 0, true);
  builder.output("y", layer.add(builder, input));
  ModelGraph graph = builder.finish();
  choose_initial_weights(graph, InitialWeights::automatic);
  return graph;
}

// On some processors oneDNN takes other kernels for strided windows and groups of short lines.
// The gradient of a cell that a periodic border repeats is a sum over ranks, in another order.
Case convolution(const char* name, std::int64_t channels, const GraphBuilder::Window& window) {
  const bool equal = window.stride == 1 && window.groups == 1 && window.padding != Padding::periodic;
  const Bits bits = equal ? Bits::equal : Bits::rounded;
  return {name, [=](GraphBuilder& b, Value x) { return b.convolution("c", x, channels, window); }, bits,
          Kernels::onednn_too};
}
Case block(const char* name, Norm norm, LayerKind kind) {
  return {name,
          [=](GraphBuilder& b, Value x) {
            Value y = b.convolution("c", x, 16, {3, 1, Padding::same, norm == Norm::none});
            if (norm != Norm::none) y = b.norm("n", y, norm, 4);
            y = b.pointwise(LayerKind::leaky_relu, "a", y, 0.1);
            y = b.pool(kind, "p", y, b.along_axes(2));
            return b.convolution("c2", y, 16, {3});
          },
          Bits::rounded, Kernels::onednn_too};
}
Case transposed(const char* name, std::int64_t channels, const GraphBuilder::Window& window) {
  return {name, [=](GraphBuilder& b, Value x) { return b.transposed_convolution("t", x, channels, window); },
          Bits::rounded};
}
Case pointwise(const char* name, LayerKind kind, double value = 0, Bits bits = Bits::equal) {
  return {name, [=](GraphBuilder& b, Value x) { return b.pointwise(kind, "a", x, value); }, bits};
}
Case pool(const char* name, LayerKind kind, std::int64_t cells) {
  return {name, [=](GraphBuilder& b, Value x) { return b.pool(kind, "p", x, b.along_axes(cells)); }};
}

std::vector<Case> layer_cases() {
  return {
      convolution("convolution 3", 6, {3}),
      convolution("convolution 4", 5, {4}),
      convolution("convolution 3, valid", 6, {3, 1, Padding::valid}),
      convolution("convolution 3, stride 2", 6, {3, 2}),
      convolution("convolution 2, stride 3", 6, {2, 3}),
      convolution("convolution 3, dilation 2", 6, {3, 1, Padding::same, false, 2}),
      convolution("convolution 3, 2 groups", 4, {3, 1, Padding::same, true, 1, 2}),
      convolution("convolution 3, depth-wise", 4, {3, 1, Padding::same, true, 1, 4}),
      convolution("convolution 1", 6, {1}),
      convolution("convolution 3 to 16 channels", 16, {3}),
      convolution("periodic convolution 3", 6, {3, 1, Padding::periodic}),
      convolution("periodic convolution 4", 5, {4, 1, Padding::periodic, false}),
      convolution("periodic convolution 3, stride 2", 6, {3, 2, Padding::periodic}),
      convolution("periodic convolution 3, dilation 2", 16, {3, 1, Padding::periodic, true, 2}),
      convolution("periodic convolution 7", 4, {7, 1, Padding::periodic}),
      {"periodic convolution of a whole field",
       [](GraphBuilder& b, Value x) {
         const TensorShape shape = b.shape(x);
         const Value whole = b.reshape("w", b.flatten("f", x), shape);
         return b.convolution("c", whole, 4, {3, 1, Padding::periodic});
       },
       Bits::rounded},
      {"convolutions of 16 channels",
       [](GraphBuilder& b, Value x) {
         const Value y = b.convolution("c", x, 16, {4});
         return b.convolution("c2", y, 32, {3, 2});
       },
       Bits::rounded, Kernels::onednn_too},
      block("convolution, batch norm, leaky relu, average pool", Norm::batch, LayerKind::average_pool),
      block("convolution, group norm, leaky relu, max pool", Norm::group, LayerKind::max_pool),
      block("convolution, bias, leaky relu, max pool", Norm::none, LayerKind::max_pool),
      {"joined and added blocks",
       [](GraphBuilder& b, Value x) {
         const Value y = b.convolution("c", x, 16, {3});
         const Value z = b.convolution("c2", y, 16, {3, 2});
         const Value up = b.transposed_convolution("t", z, 16, {2, 2});
         if (b.shape(up) == b.shape(y)) {
           const Value both = b.norm("n", b.concatenate("k", {y, up}), Norm::batch);
           return b.convolution("c3", b.pointwise(LayerKind::relu, "r", both), 16, {3});
         }
         return b.convolution("c3", b.add("s", {y, b.convolution("c4", y, 16, {1})}), 4, {3});
       },
       Bits::rounded, Kernels::onednn_too},
      transposed("transposed 2, stride 2", 3, {2, 2}),
      transposed("transposed 3, stride 2", 3, {3, 2}),
      transposed("transposed 3, stride 2, valid", 3, {3, 2, Padding::valid}),
      transposed("transposed 1, stride 2, valid", 3, {1, 2, Padding::valid, true}),
      pool("average pool 2", LayerKind::average_pool, 2),
      pool("average pool 3", LayerKind::average_pool, 3),
      pool("max pool 2", LayerKind::max_pool, 2),
      pool("max pool 3", LayerKind::max_pool, 3),
      {"upsample 2", [](GraphBuilder& b, Value x) { return b.upsample("u", x, 2); }},
      {"resize",
       [](GraphBuilder& b, Value x) {
         std::array<std::int64_t, 3> e = b.shape(x).extent;
         for (std::int64_t& n : e) n = n > 1 ? n * 4 / 3 : 1;
         return b.resize("r", x, e);
       },
       Bits::rounded},
      {"resize to less",
       [](GraphBuilder& b, Value x) {
         std::array<std::int64_t, 3> e = b.shape(x).extent;
         for (std::int64_t& n : e) n = n > 1 ? n * 2 / 3 : 1;
         return b.resize("r", x, e);
       },
       Bits::rounded},
      {"pixel shuffle",
       [](GraphBuilder& b, Value x) {
         const Value more = b.convolution("c", x, 8 * 2, {1});
         return b.pixel_shuffle("q", more, 2);
       },
       Bits::rounded},  // on some processors oneDNN takes other kernels for 16 channels of short lines
      {"slice of channels",
       [](GraphBuilder& b, Value x) { return b.slice("s", x, LayerAxis::channels, 1, 3); }},
      {"slice of cells",
       [](GraphBuilder& b, Value x) {
         return b.slice("s", x, LayerAxis::width, 2, b.shape(x).extent[2] - 1);
       }},
      {"gather",
       [](GraphBuilder& b, Value x) {
         return b.gather("g", x, {2, 0, 2});
       }},
      {"add, subtract, concatenate",
       [](GraphBuilder& b, Value x) {
         const Value y = b.convolution("c", x, b.shape(x).channels, {3});
         const Value sum = b.add("s", {x, y, x});
         return b.concatenate("k", {b.subtract("d", sum, y), x, y});
       }},
      pointwise("leaky relu", LayerKind::leaky_relu, 0.1),
      pointwise("relu", LayerKind::relu),
      pointwise("elu", LayerKind::elu, 0, Bits::rounded),
      pointwise("gelu", LayerKind::gelu, 0, Bits::rounded),
      pointwise("silu", LayerKind::silu, 0, Bits::rounded),
      pointwise("sigmoid", LayerKind::sigmoid, 0, Bits::rounded),
      pointwise("tanh", LayerKind::tanh, 0, Bits::rounded),
      pointwise("softplus", LayerKind::softplus, 0, Bits::rounded),
      pointwise("tanh scale", LayerKind::tanh_scale, 1.2, Bits::rounded),
      pointwise("dropout", LayerKind::dropout, 0.4),
      {"softmax", [](GraphBuilder& b, Value x) { return b.softmax("s", x); }, Bits::rounded},
      {"mix", [](GraphBuilder& b, Value x) { return b.mix("m", x, b.pointwise(LayerKind::relu, "r", x)); }},
      {"stop",
       [](GraphBuilder& b, Value x) {
         return b.add("s", {x, b.stop("e", x)});
       }},
      {"coordinates", [](GraphBuilder& b, Value x) { return b.coordinates("c", x); }},
      {"positions", [](GraphBuilder& b, Value x) { return b.positions("c", x, false); }},
      {"layer norm", [](GraphBuilder& b, Value x) { return b.layer_norm("n", x); }},
      {"batch norm", [](GraphBuilder& b, Value x) { return b.norm("n", x, Norm::batch); }, Bits::rounded},
      {"group norm", [](GraphBuilder& b, Value x) { return b.norm("n", x, Norm::group, 2); }, Bits::rounded},
      {"instance norm", [](GraphBuilder& b, Value x) { return b.instance_norm("n", x); }, Bits::rounded},
      {"global mean", [](GraphBuilder& b, Value x) { return b.global_pool(LayerKind::global_mean, "g", x); },
       Bits::rounded},
      {"global max", [](GraphBuilder& b, Value x) { return b.global_pool(LayerKind::global_max, "g", x); }},
      {"flatten, dense", [](GraphBuilder& b, Value x) { return b.linear("l", b.flatten("f", x), 3); }},
      {"whole and split readers",
       [](GraphBuilder& b, Value x) {
         const TensorShape shape = b.shape(x);  // the next layer may move the others
         const Value whole = b.reshape("w", b.linear("l", b.flatten("f", x), shape.count()), shape);
         const Value y = b.convolution("c", whole, 4, {3});
         return b.add("s", {y, whole, x});
       },
       Bits::rounded},
      {"film", [](GraphBuilder& b, Value x) { return b.film("m", x, b.linear("l", b.flatten("f", x), 8)); },
       Bits::rounded},
      {"spread",
       [](GraphBuilder& b, Value x) {
         return b.add("s", {x, b.spread("m", b.linear("l", b.flatten("f", x), 4), x)});
       },
       Bits::rounded},
      {"max pool of a whole field",
       [](GraphBuilder& b, Value x) {
         const TensorShape shape = b.shape(x);
         const Value whole = b.reshape("w", b.flatten("f", x), shape);
         return b.pool(LayerKind::max_pool, "p", whole, b.along_axes(3));
       }},
      {"weights that two layers share",
       [](GraphBuilder& b, Value x) {
         const GraphBuilder::Window window = {3, 1, Padding::same, false};
         const Value first = b.convolution("c", x, 4, window);
         const Value norm = b.norm("n", first, Norm::batch);
         const Value second = b.convolution("c2", norm, 4, window);
         b.share_weights(first);
         const Value again = b.norm("n2", second, Norm::batch);
         b.share_weights(norm);
         return again;
       },
       Bits::rounded},
  };
}

// Grids for a field, each part of at least two cells. Of many ranks those with most cut axes.
std::vector<SpaceGrid> grids_for(const TensorShape& field, int ranks) {
  std::vector<SpaceGrid> grids;
  std::size_t most = 0;
  for (int d = 1; d <= ranks; ++d) {
    for (int h = 1; h <= ranks / d; ++h) {
      const SpaceGrid grid = {{d, h, ranks / (d * h)}};
      if (grid.ranks() != ranks) continue;
      std::size_t cut = 0;
      bool fits = true;
      for (std::size_t axis = 0; axis < 3; ++axis) {
        if (grid.parts[axis] == 1) continue;
        fits = fits && 2 * grid.parts[axis] <= field.extent[axis];
        ++cut;
      }
      if (!fits) continue;
      if (ranks > 4 && cut > most) grids.clear();
      most = std::max(most, cut);
      if (ranks <= 4 || cut == most) grids.push_back(grid);
    }
  }
  return grids;
}

class Checks {
 public:
  explicit Checks(Communicator& group) : group_(group) {}

  void compare_on_grids(const std::string& name, const ModelGraph& graph, const std::vector<SpaceGrid>& grids,
                        double tolerance, KernelChoice kernels) {
    for (const SpaceGrid& grid : grids) {
      // Rounding can change the sign of what an activation gets, by chance, and the gradients with it. It
      // would not do so for eight seeds.
      Differences d;
      bool agrees = false;
      for (std::uint64_t seed = 1; !agrees && seed <= (tolerance > 0 ? 8 : 1); ++seed) {
        d = compare(graph, grid, group_, kernels, seed);
        const bool here = std::max({d.predicted, d.outputs, d.input}) <= tolerance &&
                          d.gradients <= std::max(tolerance, kRounding);
        agrees = sum_values(group_, std::vector<int>{here ? 0 : 1}).front() == 0;
      }
      if (agrees) continue;
      std::fprintf(stderr,
                   "rank %d: %s on %s: predictions differ by %g, outputs by %g, input gradient by %g, weight "
                   "gradients by %g\n",
                   group_.rank(), name.c_str(), text_of(grid).c_str(), d.predicted, d.outputs, d.input,
                   d.gradients);
      failed_ = true;
    }
  }

  // Layer by layer, ranks send what the plan counts, to the byte.
  void sends_what_the_plan_counts(const std::string& name, const ModelGraph& graph, const SpaceGrid& grid,
                                  KernelChoice kernels) {
    const Run::Sent sent = Run(graph, grid, group_, 1).sent(kernels);
    if (sent.found == sent.planned) return;
    std::fprintf(stderr,
                 "rank %d: %s on %s sends %lld bytes forward and %lld backward, the plan has %lld and %lld\n",
                 group_.rank(), name.c_str(), text_of(grid).c_str(), static_cast<long long>(sent.found[0]),
                 static_cast<long long>(sent.found[1]), static_cast<long long>(sent.planned[0]),
                 static_cast<long long>(sent.planned[1]));
    failed_ = true;
  }

  bool failed() const { return failed_; }

 private:
  Communicator& group_;
  bool failed_ = false;
};

void layers_are_those_of_one_rank(Checks& checks, int ranks) {
  for (const Case& layer : layer_cases()) {
    for (const std::array<std::int64_t, 3>& extent :
         {std::array<std::int64_t, 3>{1, 1, 19}, {1, 13, 10}, {7, 9, 6}, {4, 5, 11}}) {
      const TensorShape field = {4, extent};
      if (ranks > 2 && extent[0] == 4) continue;  // each rank computes all of it by itself, too
      std::vector<SpaceGrid> grids = grids_for(field, ranks);
      if (ranks > 4 && !grids.empty()) grids.resize(1);
      checks.compare_on_grids(fmt::format("{} of {}", layer.name, text_of(field)), graph_of(layer, field),
                              grids, layer.bits == Bits::equal ? 0 : kRounding, KernelChoice::library);
      if (layer.kernels == Kernels::onednn_too)
        checks.compare_on_grids(fmt::format("{} of {}, by oneDNN", layer.name, text_of(field)),
                                graph_of(layer, field), grids, kRounding, KernelChoice::fastest);
    }
  }
}

ModelGraph named(ModelName name, Padding padding = Padding::same) {
  const TensorShape cube = {2, {16, 20, 16}};
  const TensorShape image = {3, {1, 34, 40}};
  const TensorShape numbers = {3, {1, 1, 1}};
  ModelConfig model = default_model(name);
  if (model.width > 8) model.width = 8;
  model.padding = padding;
  switch (name) {
    case ModelName::unet:
    case ModelName::fno:
      model.modes = 4;
      model.depth = 2;
      return build_model(model, {{{"x", cube}}, cube});
    case ModelName::deeplab:
    case ModelName::tiramisu:
    case ModelName::autoencoder:
    case ModelName::vae:
      return build_model(model, {{{"x", image}}, image});
    case ModelName::resnet:
      return build_model(model, {{{"x", image}}, numbers});
    default:
      return build_model(model, {{{"x", cube}}, numbers});
  }
}

void bytes_are_those_of_the_plan(Checks& checks, int ranks) {
  for (const Case& layer : layer_cases()) {
    if (std::string_view(layer.name) == "global max") continue;  // its numbers are sums in the plan
    const TensorShape field = {4, {8, 12, 10}};                  // even, so that every layer is read
    for (const SpaceGrid& grid : grids_for(field, ranks))
      checks.sends_what_the_plan_counts(layer.name, graph_of(layer, field), grid, KernelChoice::library);
  }
  for (const ModelName name :
       {ModelName::cosmoflow, ModelName::mlperf, ModelName::cnn, ModelName::unet, ModelName::resnet,
        ModelName::deeplab, ModelName::tiramisu, ModelName::autoencoder, ModelName::vae, ModelName::fno}) {
    const ModelGraph graph = named(name);
    for (const SpaceGrid& grid : grids_for(graph.input(), ranks))
      checks.sends_what_the_plan_counts(name_of(name), graph, grid, KernelChoice::library);
  }
  // Networks whose convolutions all have oneDNN's kernels, on whole blocks of 8 channels or on data.
  for (const ModelName name : {ModelName::mlperf, ModelName::cnn, ModelName::unet, ModelName::resnet,
                               ModelName::autoencoder, ModelName::vae, ModelName::fno}) {
    const ModelGraph graph = named(name);
    for (const SpaceGrid& grid : grids_for(graph.input(), ranks))
      checks.sends_what_the_plan_counts(fmt::format("{}, by oneDNN", name_of(name)), graph, grid,
                                        KernelChoice::fastest);
  }
}

void networks_are_those_of_one_rank(Checks& checks, int ranks) {
  for (const ModelName name :
       {ModelName::cosmoflow, ModelName::mlperf, ModelName::cnn, ModelName::unet, ModelName::resnet,
        ModelName::deeplab, ModelName::tiramisu, ModelName::autoencoder, ModelName::vae, ModelName::fno}) {
    const ModelGraph graph = named(name);
    std::vector<SpaceGrid> grids = grids_for(graph.input(), ranks);
    if (ranks > 2) grids.resize(1);
    if (ranks > 4 && name != ModelName::cosmoflow && name != ModelName::unet) continue;
    checks.compare_on_grids(name_of(name), graph, grids, kNetworkRounding, KernelChoice::fastest);
  }
  for (const ModelName name : {ModelName::cosmoflow, ModelName::unet, ModelName::resnet}) {
    const ModelGraph graph = named(name, Padding::periodic);
    std::vector<SpaceGrid> grids = grids_for(graph.input(), ranks);
    if (ranks > 2) grids.resize(1);
    checks.compare_on_grids(fmt::format("periodic {}", name_of(name)), graph, grids, kNetworkRounding,
                            KernelChoice::fastest);
  }
}

}  // namespace
}  // namespace wflow::trainer

int main(int argc, char** argv) {
  wflow::trainer::Communicator communicator(argc, argv);
  if (argc > 1 && communicator.size() != std::stoi(argv[1])) {
    std::fprintf(stderr, "the world has %d ranks, expected %s\n", communicator.size(), argv[1]);
    return 1;
  }
  wflow::trainer::set_compute_threads(1, true);
  try {
    wflow::trainer::Checks checks(communicator);
    wflow::trainer::layers_are_those_of_one_rank(checks, communicator.size());
    wflow::trainer::bytes_are_those_of_the_plan(checks, communicator.size());
    wflow::trainer::networks_are_those_of_one_rank(checks, communicator.size());
    communicator.barrier();  // after the messages of all ranks
    if (checks.failed()) communicator.abort(1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), error.what());
    communicator.abort(1);
  }
  return 0;
}
