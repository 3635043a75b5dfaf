// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "trainer/model/family_chain.h"
#include "trainer/model/graph_builder.h"

namespace wflow::trainer {
namespace {

using Value = GraphBuilder::Value;

constexpr std::int64_t kMostSeedCells = 4096;

// (conv, norm, leaky, average pool) down to 4 cells per axis, one more conv, the means over the box (the
// field is homogeneous), a small head. The mean of a filter's rectified output measures fluctuations at the
// filter's scale: with the means of all levels the head has every scale.
ModelGraph build_cosmoflow(const ModelConfig& config, Chain chain, const ModelTask& task) {
  std::int64_t channels = config.width;
  std::vector<Value> levels;
  for (; chain.can_pool(); channels *= 2) {
    chain.convolution_block(channels);
    chain.pool(LayerKind::average_pool);  // keeps the mean
    levels.push_back(chain.at());
  }
  chain.convolution_block(channels);
  if (!config.level_means || levels.empty()) {
    chain.global_mean();
    return chain.head(task.output.channels);
  }
  levels.push_back(chain.at());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    levels[i] =
        chain.graph().global_pool(LayerKind::global_mean, fmt::format("global_mean{}", i + 1), levels[i]);
  }
  chain.set(chain.graph().concatenate("level_means", levels));
  return chain.head(task.output.channels);
}

// The reference of MLPerf HPC. Leaky ReLU is monotonic, so it commutes with the maximum: after the pool it
// has an eighth of the work.
ModelGraph build_mlperf(const ModelConfig& config, Chain chain, const ModelTask& task) {
  std::int64_t channels = config.width;
  for (; chain.can_pool(); channels *= 2) {
    chain.convolution(channels, 3);
    chain.norm();
    chain.pool(LayerKind::max_pool);
    chain.activation(chain.convolution_name());
  }
  chain.flatten();
  return chain.head(task.output.channels);
}

// The SC18 network (arXiv 1808.04728): seven convolutions with channels in multiples of 16 and kernels of 2
// to 4, average pooling after the first ones, three dense layers. The exact sizes of the paper are not known;
// this network has 7.07 M parameters and 68.1 Gflop a sample at 128^3, the paper 7.04 M and 69.3.
ModelGraph build_sc18(const ModelConfig& config, Chain chain, const ModelTask& task) {
  constexpr std::array<std::int64_t, 7> kFactors = {1, 2, 4, 4, 8, 16, 16};
  constexpr std::array<std::int64_t, 7> kKernels = {3, 4, 3, 2, 2, 3, 3};
  for (std::size_t i = 0; i < kFactors.size(); ++i) {
    chain.convolution_block(config.width * kFactors[i], kKernels[i]);
    if (i < 5 && chain.can_pool()) chain.pool(LayerKind::average_pool);
  }
  chain.flatten();
  return chain.head(task.output.channels);
}

// Two convolutions per level, for fields of one to three dimensions.
ModelGraph build_cnn(const ModelConfig& config, Chain chain, const ModelTask& task) {
  chain.read_grids([&] {
    std::int64_t channels = config.width;
    for (; chain.can_pool(); channels *= 2) {
      chain.convolution_block(channels);
      chain.convolution_block(channels);
      chain.pool(LayerKind::max_pool);
    }
    chain.convolution_block(channels);
    chain.global_mean();
  });
  return chain.head(task.output.channels);
}

// Cicek et al. 2016 (arXiv 1606.06650): channels double before each pool and shrink after each up-sampling;
// width 32 and depth 3 have the paper's 19,069,955 parameters (without norms). Padded, so that the output has
// the input's cells.
ModelGraph build_unet(const ModelConfig& config, Chain chain, const ModelTask&) {
  const TensorShape input = chain.shape();
  const std::int64_t cells = std::int64_t{1} << config.depth;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (chain.graph().flat()[axis] || input.extent[axis] % cells == 0) continue;
    refuse(fmt::format(
        "the network 'unet' of depth {} halves each axis {} times: {} cells along an axis are no multiple "
        "of {}; use another 'depth' or grid",
        config.depth, config.depth, input.extent[axis], cells));
  }
  chain.need_target_grid();
  std::vector<Value> skips;
  std::int64_t channels = config.width;
  const std::array<std::int64_t, 3> halves = chain.graph().along_axes(2);
  for (std::int64_t level = 0; level <= config.depth; ++level, channels *= 2) {
    chain.convolution_block(channels);
    chain.convolution_block(2 * channels);
    if (level == config.depth) break;
    skips.push_back(chain.at());
    chain.set(chain.graph().pool(LayerKind::max_pool, fmt::format("pool{}", level + 1), chain.at(), halves));
  }
  const Value coarsest = chain.at();
  chain.graph().begin_part("decoder");
  GraphBuilder::Window up;
  up.kernel = up.stride = 2;
  up.padding = Padding::valid;
  up.bias = false;
  for (std::int64_t level = config.depth; level-- > 0;) {
    const Value risen = chain.graph().transposed_convolution(fmt::format("up{}", level + 1), chain.at(),
                                                             chain.shape().channels, up);
    const Value skip = skips[static_cast<std::size_t>(level)];
    chain.set(chain.graph().concatenate(fmt::format("skip{}", level + 1), {skip, risen}));
    channels = chain.graph().shape(skip).channels;
    chain.convolution_block(channels);
    chain.convolution_block(channels);
  }
  return chain.field_heads(coarsest);
}

