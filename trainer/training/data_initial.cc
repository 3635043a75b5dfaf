// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "trainer/data/run_data.h"
#include "trainer/model/network.h"
#include "trainer/model/parts.h"
#include "trainer/training/training_state.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kInitialSamples = 64;
// Limits the scale of a channel that hardly varies: perhaps none of the samples activates it.
constexpr double kLeastDeviation = 1e-4;

struct Moments {
  double sum = 0;
  double squares = 0;
};

// The graph up to and including one layer, with the layer's output as the only one.
ModelGraph up_to(const ModelGraph& graph, std::size_t layer) {
  ModelGraph part;
  part.inputs = graph.inputs;
  part.layers.assign(graph.layers.begin(), graph.layers.begin() + static_cast<std::ptrdiff_t>(layer) + 1);
  part.outputs.push_back({graph.layers[layer].name, graph.inputs.size() + layer});
  return part;
}

void copy_values(FlatState& from, FlatState& to) {
  for (const FlatEntry& entry : to.parameters().entries) {
    const std::span<const float> values = from.value(*from.parameters().find(entry.spec.name));
    std::copy(values.begin(), values.end(), to.value(entry).begin());
  }
  to.fill_initial_buffers();
}

// Sums of each channel of the graph's output, over the initial samples of all ranks.
std::vector<Moments> measure(const ModelGraph& part, RunData& data, Communicator& communicator,
                             FlatState& state) {
  const TensorShape& shape = part.shape_of(part.outputs.front().value);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const auto cells = static_cast<std::size_t>(shape.voxels());
  const auto network = make_torch_network(part, state);
  const std::size_t count = std::min(kInitialSamples, data.train().size());
  const Permutation order(data.train().size(), 0);
  const auto [first, end] = even_part(count, static_cast<std::size_t>(communicator.rank()),
                                      static_cast<std::size_t>(communicator.size()));
  // One sample at a time, so that memory does not depend on the batch.
  DataLoader loader(
      data.train(), data.scales(), 1, 1,
      [&order, first = first, end = end](std::uint64_t n) -> std::optional<std::vector<BatchItem>> {
        if (first + n >= end) return std::nullopt;
        return std::vector<BatchItem>{{static_cast<std::size_t>(order(first + n)), {}}};
      });
  Feed feed;
  std::vector<float> outputs(static_cast<std::size_t>(shape.count()));
  std::vector<Moments> own;
  while (const Batch* batch = loader.next()) {
    data.fill(feed, *batch, data.train(), false);
    network->predict(feed.inputs, 1, outputs);
    for (std::size_t c = 0; c < channels; ++c) {
      Moments moments;
      for (const float v : std::span(outputs).subspan(c * cells, cells)) {
        moments.sum += v;
        moments.squares += static_cast<double>(v) * v;
      }
      own.push_back(moments);
    }
  }
  std::string bytes(own.size() * sizeof(Moments), '\0');
  if (!own.empty()) std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<Moments> sums(channels);
  for (const std::string& gathered : communicator.all_gather(bytes)) {
    std::vector<Moments> list(gathered.size() / sizeof(Moments));
    if (!gathered.empty()) std::memcpy(list.data(), gathered.data(), gathered.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      sums[i % channels].sum += list[i].sum;
      sums[i % channels].squares += list[i].squares;
    }
  }
  const double values = static_cast<double>(count) * static_cast<double>(cells);
  for (Moments& moments : sums) {
    moments.sum /= values;
    moments.squares = moments.squares / values - moments.sum * moments.sum;
  }
  return sums;
}

}  // namespace

void initialise_from_data(const ModelGraph& graph, RunData& data, Communicator& communicator,
                          FlatState& state, std::span<const std::string> parts) {
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    if (!is_scaled_by_data(graph, i, parts)) continue;
    const ModelGraph part = up_to(graph, i);
    FlatState measured(part);
    copy_values(state, measured);
    const std::vector<Moments> moments = measure(part, data, communicator, measured);
    const Layer& layer = graph.layers[i];
    const std::span<float> weights = state.value(*state.parameters().find(layer.parameters[0].name));
    const std::span<float> biases = state.value(*state.parameters().find(layer.parameters[1].name));
    const std::size_t row = weights.size() / biases.size();
    for (std::size_t c = 0; c < biases.size(); ++c) {
      const double factor = 1 / std::max(kLeastDeviation, std::sqrt(std::max(0.0, moments[c].squares)));
      for (float& weight : weights.subspan(c * row, row)) weight = static_cast<float>(weight * factor);
      biases[c] = static_cast<float>((biases[c] - moments[c].sum) * factor);
    }
  }
}

}  // namespace wflow::trainer
