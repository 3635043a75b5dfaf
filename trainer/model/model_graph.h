// SPDX-License-Identifier: Apache-2.0
// A network as a graph of layers with sizes, parameters and flops, which a back end executes. Independent of
// libraries and devices; the same graph gives the same training in every back end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace wflow::traces {
class AddressTable;
}

namespace wflow::trainer {

// Shape of one sample. Vectors have extent {1, 1, 1}; fields of one and two dimensions have leading axes
// of 1.
struct TensorShape {
  std::int64_t channels = 1;
  std::array<std::int64_t, 3> extent = {1, 1, 1};  // depth, height, width
  std::int64_t voxels() const { return extent[0] * extent[1] * extent[2]; }
  std::int64_t count() const { return channels * voxels(); }
  bool operator==(const TensorShape&) const = default;
};
// The shape of an output that is compared with a constant: it may have any.
inline constexpr TensorShape kAnyShape = {0, {1, 1, 1}};
// "8 x 32 x 32 x 32", or the number of values of a vector.
std::string text_of(const TensorShape& shape);

struct NamedShape {
  std::string name;
  TensorShape shape;
  bool operator==(const NamedShape&) const = default;
};

// he_normal: variance 2 / fan_in; uniform: within 1 / sqrt(fan_in) of 0, as PyTorch's layers.
enum class Initial { zero, one, he_normal, uniform };

struct ParameterSpec {
  std::string name;  // "conv1.weight"
  std::vector<std::int64_t> shape;
  Initial initial = Initial::zero;
  std::int64_t fan_in = 1;
  bool decays = false;  // has weight decay and layer-wise rates: true for weights, false for biases and norms
  std::string part = {};  // of its layer
  bool frozen = false;
  // Lengths of parts, in order, of which a batch uses some only: the gradients of the others are 0. Empty: it
  // uses all.
  std::vector<std::int64_t> used_alone = {};
  std::int64_t count() const;
};

struct Layer {
  LayerKind kind = LayerKind::flatten;
  std::string name;
  std::vector<std::size_t> inputs;  // values of the graph
  TensorShape input;                // shape of the first input
  TensorShape output;
  std::array<std::int64_t, 3> kernel = {1, 1, 1};  // up-sampling: the factors; spectral: modes of each axis
  std::array<std::int64_t, 3> stride = {1, 1, 1};
  std::array<std::int64_t, 3> dilation = {1, 1, 1};
  std::array<std::int64_t, 3> pad_low = {0, 0, 0};
  std::array<std::int64_t, 3> pad_high = {0, 0, 0};
  double value = 0;                           // slope, probability or scale, by the kind
  std::shared_ptr<const std::string> module;  // module: the TorchScript file's bytes
  std::int64_t groups = 1;                    // group norm, convolution; attention: heads
  std::size_t axis = 0;                       // slice: 0 for the channels, 1 to 3 for an axis of the extent
  std::int64_t first = 0;                     // slice: the first channel or cell
  std::vector<std::int64_t> channels;         // gather
  std::shared_ptr<const traces::AddressTable> addresses;  // trace_density
  std::int64_t components = 0;                            // trace_density
  std::int64_t steps = 0;                                 // trace_density: the most draws of a trace
  bool bidirectional = false;                             // lstm, gru
  bool every_step = false;                                // lstm, gru, conv_lstm: the output is a sequence
  std::size_t time_axis = 2;                              // conv_lstm: the axis of the frames
  LayerInit init = LayerInit::automatic;
  std::string part;     // "encoder", "head", ...; empty: none
  bool frozen = false;  // its parameters do not learn
  // A layer of `apply`: its parameters and buffers have the names of an earlier layer's, and are the same.
  bool is_repeated = false;
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterSpec> buffers;  // norms: mean, then variance