std::int64_t halvings(const TensorShape& field, const std::array<bool, 3>& flat) {
  std::int64_t fewest = 60;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (flat[axis]) continue;
    std::int64_t count = 0;
    for (std::int64_t n = field.extent[axis]; n >= kSmallestPooled && n % 2 == 0; n /= 2) ++count;
    fewest = std::min(fewest, count);
  }
  return fewest == 60 ? 0 : fewest;
}

// From vector to field: dense to the coarsest grid, then (double the grid, convolve) to the finest.
void decode(const ModelConfig& config, Chain& chain, const NamedShape& head) {
  const TensorShape& target = head.shape;
  chain.graph().begin_part(head.name.empty() ? "decoder" : head.name);
  const auto name = [&](const std::string& layer) { return Chain::layer_of(head.name, layer); };
  const std::int64_t levels = halvings(target, chain.graph().flat());
  TensorShape seed = {config.width << levels, target.extent};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (!chain.graph().flat()[axis]) seed.extent[axis] >>= levels;
  }
  if (seed.voxels() > kMostSeedCells) {
    refuse(fmt::format(
        "the network '{}' doubles a coarse grid up to the target's {}, and one axis can be halved only {} "
        "times: use a grid with cells in multiples of a power of 2",
        name_of(config.name), text_of(target), levels));
  }
  chain.set(chain.graph().linear(name("seed"), chain.at(), seed.count()));
  chain.set(chain.graph().reshape(name("grid"), chain.at(), seed));
  chain.activation(name("grid"));
  for (std::int64_t level = levels; level-- > 0;) {
    chain.set(chain.graph().upsample(name(fmt::format("double{}", level + 1)), chain.at(), 2));
    chain.convolution_block(config.width << level);
  }
  GraphBuilder::Window window;
  window.padding = config.padding;
  chain.set(chain.graph().convolution(name("out"), chain.at(), target.channels, window));
}

// An output for each head from the current value: numbers by a dense layer, fields by a decoder of their own.
// `after_first` adds the outputs that stand behind the first one.
template <typename AfterFirst>
ModelGraph decode_heads(const ModelConfig& config, Chain chain, const ModelTask& task,
                        AfterFirst after_first) {
  const Value code = chain.at();
  bool first = true;
  for (const NamedShape& head : heads_of(task)) {
    chain.set(code);
    if (head.shape.voxels() == 1) {
      chain.numbers(head.name, head.shape.channels);
    } else {
      decode(config, chain, head);
      chain.output(head.name);
    }
    if (first) after_first(chain.graph());
    first = false;
  }
  return chain.graph().finish();
}

ModelGraph build_mlp(const ModelConfig& config, Chain chain, const ModelTask& task) {
  chain.join_inputs(task.inputs.size());
  chain.dense_layers();
  return decode_heads(config, std::move(chain), task, [](GraphBuilder&) {});
}