  // True if the gradient of the output reaches an input.
  bool passes_gradient(std::size_t input) const {
    const bool first_alone = kind == LayerKind::spread || kind == LayerKind::trace_density;
    return kind != LayerKind::stop && (!first_alone || input == 0);
  }
  // Cells that a window spans along an axis.
  std::int64_t reach(std::size_t axis) const { return (kernel[axis] - 1) * dilation[axis] + 1; }
  bool in_place() const;               // true if a back end needs no second array for the output
  std::int64_t forward_flops() const;  // per sample, multiply and add counted as two
};

inline constexpr double kNormEpsilon = 1e-5;
inline constexpr double kNormMomentum = 0.1;  // weight of the newest batch in the running statistics

// Values are numbered: the inputs first, then the output of each layer. A layer reads only values with lower
// numbers.
struct ModelGraph {
  struct Output {
    std::string name;
    std::size_t value = 0;
  };

  std::vector<NamedShape> inputs;
  std::vector<Layer> layers;
  std::vector<Output> outputs;
  bool learns_input = false;  // backward() finds the gradient of the first input too
  // Convolutions are computed again in the backward pass, where norms and pools need their outputs, so that
  // these need not be kept.
  bool recomputes = false;
  // Chains of layers that are computed tile by tile (tiles.h), in both passes, in order.
  struct Tiled {
    std::size_t first = 0;  // number of the first layer
    std::size_t count = 0;  // of layers
    std::int64_t tiles = 0;
  };
  std::vector<Tiled> tiled;

  // True for a user's module, whose layers are not known.
  bool is_module() const { return layers.size() == 1 && layers.front().kind == LayerKind::module; }

  const TensorShape& shape_of(std::size_t value) const;
  const TensorShape& input() const { return inputs.front().shape; }  // for networks with one input
  std::int64_t output_count() const;  // values per sample, all outputs together
  // The output of one of `heads` heads: two outputs of a latent vector may stand behind the first one.
  std::size_t output_of_head(std::size_t head, std::size_t heads) const {
    return head == 0 ? 0 : head + outputs.size() - heads;
  }

  std::vector<ParameterSpec> parameters() const;  // each once, in order of the layers
  std::vector<ParameterSpec> buffers() const;
  std::int64_t parameter_count() const;
  std::int64_t forward_flops() const;
  // Forward, weight gradients, and data gradients of all layers that do not read an input.
  std::int64_t training_flops() const;
  std::string describe() const;  // a table for output
};

// The task that a network is built for: its inputs and the shape that the loss compares with its outputs.
struct ModelTask {
  std::vector<NamedShape> inputs;
  // Shape of the first head's output: the channels for the loss, and the extent of the target.
  TensorShape output;
  std::vector<NamedShape> further = {};  // the other heads, with the shapes of their outputs
  std::string name = {};                 // of the first head; empty where there is one only
  // Lists of layers: the layers of all heads; empty: the model's own `outputs`.
  std::vector<std::string> layers = {};
  std::shared_ptr<const traces::AddressTable> addresses = {};  // of the data set's traces
};

// Throws Error{spec} if the network does not fit the data.
ModelGraph build_model(const ModelConfig& config, const ModelTask& task);
// A network from one field to `outputs` numbers.
ModelGraph build_model(const ModelConfig& config, const TensorShape& input, std::int64_t outputs);

// Initial values of a parameter or buffer from position `first` on: a function of (seed, name, position).
void fill_initial(const ParameterSpec& spec, std::uint64_t seed, std::span<float> values,
                  std::int64_t first = 0);

// Counts the readers of each value of a graph and finds the values that have a gradient.

struct GraphUses {
  std::vector<int> readers;   // per value: number of layers and outputs that read it
  std::vector<bool> learned;  // true for values that depend on a parameter and on which an output depends
};
GraphUses uses_of(const ModelGraph& graph);

// True if a layer may overwrite its first input: nothing else reads it, and the layer before returns a new
// array that its backward pass does not need.
bool may_overwrite_input(const ModelGraph& graph, const GraphUses& uses, const Layer& layer);

// Number of layers, from `first` on, each of which but the first reads only the one before and is its only
// reader.
std::size_t chain_length(const ModelGraph& graph, const GraphUses& uses, std::size_t first);

}  // namespace wflow::trainer