ModelGraph build_decoder(const ModelConfig& config, Chain chain, const ModelTask& task) {
  chain.join_inputs(task.inputs.size());
  chain.dense_layers();
  return decode_heads(config, std::move(chain), task, [](GraphBuilder&) {});
}

void encode(const ModelConfig& config, Chain& chain) {
  chain.read_grids([&] {
    std::int64_t channels = config.width;
    for (; chain.can_pool(); channels *= 2) {
      chain.convolution_block(channels);
      chain.pool(LayerKind::average_pool);
    }
    chain.convolution_block(channels);
    chain.flatten();
  });
  chain.dense_layers();
}

ModelGraph build_autoencoder(const ModelConfig& config, Chain chain, const ModelTask& task) {
  encode(config, chain);
  chain.set(chain.graph().linear("latent", chain.at(), config.latent));
  return decode_heads(config, std::move(chain), task, [](GraphBuilder&) {});
}

// Kingma and Welling 2014. The second and third output are the latent mean and logarithm of the variance, for
// the KL term of the loss.
ModelGraph build_vae(const ModelConfig& config, Chain chain, const ModelTask& task) {
  encode(config, chain);
  const Value mean = chain.graph().linear("latent_mean", chain.at(), config.latent);
  const Value log_variance = chain.graph().linear("latent_log_variance", chain.at(), config.latent);
  chain.set(chain.graph().sample("latent", mean, log_variance));
  return decode_heads(config, std::move(chain), task, [&](GraphBuilder& graph) {
    graph.output("latent_mean", mean);
    graph.output("latent_log_variance", log_variance);
  });
}

bool gives_field(ModelName name) {
  return name == ModelName::unet || name == ModelName::deeplab || name == ModelName::tiramisu ||
         name == ModelName::decoder || name == ModelName::autoencoder || name == ModelName::vae;
}

// True for networks that halve the grid `depth` times; the others that read fields halve it down to a few
// cells.
bool has_depth(ModelName name) {
  return name == ModelName::unet || name == ModelName::resnet || name == ModelName::deeplab ||
         name == ModelName::tiramisu;
}

bool reads_fields(ModelName name) {
  return name != ModelName::mlp && name != ModelName::decoder;
}

// True for networks that read fields of several grids and numbers beside them, each by layers of its own.
bool reads_grids(ModelName name) {
  return name == ModelName::cnn || name == ModelName::autoencoder || name == ModelName::vae;
}

void check_task(const ModelConfig& config, const ModelTask& task) {
  const char* name = name_of(config.name);
  for (const NamedShape& input : task.inputs) {
    if (!reads_fields(config.name) || reads_grids(config.name) ||
        input.shape.extent == task.inputs.front().shape.extent)
      continue;
    refuse(
        fmt::format("the network '{}' reads fields of one grid, and 'inputs' names {} ({}) and {} ({}); cnn, "
                    "autoencoder and "
                    "vae read several, and so does a list of layers",
                    name, task.inputs.front().name, text_of(task.inputs.front().shape), input.name,
                    text_of(input.shape)));
  }
  if (is_sequence_family(config.name)) return;  // gives both
  const std::vector<NamedShape> heads = heads_of(task);
  const auto is_field = [](const NamedShape& head) { return head.shape.voxels() > 1; };
  if (gives_field(config.name) && std::none_of(heads.begin(), heads.end(), is_field)) {
    refuse(fmt::format(
        "the network '{}' gives a field, and the targets are {} numbers; use 'mlp' or 'cnn', or name a field "
        "in 'targets'",
        name, task.output.channels));
  }
  const auto field = std::find_if(heads.begin(), heads.end(), is_field);
  if (!gives_field(config.name) && field != heads.end()) {
    refuse(fmt::format(
        "the network '{}' gives numbers, and the target{} is a field of {}; use {}", name,
        field->name.empty() ? "" : fmt::format(" of the head '{}'", field->name), text_of(field->shape),
        heads.size() == 1 ? "'unet' (from a field) or 'decoder' (from numbers)"
                          : "'unet' or 'autoencoder' (from a field), or 'decoder' (from numbers)"));
  }
}

TensorShape shape_of(const std::vector<std::int64_t>& list) {
  TensorShape shape;
  shape.channels = list.front();
  // Missing axes are leading flat ones.
  for (std::size_t i = 1; i < list.size(); ++i) shape.extent[3 - list.size() + i] = list[i];
  return shape;
}

// The size that a resize layer gives: a factor scales every axis that is not flat, and a list gives the
// number of cells of each axis that is not flat.
std::array<std::int64_t, 3> resized_extent(const GraphBuilder& graph, const LayerConfig& layer,
                                           const TensorShape& input) {
  std::array<std::int64_t, 3> extent = input.extent;
  const auto axes = static_cast<std::size_t>(std::ranges::count(graph.flat(), false));
  if (!layer.shape.empty() && layer.shape.size() != axes) {
    refuse(fmt::format("the resize '{}' names the cells of {} axes, and the fields have {}", layer.name,
                       layer.shape.size(), axes));
  }
  std::size_t named = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (graph.flat()[axis]) continue;
    std::int64_t& n = extent[axis];
    n = layer.shape.empty() ? static_cast<std::int64_t>(static_cast<double>(n) * layer.value + 1e-9)
                            : layer.shape[named++];
    if (n < 1) {
      refuse(fmt::format("the resize '{}' by {} leaves no cell of '{}', which gives {}", layer.name,
                         layer.value, layer.from.front(), text_of(input)));
    }
  }
  return extent;
}

Value add_layer(GraphBuilder& graph, const LayerConfig& layer, const std::vector<Value>& from) {
  const GraphBuilder::Window window = {layer.kernel, layer.stride,   layer.padding,
                                       layer.bias,   layer.dilation, layer.groups};
  switch (layer.kind) {
    case LayerKind::convolution:
      return graph.convolution(layer.name, from[0], layer.size, window);
    case LayerKind::transposed_convolution:
      return graph.transposed_convolution(layer.name, from[0], layer.size, window);
    case LayerKind::linear:
      return graph.linear(layer.name, from[0], layer.size);
    case LayerKind::batch_norm:
      return graph.norm(layer.name, from[0], Norm::batch);
    case LayerKind::group_norm:
      return graph.norm(layer.name, from[0], Norm::group, layer.size);
    case LayerKind::layer_norm:
      return graph.layer_norm(layer.name, from[0]);
    case LayerKind::average_pool:
    case LayerKind::max_pool:
      return graph.pool(layer.kind, layer.name, from[0], graph.along_axes(layer.size));
    case LayerKind::upsample:
      return graph.upsample(layer.name, from[0], layer.size);
    case LayerKind::resize:
      return graph.resize(layer.name, from[0], resized_extent(graph, layer, graph.shape(from[0])));
    case LayerKind::pixel_shuffle:
      return graph.pixel_shuffle(layer.name, from[0], layer.size);
    case LayerKind::slice:
      return graph.slice(layer.name, from[0], layer.axis, layer.shape[0], layer.shape[1]);
    case LayerKind::gather:
      return graph.gather(layer.name, from[0], layer.shape);
    case LayerKind::embedding:
      return graph.embedding(layer.name, from[0], layer.classes, layer.size);
    case LayerKind::instance_norm:
      return graph.instance_norm(layer.name, from[0]);
    case LayerKind::flatten:
      return graph.flatten(layer.name, from[0]);
    case LayerKind::global_mean:
    case LayerKind::global_max:
      return graph.global_pool(layer.kind, layer.name, from[0]);
    case LayerKind::softmax:
      return graph.softmax(layer.name, from[0]);
    case LayerKind::reshape:
      return graph.reshape(layer.name, from[0], shape_of(layer.shape));
    case LayerKind::add:
      return graph.add(layer.name, from);
    case LayerKind::concatenate:
      return graph.concatenate(layer.name, from);
    case LayerKind::sample:
      return graph.sample(layer.name, from[0], from[1]);
    case LayerKind::stop:
      return graph.stop(layer.name, from[0]);
    case LayerKind::subtract:
      return graph.subtract(layer.name, from[0], from[1]);
    case LayerKind::mix:
      return graph.mix(layer.name, from[0], from[1]);
    case LayerKind::film:
      return graph.film(layer.name, from[0], from[1]);
    case LayerKind::spread:
      return graph.spread(layer.name, from[0], from[1]);
    case LayerKind::lstm:
    case LayerKind::gru:
      return graph.recurrent(layer.kind, layer.name, from, layer.size, {layer.bidirectional, layer.output});
    case LayerKind::attention:
      return graph.attention(layer.name, from, layer.size);
    case LayerKind::positions:
      return graph.positions(layer.name, from[0], layer.learned);
    case LayerKind::coordinates:
      return graph.coordinates(layer.name, from[0]);
    case LayerKind::trace_density:
      return graph.trace_density(layer.name, from[0], from[1], layer.size, layer.components);
    case LayerKind::spectral_convolution:
      return graph.spectral_convolution(layer.name, from[0], layer.size, graph.along_axes(layer.modes));
    case LayerKind::conv_lstm:
      return graph.conv_lstm(layer.name, from[0], layer.size, layer.kernel, layer.output);
    default:
      return graph.pointwise(layer.kind, layer.name, from[0], layer.value);
  }
}

void check_all_lead_to_an_output(const ModelGraph& graph) {
  std::vector<bool> read(graph.inputs.size() + graph.layers.size(), false);
  for (const ModelGraph::Output& output : graph.outputs) read[output.value] = true;
  for (std::size_t i = graph.layers.size(); i-- > 0;) {
    if (!read[graph.inputs.size() + i]) {
      refuse(fmt::format(
          "nothing reads the layer '{}': remove it, or name it in 'from' of another layer or in 'outputs'",
          graph.layers[i].name));
    }
    for (const std::size_t value : graph.layers[i].inputs) read[value] = true;
  }
}

// Each head's output, and behind the first one the model's further `outputs`.
void add_outputs(const ModelConfig& config, const ModelTask& task, const std::map<std::string, Value>& values,
                 GraphBuilder& graph) {
  const std::vector<NamedShape> heads = heads_of(task);
  std::vector<std::string> further = config.outputs;
  std::vector<std::string> layers = task.layers;
  if (layers.empty()) {
    layers.push_back(further.empty() ? config.layers.back().name : further.front());
    if (!further.empty()) further.erase(further.begin());
  }
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const Value value = values.at(layers[h]);
    graph.output(layers[h], value);
    if (heads[h].shape != kAnyShape && graph.shape(value) != heads[h].shape)
      refuse(fmt::format("the network's output '{}' is {}, and targets and loss{} want {}", layers[h],
                         text_of(graph.shape(value)),
                         heads[h].name.empty() ? "" : fmt::format(" of the head '{}'", heads[h].name),
                         text_of(heads[h].shape)));
    if (h > 0) continue;
    for (const std::string& name : further) graph.output(name, values.at(name));
  }
}

// Adds the layers of a list to a graph.
class ListedLayers {
 public:
  ListedLayers(const ModelConfig& config, const ModelTask& task)
      : config_(config), task_(task), graph_(task.inputs, shapes_of(heads_of(task))) {
    graph_.use_addresses(task.addresses);
  }

  ModelGraph build() {
    for (Value input = 0; input < task_.inputs.size(); ++input) values_[task_.inputs[input].name] = input;
    for (const LayerConfig& layer : config_.layers) {
      if (layer.kind == LayerKind::apply) {
        apply(layer);
      } else {
        graph_.begin_part(layer.part);
        values_[layer.name] = add_layer(graph_, layer, values_of(layer.from));
        graph_.choose_init(layer.init);
      }
    }
    add_outputs(config_, task_, values_, graph_);
    ModelGraph finished = graph_.finish();
    check_all_lead_to_an_output(finished);
    return finished;
  }

 private:
  std::vector<Value> values_of(const std::vector<std::string>& names) const {
    std::vector<Value> values;
    for (const std::string& name : names) values.push_back(values_.at(name));
    return values;
  }

  // The layers of the part, up to `before`.
  std::vector<const LayerConfig*> layers_of(const std::string& part, const LayerConfig& before) const {
    std::vector<const LayerConfig*> layers;
    for (const LayerConfig& layer : config_.layers) {
      if (&layer == &before) break;
      if (layer.part == part && layer.kind != LayerKind::apply) layers.push_back(&layer);
    }
    return layers;
  }

  // Values from outside the part are replaced by those of `from`, in order of the first layers that read
  // them.
  void apply(const LayerConfig& apply) {
    const std::vector<const LayerConfig*> layers = layers_of(apply.applied, apply);
    std::set<std::string> inside;
    std::vector<std::string> outside;
    for (const LayerConfig* layer : layers) {
      for (const std::string& name : layer->from)
        if (!inside.contains(name) && std::ranges::find(outside, name) == outside.end())
          outside.push_back(name);
      inside.insert(layer->name);
    }
    if (outside.size() != apply.from.size())
      refuse(fmt::format(
          "'apply: {}' needs a value for each that the part reads from outside, which are {}; 'from' "
          "of '{}' names {}",
          apply.applied, text::join(outside, ", "), apply.name, apply.from.size()));
    std::map<std::string, Value> now;
    for (std::size_t i = 0; i < outside.size(); ++i) now[outside[i]] = values_.at(apply.from[i]);
    for (const LayerConfig* layer : layers) {
      LayerConfig copy = *layer;
      copy.name = layer == layers.back() ? apply.name : apply.name + "_" + layer->name;
      if (values_.contains(copy.name))
        refuse(
            fmt::format("'apply' needs the name '{}' for a layer: give another one another name", copy.name));
      std::vector<Value> from;
      for (const std::string& name : layer->from) from.push_back(now.at(name));
      const Value value = add_layer(graph_, copy, from);
      graph_.share_weights(values_.at(layer->name));
      now[layer->name] = values_[copy.name] = value;
    }
  }

  const ModelConfig& config_;
  const ModelTask& task_;
  GraphBuilder graph_;
  std::map<std::string, Value> values_;
};

}  // namespace

ModelGraph build_named(const ModelConfig& config, const ModelTask& task) {
  check_task(config, task);
  if (is_sequence_family(config.name)) return build_sequence_family(config, task);
  Chain chain(config, task);
  if (reads_fields(config.name) && !reads_grids(config.name)) {
    chain.join_channels(task.inputs.size());
    if (!has_depth(config.name)) chain.need_poolable();
  }
  switch (config.name) {
    case ModelName::cosmoflow:
      return build_cosmoflow(config, std::move(chain), task);
    case ModelName::sc18:
      return build_sc18(config, std::move(chain), task);
    case ModelName::mlperf:
      return build_mlperf(config, std::move(chain), task);
    case ModelName::mlp:
      return build_mlp(config, std::move(chain), task);
    case ModelName::cnn:
      return build_cnn(config, std::move(chain), task);
    case ModelName::unet:
      return build_unet(config, std::move(chain), task);
    case ModelName::resnet:
      return build_resnet(config, std::move(chain), task);
    case ModelName::deeplab:
      return build_deeplab(config, std::move(chain), task);
    case ModelName::tiramisu:
      return build_tiramisu(config, std::move(chain), task);
    case ModelName::decoder:
      return build_decoder(config, std::move(chain), task);
    case ModelName::autoencoder:
      return build_autoencoder(config, std::move(chain), task);
    case ModelName::vae:
      return build_vae(config, std::move(chain), task);
    case ModelName::fno:
    case ModelName::lstm:
    case ModelName::conv_lstm:
    case ModelName::gan:
    case ModelName::wae:
    case ModelName::cycle:
    case ModelName::semi_supervised:
    case ModelName::inference:
    case ModelName::layers:
    case ModelName::automatic:
    case ModelName::module:
      break;
  }
  WFLOW_CHECK(false);
  return {};
}

ModelGraph build_model(const ModelConfig& config, const ModelTask& task) {
  ModelGraph graph =
      config.name == ModelName::layers ? ListedLayers(config, task).build() : build_named(config, task);
  choose_initial_weights(graph, config.initial);
  return graph;
}

ModelGraph build_model(const ModelConfig& config, const TensorShape& input, std::int64_t outputs) {
  return build_model(config, ModelTask{{{"x", input}}, {outputs, {1, 1, 1}}});
}

}  // namespace wflow::trainer
