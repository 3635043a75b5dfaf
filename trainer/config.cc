// SPDX-License-Identifier: Apache-2.0
#include "trainer/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>

#include "base/config_table.h"
#include "base/expression.h"
#include "base/text.h"
#include "trainer/config_tables.h"
#include "trainer/follow_config.h"
#include "trainer/formula.h"
#include "trainer/metric_name.h"
#include "trainer/search_config.h"
#include "trainer/tournament_config.h"

namespace wflow::trainer {
namespace {

const std::array<std::string, 23> kModels = {
    "cosmoflow", "sc18",    "mlperf",          "mlp",       "cnn",    "unet",      "resnet",    "deeplab",
    "tiramisu",  "decoder", "autoencoder",     "vae",       "fno",    "lstm",      "conv_lstm", "gan",
    "wae",       "cycle",   "semi_supervised", "inference", "layers", "automatic", "module"};
const std::array<std::string, 3> kTransforms = {"none", "log", "log1p"};
const std::array<std::string, 14> kLosses = {"mse",  "mae",         "huber",    "gaussian", "cross_entropy",
                                             "dice", "focal",       "quantile", "formula",  "detection",
                                             "bce",  "wasserstein", "module",   "mixture"};
// By number, the first is that of listed weights: without a list all are 1.
const std::array<std::string, 3> kClassWeightings = {"none", "inverse", "inverse_root"};
const std::array<std::string, 6> kOptimizers = {"adamw", "adam", "sgd", "lars", "larc", "lamb"};
const std::array<std::string, 7> kDecays = {"none", "cosine",    "linear", "polynomial",
                                            "step", "one_cycle", "plateau"};
const std::array<std::string, 2> kSelects = {"last", "best"};
const std::array<std::string, 4> kShards = {"none", "optimizer", "gradients", "weights"};
const std::array<std::string, 3> kRecomputes = {"none", "blocks", "tiles"};
const std::array<std::string, 3> kBackends = {"auto", "torch", "onednn"};
const std::array<std::string, 3> kStages = {"none", "local", "memory"};
const std::array<std::string, 3> kPrecisions = {"full", "bf16", "fp16"};
const std::array<std::string, 2> kWireFormats = {"full", "half"};
const std::array<std::string, 4> kInitialWeights = {"auto", "data", "he", "torch"};
const std::array<std::string, 2> kEarlierInitialWeights = {"random", "data"};
const std::array<std::string, 3> kNorms = {"none", "batch", "group"};
const std::array<std::string, 2> kNetworkPaddings = {"same", "periodic"};
const std::array<std::string, 7> kActivations = {"leaky_relu", "relu",    "elu", "gelu",
                                                 "silu",       "sigmoid", "tanh"};
const std::array<std::string, 4> kAugmentations = {"shift", "flip", "permute", "noise"};

constexpr std::int64_t kMany = std::int64_t{1} << 40;
constexpr std::int64_t kMostStaged = std::int64_t{1} << 31;

// Earlier revisions wrote `batch_norm: true | false` for `norm: batch | none`.
void read_batch_norm(yaml::MapReader& reader, std::string_view key, ModelConfig& model) {
  model.norm = reader.boolean(key, false) ? Norm::batch : Norm::none;
}

// Earlier revisions wrote `initial: random | data` for `init: auto | data`.
void read_initial(yaml::MapReader& reader, std::string_view key, ModelConfig& model) {
  const std::size_t fallback = model.initial == InitialWeights::data ? 1 : 0;
  model.initial = reader.choice(key, fallback, kEarlierInitialWeights) == 1 ? InitialWeights::data
                                                                            : InitialWeights::automatic;
}

void read_layer_list(yaml::MapReader& reader, std::span<const std::string> inputs, ModelConfig& model,
                     yaml::Diagnostics& diagnostics) {
  const yaml::Node* list = reader.find("layers");
  if (list == nullptr) {
    diagnostics.error(reader.mark_of("layers"), "the model: block needs 'layers', a list of layers");
    return;
  }
  std::vector<std::string> names(inputs.begin(), inputs.end());
  model.layers = read_layers(*list, names, diagnostics);
  for (const LayerConfig& layer : model.layers) names.push_back(layer.name);
  for (const std::string& output : model.outputs) {
    if (std::find(names.begin(), names.end(), output) != names.end()) continue;
    diagnostics.error(reader.mark_of("outputs"), fmt::format("'outputs' names '{}', which is no layer{}",
                                                             output, text::suggestion(output, names)));
  }
}

bool is_module_file(const yaml::Node& node) {
  return node.is_scalar() && node.text.ends_with(".pt");
}

// A key that another function reads.
template <typename Config>
config::Key<Config> read_elsewhere(std::string name, config::Json schema, std::string meaning,
                                   typename config::Key<Config>::Write write = {}) {
  return config::custom<Config>(
      std::move(name), std::move(schema), std::move(meaning),
      [](yaml::MapReader& reader, std::string_view key, Config&) { reader.has(key); }, std::move(write));
}

bool is_named(const ModelConfig& model) {
  return model.name != ModelName::module && model.name != ModelName::layers;
}
bool is_listed(const ModelConfig& model) {
  return model.name == ModelName::layers;
}
bool is_module(const ModelConfig& model) {
  return model.name == ModelName::module;
}

// Where one of these is chosen.
template <typename Config, typename Name>
config::Use<Config> one_of(Name Config::*choice, const std::vector<std::type_identity_t<Name>>& names) {
  std::vector<std::string> words;
  for (const Name name : names) words.emplace_back(name_of(name));
  return {[choice, names](const Config& config) {
            return std::ranges::find(names, config.*choice) != names.end();
          },
          text::join(words, ", ")};
}

// model_graph_test.cc compares with the layers. The data may choose the network (`automatic`).
config::Use<ModelConfig> networks(const std::vector<ModelName>& names) {
  config::Use<ModelConfig> use = one_of(&ModelConfig::name, names);
  use.holds = [named = std::move(use.holds)](const ModelConfig& model) {
    return model.name == ModelName::automatic || named(model);
  };
  return use;
}

config::Use<ModelConfig> networks_but(const std::vector<ModelName>& names) {
  config::Use<ModelConfig> use = one_of(&ModelConfig::name, names);
  return {[named = std::move(use.holds)](const ModelConfig& model) { return !named(model); },
          "networks other than " + use.who};
}

// Networks whose windows all belong to convolutions that can read the other end of the field, and whose other
// layers treat all cells alike.
config::Use<ModelConfig> periodic_networks() {
  return one_of(&ModelConfig::name, {ModelName::cosmoflow, ModelName::sc18, ModelName::mlperf, ModelName::cnn,
                                     ModelName::unet, ModelName::resnet, ModelName::decoder,
                                     ModelName::autoencoder, ModelName::vae, ModelName::gan, ModelName::wae,
                                     ModelName::cycle, ModelName::semi_supervised, ModelName::inference});
}

void read_network_padding(yaml::MapReader& reader, std::string_view key, ModelConfig& model) {
  const bool was = model.padding == Padding::periodic;
  model.padding = reader.choice(key, was ? 1 : 0, kNetworkPaddings) == 1 ? Padding::periodic : Padding::same;
  if (model.padding != Padding::periodic) return;
  const config::Use<ModelConfig> periodic = periodic_networks();
  if (periodic.holds(model)) return;
  reader.diagnostics().error(
      reader.mark_of(key),
      fmt::format("'padding: periodic' is for {}, and the network is '{}'; in a list of layers each "
                  "convolution may have it",
                  periodic.who, name_of(model.name)));
}

// A model is named, a list of layers, or a module in a file; each has keys of its own.
const config::Table<ModelConfig>& model_table() {
  // The last three names stand for other keys of the block, or for none.
  const auto names = std::span(kModels).first(kModels.size() - 1);
  auto name = config::choice("name", &ModelConfig::name, names, "a [network](#networks-by-name)");
  name.schema = config::choice_schema(names.first(names.size() - 2));
  name.write = [](const ModelConfig& model) -> std::optional<yaml::Node> {
    return is_named(model) ? std::optional(yaml::scalar(name_of(model.name))) : std::nullopt;
  };
  static const config::Table<ModelConfig> table(
      "the model: block",
      {config::text("file", &ModelConfig::file,
                    "a [TorchScript file](#a-network-of-your-own): the network that is trained")
           .usually("")
           .only_if(is_module)
           .then([](yaml::MapReader& reader, ModelConfig& model) {
             if (model.file.empty())
               reader.diagnostics().error(reader.mark_of("file"),
                                          "'file' needs the path of a TorchScript file");
           }),
       std::move(name)
           .only_if([](const ModelConfig& model) { return !is_module(model); })
           .then([](yaml::MapReader& reader, ModelConfig& model) {
             model = default_model(reader.has("layers") ? ModelName::layers : model.name);
           }),
       read_elsewhere<ModelConfig>("layers", layers_schema(),
                                   "the network [written out](#layers), in place of a name",
                                   [](const ModelConfig& model) {
                                     std::vector<yaml::Node> layers;
                                     for (const LayerConfig& layer : model.layers)
                                       layers.push_back(to_yaml(layer));
                                     return yaml::sequence(std::move(layers));
                                   })
           .only_if(is_listed),
       config::texts("outputs", &ModelConfig::outputs, "names of the layers that are outputs")
           .usually("the last layer")
           .only_if(is_listed),
       config::integer("width", &ModelConfig::width, 1, 4096, "channels of the first convolution")
           .usually("by the model")
           .only_if(is_named)
           .used_by(networks_but({ModelName::mlp})),
       config::real("dropout", &ModelConfig::dropout, 0, 0.95,
                    "fraction of the values that dropout sets to 0")
           .usually("by the model")
           .only_if(is_named)
           .used_by(networks_but({ModelName::unet, ModelName::deeplab, ModelName::gan, ModelName::wae,
                                  ModelName::cycle, ModelName::inference})),
       config::choice("norm", &ModelConfig::norm, kNorms, "what follows each convolution")
           .usually("unet, resnet, deeplab and tiramisu `batch`, else `none`")
           .only_if(is_named)
           .used_by(networks_but({ModelName::mlp, ModelName::lstm, ModelName::conv_lstm}))
           .formerly("batch_norm", config::boolean_schema(), read_batch_norm),
       config::real("leaky_slope", &ModelConfig::leaky_slope, 0, 1, "slope of the leaky ReLU below 0")
           .usually("by the model")
           .only_if(is_named)
           .used_by(networks_but({ModelName::gan, ModelName::wae, ModelName::cycle, ModelName::inference})),
       config::boolean("tanh_output", &ModelConfig::tanh_output, "limit outputs to +-1.2, as MLPerf does")
           .only_if(is_named)
           .used_by(networks_but({ModelName::gan, ModelName::wae, ModelName::cycle, ModelName::inference})),
       config::integers("dense", &ModelConfig::dense, 1, 1 << 20, "sizes of the hidden dense layers")
           .usually("by the model")
           .only_if(is_named)
           .used_by(networks_but({ModelName::unet, ModelName::deeplab, ModelName::tiramisu})),
       config::choice("activation", &ModelConfig::activation, kActivations, "activation behind each layer",
                      LayerKind::leaky_relu)
           .usually("mlp and decoder `silu`; unet, resnet, deeplab and tiramisu `relu`; fno `gelu`; else "
                    "`leaky_relu`")
           .only_if(is_named)
           .used_by(networks_but({ModelName::gan, ModelName::wae, ModelName::cycle, ModelName::inference})),
       config::integer("depth", &ModelConfig::depth, 1, 12,
                       "unet, resnet, deeplab, tiramisu, gan, wae, cycle, inference: how often the grid is "
                       "halved; fno, lstm, "
                       "conv_lstm: layers one after another")
           .usually("resnet, deeplab and lstm `2`, fno `4`, conv_lstm `1`, else `3`")
           .only_if(is_named)
           .used_by(networks({ModelName::unet, ModelName::resnet, ModelName::deeplab, ModelName::tiramisu,
                              ModelName::fno, ModelName::lstm, ModelName::conv_lstm, ModelName::gan,
                              ModelName::wae, ModelName::cycle, ModelName::inference})),
       config::integer(
           "latent", &ModelConfig::latent, 1, 1 << 20,
           "autoencoder, vae, wae, cycle, semi_supervised: values between encoder and decoder; gan: "
           "random numbers of a sample; inference: units of the LSTM")
           .usually("gan `64`, inference `128`, wae and cycle `20`, else `16`")
           .only_if(is_named)
           .used_by(networks({ModelName::autoencoder, ModelName::vae, ModelName::gan, ModelName::wae,
                              ModelName::cycle, ModelName::semi_supervised, ModelName::inference})),
       config::integer("components", &ModelConfig::components, 1, 1000,
                       "inference: normal distributions that the proposal of a draw is a sum of")
           .usually("`8`")
           .only_if([](const ModelConfig& model) { return model.name == ModelName::inference; }),
       config::real("auxiliary_weight", &ModelConfig::auxiliary_weight, 0, 1e9,
                    "cycle: weight of predictions and cycles beside the latent code; semi_supervised: of the "
                    "reconstruction")
           .usually("`1`")
           .only_if([](const ModelConfig& model) {
             return model.name == ModelName::cycle || model.name == ModelName::semi_supervised;
           }),
       config::integer("modes", &ModelConfig::modes, 1, 1 << 16,
                       "fno: lowest frequencies kept along each axis, at most half of its cells")
           .only_if(is_named)
           .used_by(networks({ModelName::fno})),
       config::boolean("level_means", &ModelConfig::level_means,
                       "cosmoflow: the dense layers read the channels' means at every level; `false`: at the "
                       "last level only")
           .usually("cosmoflow `true`")
           .only_if(is_named)
           .used_by(networks({ModelName::cosmoflow})),
       config::choice("init", &ModelConfig::initial, kInitialWeights,
                      "rule of the [initial weights](#networks-by-name)")
           .usually(
               "cosmoflow `data`; mlperf, unet, deeplab, tiramisu, autoencoder, vae and fno `torch`; else "
               "`auto`")
           .only_if([](const ModelConfig& model) { return !is_module(model); })
           .formerly("initial", config::choice_schema(kEarlierInitialWeights), read_initial),
       config::integer("blocks", &ModelConfig::blocks, 1, 1000,
                       "resnet, deeplab: residual blocks a level; tiramisu: layers of a dense block")
           .usually("resnet `3`, deeplab `2`, tiramisu `4`")
           .only_if(is_named)
           .used_by(networks({ModelName::resnet, ModelName::deeplab, ModelName::tiramisu}))
           .only_if_set(),
       config::integer("growth", &ModelConfig::growth, 1, 4096, "tiramisu: channels that each layer adds")
           .usually("tiramisu `12`")
           .only_if(is_named)
           .used_by(networks({ModelName::tiramisu}))
           .only_if_set(),
       config::boolean("pre_activation", &ModelConfig::pre_activation,
                       "resnet: norm and activation before each convolution, as in He et al. 2016b")
           .only_if(is_named)
           .used_by(networks({ModelName::resnet}))
           .only_if_set(),
       config::integers("dilations", &ModelConfig::dilations, 1, 1 << 16,
                        "deeplab: dilations of the parallel convolutions on the coarsest grid")
           .usually("deeplab `[3, 6, 9]`")
           .only_if(is_named)
           .used_by(networks({ModelName::deeplab}))
           .only_if_set(),
       config::custom<ModelConfig>(
           "padding", config::choice_schema(kNetworkPaddings),
           "what convolutions read beyond the edge of a field: zeros (`same`), or the cells at the other end "
           "([`periodic`](#periodic-fields))",
           read_network_padding,
           [](const ModelConfig&
                  model) { return yaml::scalar(kNetworkPaddings[model.padding == Padding::periodic ? 1 : 0]); })
           .usually("`same`")
           .only_if(is_named)
           .only_if_set()});
  return table;
}

ModelConfig read_model(const yaml::Node* node, std::span<const std::string> inputs,
                       yaml::Diagnostics& diagnostics) {
  if (node == nullptr) return default_model(ModelName::automatic);
  const yaml::Node block =
      is_module_file(*node) ? yaml::map({{"file", *node}}) : config::block_of(node, "name");
  yaml::MapReader reader(block, model_table().where(), diagnostics);
  ModelConfig model;
  if (reader.has("file")) model = default_model(ModelName::module);
  model_table().read_keys(reader, model);
  if (is_listed(model)) read_layer_list(reader, inputs, model, diagnostics);
  reader.finish();
  return model;
}

// A word or a list of numbers.
void read_class_weights(yaml::MapReader& reader, std::string_view key, LossConfig& loss) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  if (!node->is_scalar()) {
    loss.class_weights = reader.reals(key);
    return;
  }
  const auto found = std::find(kClassWeightings.begin(), kClassWeightings.end(), node->text);
  if (found == kClassWeightings.end()) {
    reader.diagnostics().error(
        node->mark,
        fmt::format("'class_weights' must be none, inverse, inverse_root or a list with a number for "
                    "each class, found {}{}",
                    node->describe(), text::suggestion(node->text, kClassWeightings)));
    return;
  }
  loss.class_weighting = static_cast<ClassWeighting>(found - kClassWeightings.begin());
}

std::optional<yaml::Node> class_weights_node(const LossConfig& loss) {
  if (loss.class_weighting == ClassWeighting::listed) return config::emit_reals(loss.class_weights);
  return yaml::scalar(kClassWeightings[static_cast<std::size_t>(loss.class_weighting)]);
}

config::Json class_weights_schema() {
  return config::any_of({config::choice_schema(kClassWeightings),
                         {{"type", "array"}, {"items", config::number_schema(0, 1e30)}}});
}

void check_quantiles(yaml::MapReader& reader, const std::vector<double>& quantiles) {
  const bool rise = std::ranges::adjacent_find(quantiles, std::greater_equal<>()) == quantiles.end();
  const bool inside = std::ranges::all_of(quantiles, [](double q) { return q > 0 && q < 1; });
  if (rise && inside && !quantiles.empty()) return;
  reader.diagnostics().error(
      reader.mark_of("quantiles"),
      "'quantiles' must be numbers between 0 and 1 that rise, such as [0.05, 0.5, 0.95]");
}

void check_formula(yaml::MapReader& reader, LossConfig& loss) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (loss.formula.empty()) {
    if (loss.name == LossName::formula)
      diagnostics.error(reader.mark_of("name"), "the loss 'formula' needs the key 'formula'");
    return;
  }
  if (reader.has("name") && loss.name != LossName::formula)
    diagnostics.error(reader.mark_of("formula"), "'formula' is a loss of its own: leave out 'name'");
  loss.name = LossName::formula;
  try {
    target_formula(loss.formula, "loss");
  } catch (const ExpressionError& error) {
    diagnostics.error(reader.mark_of("formula"),
                      fmt::format("'formula', character {}: {}", error.offset + 1, error.what()));
  }
}

void check_loss_file(yaml::MapReader& reader, LossConfig& loss) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (loss.file.empty()) {
    if (loss.name == LossName::module)
      diagnostics.error(reader.mark_of("name"), "the loss 'module' needs the key 'file'");
    return;
  }
  if (reader.has("name") && loss.name != LossName::module)
    diagnostics.error(reader.mark_of("file"), "'file' is a loss of its own: leave out 'name'");
  if (!loss.formula.empty())
    diagnostics.error(reader.mark_of("file"), "a loss is a 'formula' or a 'file', not both");
  loss.name = LossName::module;
}

void check_loss(yaml::MapReader& reader, LossConfig& loss) {
  check_formula(reader, loss);
  check_loss_file(reader, loss);
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (loss.class_weighting != ClassWeighting::listed && !is_classification(loss.name)) {
    diagnostics.error(
        reader.mark_of("class_weights"),
        fmt::format("'class_weights' are for classes, and the loss {} has none; leave them out, or choose "
                    "cross_entropy, focal or dice",
                    name_of(loss.name)));
  }
  const auto weights = static_cast<std::int64_t>(loss.class_weights.size());
  if (weights > 0 && loss.classes > 0 && weights != loss.classes) {
    diagnostics.error(
        reader.mark_of("class_weights"),
        fmt::format("'class_weights' has {} numbers and 'classes' is {}", weights, loss.classes));
  }
  for (const double weight : loss.class_weights) {
    if (weight < 0) diagnostics.error(reader.mark_of("class_weights"), "a class weight must not be negative");
  }
  if (weights > 0) loss.classes = weights;
}

const config::Table<LossConfig>& loss_table() {
  static const auto of_classes = one_of(
      &LossConfig::name, {LossName::cross_entropy, LossName::focal, LossName::dice, LossName::detection});
  static const config::Table<LossConfig> table(
      "the loss: block",
      {config::choice("name", &LossConfig::name, kLosses, "a [loss](#losses)"),
       config::real("delta", &LossConfig::delta, 1e-9, 1e9,
                    "huber: the error from which on the loss is linear, in deviations of the target")
           .used_by(one_of(&LossConfig::name, {LossName::huber})),
       config::custom<LossConfig>(
           "class_weights", class_weights_schema(),
           "cross_entropy, focal, dice: a number for each class, or `inverse` or `inverse_root`: "
           "[from the training samples](#class-weights); `none`: all 1; detection: a number for each class",
           read_class_weights, class_weights_node)
           .usually("all 1")
           // check_loss() refuses the words.
           .used_by({[](const LossConfig& loss) {
                       return loss.class_weighting != ClassWeighting::listed || of_classes.holds(loss);
                     },
                     of_classes.who}),
       config::integer("classes", &LossConfig::classes, 0, 1 << 20,
                       "cross_entropy, focal, dice, detection; 0: as many as the training data have")
           .used_by(of_classes),
       config::real("smooth", &LossConfig::smooth, 0, 1e9, "dice: added to numerator and denominator")
           .used_by(one_of(&LossConfig::name, {LossName::dice})),
       config::real("kl_weight", &LossConfig::kl_weight, 0, 1e9,
                    "vae, wae: weight of the term that makes codes normally distributed"),
       config::real("gamma", &LossConfig::gamma, 0, 100,
                    "focal: exponent of 1 - the probability of the true class; 0: cross_entropy")
           .usually("2")
           .only_if([](const LossConfig& loss) { return loss.name == LossName::focal; }),
       config::reals(
           "quantiles", &LossConfig::quantiles,
           "quantile: the quantiles of each target, rising; the one nearest to 0.5 is the prediction")
           .usually("[0.05, 0.5, 0.95]")
           .only_if([](const LossConfig& loss) { return loss.name == LossName::quantile; })
           .then([](yaml::MapReader& reader, LossConfig& loss) { check_quantiles(reader, loss.quantiles); }),
       config::real("box_weight", &LossConfig::box_weight, 0, 1e9,
                    "detection: weight of the box of an object")
           .usually("5")
           .only_if([](const LossConfig& loss) { return loss.name == LossName::detection; }),
       config::real("empty_weight", &LossConfig::empty_weight, 0, 1e9,
                    "detection: weight of a cell without an object")
           .usually("0.5")
           .only_if([](const LossConfig& loss) { return loss.name == LossName::detection; }),
       config::text("formula", &LossConfig::formula,
                    "[a loss of your own](#a-loss-of-your-own), such as `abs(prediction - target)^1.5`")
           .usually("none")
           .only_if_set(),
       config::text("file", &LossConfig::file,
                    "[a loss of your own](#a-loss-of-your-own) as a TorchScript file")
           .usually("none")
           .only_if_set(),
       config::integer("components", &LossConfig::components, 1, 1024,
                       "mixture: normal distributions that are added up")
           .usually("8")
           .only_if([](const LossConfig& loss) { return loss.name == LossName::mixture; })},
      check_loss);
  return table;
}

bool compares_scores(LossName name) {
  return name == LossName::bce || name == LossName::wasserstein;
}

bool compares_constants(LossName name) {
  return name == LossName::mse || name == LossName::mae || name == LossName::huber || compares_scores(name);
}

void check_head(yaml::MapReader& reader, HeadConfig& head) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const int given = (head.targets.empty() ? 0 : 1) + (head.constant ? 1 : 0) + (head.like.empty() ? 0 : 1);
  if (given != 1) {
    diagnostics.error(reader.mark_of(given == 0      ? "name"
                                     : head.constant ? "constant"
                                                     : "like"),
                      fmt::format("the head '{}' needs one of 'targets', 'constant' and 'like'{}", head.name,
                                  given == 0 ? "" : ", and has more"));
  }
  if (compares_scores(head.loss.name) && !head.constant)
    diagnostics.error(reader.mark_of("loss"),
                      fmt::format("the loss {} compares a score with a 'constant', 1 for real and 0 for made "
                                  "samples; the head '{}' has none",
                                  name_of(head.loss.name), head.name));
  if (compares_scores(head.loss.name) && head.constant && (*head.constant < 0 || *head.constant > 1))
    diagnostics.error(reader.mark_of("constant"),
                      fmt::format("the loss {} needs a 'constant' from 0 to 1", name_of(head.loss.name)));
  if (head.constant && !compares_constants(head.loss.name))
    diagnostics.error(
        reader.mark_of("loss"),
        fmt::format("a 'constant' is compared by mse, mae, huber, bce or wasserstein, not by {}",
                    name_of(head.loss.name)));
}

const config::Table<HeadConfig>& head_table() {
  static const config::Table<HeadConfig> table(
      "a head",
      {config::text("name", &HeadConfig::name, "its name: in metrics, predictions and the exported model")
           .required(),
       config::texts("targets", &HeadConfig::targets, "what it learns: labels, or fields of one grid")
           .usually("needed without `constant` and `like`")
           .unless_default(),
       config::custom<HeadConfig>(
           "constant", config::number_schema(-1e30, 1e30),
           "a number in place of targets, which all values of the output are compared with",
           [](yaml::MapReader& reader, std::string_view key, HeadConfig& head) {
             if (reader.has(key)) head.constant = reader.real(key, 0, -1e30, 1e30);
           },
           [](const HeadConfig& head) { return yaml::scalar(text::from_real(head.constant.value_or(0))); })
           .usually("none")
           .emitted_if([](const HeadConfig& head) { return head.constant.has_value(); }),
       config::text(
           "like", &HeadConfig::like,
           "a field in place of targets: the output is in its units and has no truth; it is exported "
           "and counts in no loss")
           .usually("none")
           .unless_default(),
       config::block("loss", &HeadConfig::loss, loss_table(),
                     "a [name](#losses) or a [mapping](#keys-of-loss), on normalised targets", "name")
           .usually("`mse`"),
       config::real("weight", &HeadConfig::weight, 0, 1e9, "factor of its loss in the sum of all"),
       config::text("output", &HeadConfig::output, "lists of layers: the layer that is compared")
           .usually("the layer with the head's name")
           .unless_default(),
       config::custom<HeadConfig>(
           "export", config::boolean_schema(), "whether the exported model has this output",
           [](yaml::MapReader& reader, std::string_view key, HeadConfig& head) {
             if (reader.has(key)) head.save = reader.boolean(key, true);
           },
           [](const HeadConfig& head) { return config::emit_boolean(head.is_exported()); })
           .usually("`true`; with `constant` `false`")
           .emitted_if([](const HeadConfig& head) { return head.save.has_value(); })},
      check_head);
  return table;
}

const config::Table<GradientPenalty>& penalty_table() {
  static const config::Table<GradientPenalty> table(
      "a gradient penalty",
      {config::text("of", &GradientPenalty::of, "the layer with the score").usually("(needed)"),
       config::text("from", &GradientPenalty::from, "the input or layer that the gradient is taken by")
           .usually("(needed)"),
       config::real("weight", &GradientPenalty::weight, 0, 1e9, "factor of the penalty"),
       config::real("norm", &GradientPenalty::norm, 0, 1e9, "norm of the gradient that has no penalty")});
  return table;
}

const config::Table<AlternateConfig>& alternate_table() {
  static const config::Table<AlternateConfig> table(
      "an entry of 'alternate'",
      {config::texts("heads", &AlternateConfig::heads, "the heads whose losses count").required(),
       config::texts("learn", &AlternateConfig::learn, "the parts that learn")
           .usually("all")
           .unless_default(),
       config::integer("every", &AlternateConfig::every, 1, 1 << 20, "steps from one such update to the next")
           .unless_default(),
       config::block("gradient_penalty", &AlternateConfig::penalty, penalty_table(),
                     "a [limit](#gradient-penalty) on how fast a score may change", "of")
           .usually("none")
           .emitted_if([](const AlternateConfig& entry) { return !entry.penalty.of.empty(); })},
      [](yaml::MapReader& reader, AlternateConfig& entry) {
        if (reader.has("gradient_penalty") && (entry.penalty.of.empty() || entry.penalty.from.empty()))
          reader.diagnostics().error(
              reader.mark_of("gradient_penalty"),
              "'gradient_penalty' needs 'of', the layer with the score, and 'from', the "
              "value that its gradient is taken by");
      });
  return table;
}

void read_alternate(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* list = reader.find(key);
  if (list == nullptr) return;
  if (!list->is_sequence() || list->items.empty()) {
    reader.diagnostics().error(
        list->mark, fmt::format("'alternate' is a list of updates, such as [{{heads: [real, fake], learn: "
                                "discriminator}}, {{heads: fooled, learn: generator}}]; found {}",
                                list->describe()));
    return;
  }
  for (const yaml::Node& item : list->items) {
    const std::string where = fmt::format("entry {} of 'alternate'", config.alternate.size() + 1);
    alternate_table().read(item, config.alternate.emplace_back(), reader.diagnostics(), where);
  }
}

void read_random_inputs(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* map = reader.find(key);
  if (map == nullptr) return;
  if (!map->is_map()) {
    reader.diagnostics().error(map->mark,
                               fmt::format("'random_inputs' gives names and numbers of values, such as {{z: "
                                           "16}}; found {}",
                                           map->describe()));
    return;
  }
  yaml::MapReader sizes(*map, "'random_inputs'", reader.diagnostics());
  for (const auto& [name, size] : map->entries)
    config.random_inputs.push_back({name.text, sizes.integer(name.text, 1, 1, 1 << 20)});
}

yaml::Node random_inputs_node(const TrainConfig& config) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const RandomInput& input : config.random_inputs)
    entries.emplace_back(input.name, config::emit_integer(input.size));
  return yaml::map(std::move(entries));
}

// The names that the layers of a list may read.
std::vector<std::string> input_names(const TrainConfig& config) {
  std::vector<std::string> names = config.inputs;
  if (names.empty()) names.emplace_back(kField);
  for (const RandomInput& input : config.random_inputs) names.push_back(input.name);
  return names;
}

void read_heads(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const yaml::Node* list = reader.find(key);
  if (list == nullptr) return;
  if (!list->is_sequence() || list->items.empty()) {
    diagnostics.error(list->mark,
                      fmt::format("'heads' is a list with an entry for each thing to learn, such as "
                                  "[{{name: scalars, targets: [yield]}}]; found {}",
                                  list->describe()));
    return;
  }
  for (const yaml::Node& item : list->items) {
    HeadConfig head;
    head_table().read(item, head, diagnostics, fmt::format("head {} of 'heads'", config.heads.size() + 1));
    const auto is_same = [&](const HeadConfig& other) { return other.name == head.name; };
    if (!head.name.empty() && std::any_of(config.heads.begin(), config.heads.end(), is_same))
      diagnostics.error(item.mark, fmt::format("two heads have the name '{}'", head.name));
    if (head.name.find_first_of("/. ") != std::string::npos)
      diagnostics.error(item.mark,
                        fmt::format("the head's name '{}' must not contain '/', '.' or a space", head.name));
    config.heads.push_back(std::move(head));
  }
  for (const char* other : {"targets", "loss"}) {
    if (reader.has(other))
      diagnostics.error(reader.mark_of(other),
                        fmt::format("'{}' stands beside 'heads', where each head has its own; move it into a "
                                    "head",
                                    other));
  }
}

TransformConfig read_transform(const yaml::Node* node, yaml::Diagnostics& diagnostics) {
  TransformConfig transform;
  if (node == nullptr) return transform;
  if (node->is_scalar()) {
    const auto found = std::find(kTransforms.begin(), kTransforms.end(), node->text);
    if (found == kTransforms.end()) {
      diagnostics.error(node->mark,
                        fmt::format("'transform' must be none, log1p or {{log: OFFSET}}, found {}{}",
                                    node->describe(), text::suggestion(node->text, kTransforms)));
    } else {
      transform.name = static_cast<TransformName>(found - kTransforms.begin());
    }
    return transform;
  }
  yaml::MapReader reader(*node, "the transform: block", diagnostics);
  transform.name = TransformName::log;
  if (!reader.has("log")) {
    reader.required("log");
  } else {
    transform.offset = reader.real("log", transform.offset, 1e-30, 1e30);
  }
  reader.finish();
  return transform;
}

void read_augmentation(const yaml::Node& node, AugmentConfig& augment, yaml::Diagnostics& diagnostics) {
  if (node.is_map()) {
    yaml::MapReader reader(node, "the augment: block", diagnostics);
    if (!reader.has("noise")) reader.required("noise");
    augment.noise = reader.real("noise", 0, 0, 100);
    reader.finish();
  } else if (node.is_scalar() && node.text == "shift") {
    augment.shift = true;
  } else if (node.is_scalar() && node.text == "flip") {
    augment.flip = true;
  } else if (node.is_scalar() && node.text == "permute") {
    augment.permute = true;
  } else if (node.is_scalar() && node.text == "noise") {
    diagnostics.error(node.mark, "'noise' needs its strength, as in {noise: 0.01}");
  } else {
    diagnostics.error(node.mark,
                      fmt::format("'augment' is a list of shift, flip, permute, {{noise: NUMBER}}; "
                                  "found {}{}",
                                  node.describe(), text::suggestion(node.text, kAugmentations)));
  }
}

AugmentConfig read_augment(yaml::MapReader& reader, yaml::Diagnostics& diagnostics) {
  AugmentConfig augment;
  const yaml::Node* node = reader.find("augment");
  if (node == nullptr) return augment;
  if (node->is_scalar() && (node->text == "none" || node->text == "false")) return augment;
  if (!node->is_sequence()) {
    read_augmentation(*node, augment, diagnostics);
    return augment;
  }
  for (const yaml::Node& item : node->items) read_augmentation(item, augment, diagnostics);
  return augment;
}

void read_stage(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  if (node->is_map()) {
    yaml::MapReader block(*node, "the stage: block", reader.diagnostics());
    config.stage_subset = block.has("subset") ? block.integer("subset", 1, 1, kMostStaged) : 0;
    const bool in_files = config.stage_subset == 0 || block.has("local");
    config.stage = in_files ? Stage::local : Stage::memory;
    if (in_files) config.stage_folder = block.required_string("local");
    block.finish();
    return;
  }
  config.stage = static_cast<Stage>(reader.choice(key, 0, kStages));
}

double default_rate(OptimizerName name) {
  switch (name) {
    case OptimizerName::sgd:
    case OptimizerName::lars:
    case OptimizerName::larc:
      return 1e-2;
    default:
      return 2e-3;
  }
}

// The defaults that depend on the method.
void set_defaults(yaml::MapReader&, OptimizerConfig& optimizer) {
  const bool is_decoupled = optimizer.name == OptimizerName::adamw || optimizer.name == OptimizerName::lamb;
  optimizer.learning_rate = default_rate(optimizer.name);
  optimizer.weight_decay = is_decoupled ? 1e-2 : 0;
  optimizer.larc_trust = optimizer.name == OptimizerName::larc ? 0.02 : 0;
  // A step of the weights is the rate times this. Papers have 0.001 and rates of 1 to 30, for networks with
  // batch norm: elsewhere biases, which have the plain rate, diverge.
  if (optimizer.name == OptimizerName::lars) optimizer.lars_trust = 0.1;
}

const config::Table<OptimizerConfig>& optimizer_table() {
  static const auto adaptive =
      one_of(&OptimizerConfig::name, {OptimizerName::adam, OptimizerName::adamw, OptimizerName::lamb});
  static const config::Table<OptimizerConfig> table(
      "the optimizer: block",
      {config::choice("name", &OptimizerConfig::name, kOptimizers, "an [optimizer](#optimizers)")
           .then(set_defaults),
       config::real("learning_rate", &OptimizerConfig::learning_rate, 0, 1e3, "the rate before the schedule")
           .usually("0.002; sgd, lars and larc 0.01"),
       config::real("momentum", &OptimizerConfig::momentum, 0, 0.9999, "sgd, lars, larc")
           .used_by(one_of(&OptimizerConfig::name,
                           {OptimizerName::sgd, OptimizerName::lars, OptimizerName::larc})),
       config::boolean("nesterov", &OptimizerConfig::nesterov, "sgd: Nesterov's momentum")
           .used_by(one_of(&OptimizerConfig::name, {OptimizerName::sgd})),
       config::real("beta1", &OptimizerConfig::beta1, 0, 0.999999,
                    "adam, adamw, lamb: decay of the mean gradient")
           .used_by(adaptive),
       config::real("beta2", &OptimizerConfig::beta2, 0, 0.999999999,
                    "adam, adamw, lamb: decay of the mean square")
           .used_by(adaptive),
       config::real("epsilon", &OptimizerConfig::epsilon, 1e-30, 1, "adam, adamw, lamb").used_by(adaptive),
       config::real("weight_decay", &OptimizerConfig::weight_decay, 0, 10,
                    "decay of weights; not of biases and norms")
           .usually("adamw and lamb 0.01, else 0"),
       config::real("clip_norm", &OptimizerConfig::clip_norm, 0, 1e30,
                    "largest norm of the whole gradient; 0: no limit"),
       config::real("larc_trust", &OptimizerConfig::larc_trust, 0, 1e3,
                    "a layer's rate is at most this times the size of its weights over the size of its "
                    "gradient; 0: off")
           .usually("larc 0.02, else 0"),
       config::integer("lag", &OptimizerConfig::lag, 0, 1,
                       "1: a step's gradient is applied a step later, so that its sum over the ranks hides "
                       "behind the next step"),
       config::real("lars_trust", &OptimizerConfig::lars_trust, 0, 1e3,
                    "lars: a step's size over the size of the weights, at a rate of 1")
           .usually("0.1")
           .used_by(one_of(&OptimizerConfig::name, {OptimizerName::lars})),
       config::integer("reference_batch", &OptimizerConfig::reference_batch, 0, 1 << 24,
                       "the learning rate is for this batch and grows in proportion; 0: it does not")});
  return table;
}

const config::Table<PartConfig>& part_table() {
  static const config::Table<PartConfig> table(
      "a part",
      {config::boolean("freeze", &PartConfig::freeze, "its weights stay as they are"),
       config::text("init_from", &PartConfig::init_from,
                    "a checkpoint, or the folder of a training whose network has this part: the weights to "
                    "begin with")
           .usually("the weights that the training begins with")
           .unless_default(),
       config::real("rate", &PartConfig::rate, 0, 1e6, "factor on the learning rate"),
       config::custom<PartConfig>(
           "optimizer", config::any_of({config::choice_schema(kOptimizers), optimizer_table().schema()}),
           "an [optimizer](#optimizers) of its own, by name or as a [mapping](#keys-of-optimizer)",
           [](yaml::MapReader& reader, std::string_view key, PartConfig& part) {
             const yaml::Node* node = reader.find(key);
             if (node == nullptr) return;
             part.own_optimizer = true;
             optimizer_table().read(config::block_of(node, "name"), part.optimizer, reader.diagnostics());
           },
           [](const PartConfig& part) { return optimizer_table().write(part.optimizer); })
           .usually("that of the training")
           .emitted_if([](const PartConfig& part) { return part.own_optimizer; }),
       config::boolean("export", &PartConfig::save,
                       "write it as a model of its own too, model-PART.pt and model-PART.onnx")},
      [](yaml::MapReader& reader, PartConfig& part) {
        if (part.freeze && part.own_optimizer)
          reader.diagnostics().error(reader.mark_of("optimizer"),
                                     "a part that is frozen needs no 'optimizer': leave out one of them");
        if (part.own_optimizer && part.optimizer.lag > 0)
          reader.diagnostics().error(
              reader.mark_of("optimizer"),
              "'lag' is of the whole training: say it in 'optimizer' of the train: block");
      });
  return table;
}

void read_parts(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* parts = reader.find(key);
  if (parts == nullptr) return;
  if (!parts->is_map()) {
    reader.diagnostics().error(parts->mark,
                               fmt::format("'parts' is a mapping such as {{encoder: {{freeze: true}}}}, "
                                           "found {}",
                                           parts->describe()));
    return;
  }
  for (const auto& [name, block] : parts->entries) {
    PartConfig part;
    part.name = name.text;
    part_table().read(block, part, reader.diagnostics(), fmt::format("the part '{}'", name.text));
    config.parts.push_back(std::move(part));
  }
}

yaml::Node parts_node(const TrainConfig& config) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const PartConfig& part : config.parts) entries.emplace_back(part.name, part_table().write(part));
  return yaml::map(std::move(entries));
}

void check_schedule(yaml::MapReader& reader, ScheduleConfig& schedule) {
  if (schedule.decay == Decay::step && schedule.step_epochs.empty()) {
    reader.diagnostics().error(reader.mark_of("step_epochs"),
                               "decay: step needs 'step_epochs', a list such as [10, 15]");
  }
  const std::vector<std::int64_t>& epochs = schedule.batch_epochs;
  if (std::ranges::adjacent_find(epochs, std::ranges::greater_equal()) != epochs.end()) {
    reader.diagnostics().error(reader.mark_of("batch_epochs"), "'batch_epochs' must rise, as in [10, 20]");
  }
}

const config::Table<ScheduleConfig>& schedule_table() {
  static const config::Table<ScheduleConfig> table(
      "the schedule: block",
      {config::real("warmup_epochs", &ScheduleConfig::warmup_epochs, 0, 1e9,
                    "epochs in which the rate rises"),
       config::choice("decay", &ScheduleConfig::decay, kDecays, "how the rate falls"),
       config::real("final_factor", &ScheduleConfig::final_factor, 0, 1,
                    "the rate at the end over the learning rate; plateau: the least that it falls to")
           .used_by(one_of(&ScheduleConfig::decay, {Decay::cosine, Decay::linear, Decay::polynomial,
                                                    Decay::one_cycle, Decay::plateau})),
       config::real("power", &ScheduleConfig::power, 0.01, 100, "polynomial: its power")
           .used_by(one_of(&ScheduleConfig::decay, {Decay::polynomial})),
       config::reals("step_epochs", &ScheduleConfig::step_epochs, "step: the epochs at which the rate falls")
           .usually("")
           .used_by(one_of(&ScheduleConfig::decay, {Decay::step})),
       config::real("step_factor", &ScheduleConfig::step_factor, 0, 1,
                    "step, plateau: what the rate is multiplied with")
           .used_by(one_of(&ScheduleConfig::decay, {Decay::step, Decay::plateau})),
       config::real("rise", &ScheduleConfig::rise, 0, 1, "one_cycle: part of the run in which the rate rises")
           .used_by(one_of(&ScheduleConfig::decay, {Decay::one_cycle})),
       config::integer("plateau_epochs", &ScheduleConfig::plateau_epochs, 1, kMany,
                       "plateau: epochs without a better validation after which the rate falls")
           .only_if_set()
           .used_by(one_of(&ScheduleConfig::decay, {Decay::plateau})),
       config::integers("batch_epochs", &ScheduleConfig::batch_epochs, 1, kMany,
                        "the epochs after which [the batch grows](#a-batch-that-grows)")
           .usually("none")
           .only_if_set(),
       config::integer("batch_factor", &ScheduleConfig::batch_factor, 2, 1024,
                       "what the batch is multiplied with after each of them")
           .only_if_set()
           .used_by({[](const ScheduleConfig& schedule) { return !schedule.batch_epochs.empty(); },
                     "schedules with 'batch_epochs'"})},
      check_schedule);
  return table;
}

const config::Table<CheckpointConfig>& checkpoint_table() {
  static const config::Table<CheckpointConfig> table(
      "the checkpoint: block",
      {config::integer("every_epochs", &CheckpointConfig::every_epochs, 0, kMany, "0: never by epoch"),
       config::integer("every_steps", &CheckpointConfig::every_steps, 0, kMany, "0: never by step"),
       config::seconds("every_seconds", &CheckpointConfig::every_seconds, "0: never by time"),
       config::integer("keep_last", &CheckpointConfig::keep_last, 1, 1000, "newest checkpoints kept")
           .formerly("keep"),
       config::integer("keep_best", &CheckpointConfig::keep_best, 0, 1000,
                       "kept besides: those after the epochs with the best validation")});
  return table;
}

const config::Table<GradientConfig>& gradient_table() {
  static const config::Table<GradientConfig> table(
      "the gradients: block", {config::choice("wire", &GradientConfig::wire, kWireFormats,
                                              "between nodes: whole floats (`full`), or bfloat16 (`half`)")});
  return table;
}

// The numbers of integers(), or a word.
config::Key<GridConfig> space_key() {
  config::Key<GridConfig> key =
      config::integers("space", &GridConfig::space, 1, 1 << 16,
                       "parts of each sample along depth, height and width, such as `[2, 2, 1]`; their "
                       "number, along the input's longest axis; `auto`, the fastest parts, or `fit`, the "
                       "fewest that fit in `memory`");
  key.schema = config::any_of({config::choice_schema(std::array<std::string, 2>{"auto", "fit"}), key.schema});
  key.read = [numbers = key.read](yaml::MapReader& reader, std::string_view name, GridConfig& grid) {
    const yaml::Node* node = reader.find(name);
    const std::string word = node != nullptr && node->is_scalar() ? node->text : "";
    if (word == "auto" || word == "fit") {
      grid.choice = word == "auto" ? GridChoice::fastest : GridChoice::fit;
    } else {
      numbers(reader, name, grid);
    }
  };
  key.write = [numbers = key.write](const GridConfig& grid) -> std::optional<yaml::Node> {
    if (grid.choice == GridChoice::given) return numbers(grid);
    return yaml::scalar(grid.choice == GridChoice::fastest ? "auto" : "fit");
  };
  return key;
}

const config::Table<GridConfig>& grid_table() {
  static const config::Table<GridConfig> table(
      "the grid: block",
      {space_key().usually("each rank has whole samples").then([](yaml::MapReader& reader, GridConfig& grid) {
        if (grid.space.empty() || grid.space.size() == 1 || grid.space.size() == 3) return;
        reader.diagnostics().error(reader.mark_of("space"),
                                   fmt::format("'space' has {} numbers: write the parts along depth, "
                                               "height and width, such as [2, 2, 1], or their number",
                                               grid.space.size()));
        grid.space.clear();
      })});
  return table;
}

const config::Table<SampleCuts>& cuts_table() {
  static const config::Table<SampleCuts> table(
      "the deterministic: block",
      {config::integers("parts", &SampleCuts::parts, 1, 1 << 16,
                        "the parts of each sample along depth, height and width, such as `[8, 1, 1]`, which "
                        "`grid` must divide")
           .usually("8 of one axis, 4 x 2 of two, 4 x 2 x 2 of three")
           .then([](yaml::MapReader& reader, SampleCuts& cuts) {
             if (cuts.parts.empty() || cuts.parts.size() == 3) return;
             reader.diagnostics().error(
                 reader.mark_of("parts"),
                 fmt::format("'parts' has {} numbers: write the parts along depth, height and width, such as "
                             "[4, 2, 2]",
                             cuts.parts.size()));
             cuts.parts.clear();
           })});
  return table;
}

// `true`, `false`, `grid`, or a mapping.
void read_deterministic(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  config.cuts.on = !node->is_scalar() || node->text == "grid";
  if (!node->is_scalar()) {
    cuts_table().read(*node, config.cuts, reader.diagnostics());
  } else if (!config.cuts.on) {
    config.deterministic = yaml::as_boolean(*node, key, reader.diagnostics()).value_or(true);
  }
}

yaml::Node deterministic_node(const TrainConfig& config) {
  if (!config.cuts.on) return config::emit_boolean(config.deterministic);
  if (config.cuts.parts.empty()) return yaml::scalar("grid");
  return cuts_table().write(config.cuts);
}

const config::Table<GuardConfig>& guard_table() {
  static const config::Table<GuardConfig> table(
      "the guard: block",
      {config::real("deviations", &GuardConfig::deviations, 1, 1e9,
                    "a loss so many mean deviations above its mean is examined"),
       config::integer("agree_every", &GuardConfig::agree_every, 0, kMany,
                       "steps after which the ranks compare their states; 0: never"),
       config::integer("rollbacks", &GuardConfig::rollbacks, 0, 1'000'000, "more of them end the run")});
  return table;
}

void read_guard(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* node = reader.find(key);
  if (node != nullptr && node->is_scalar()) {
    config.guard.on = yaml::as_boolean(*node, key, reader.diagnostics()).value_or(true);
  } else if (node != nullptr) {
    guard_table().read(*node, config.guard, reader.diagnostics());
  }
}

// A search uses the schedule of a full training, which ends with the last rung.
void read_epochs(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  SearchConfig& search = config.search;
  if (const yaml::Node* block = reader.find("search")) search = read_search(*block, reader.diagnostics());
  const std::int64_t last = search.on() ? search.rungs.back() : config.epochs;
  config.epochs = reader.integer(key, last, 1, kMostEpochs);
  if (search.on() && config.epochs != last) {
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'epochs' is {} and the last of the rungs {}; leave out 'epochs'", config.epochs, last));
  }
}

yaml::Node stage_node(const TrainConfig& config) {
  if (config.stage_subset == 0 && config.stage_folder.empty()) return yaml::scalar(name_of(config.stage));
  std::vector<std::pair<std::string, yaml::Node>> entries;
  if (config.stage_subset > 0) entries.emplace_back("subset", config::emit_integer(config.stage_subset));
  if (!config.stage_folder.empty()) entries.emplace_back("local", yaml::quoted(config.stage_folder));
  return yaml::map(std::move(entries));
}

yaml::Node transform_node(const TrainConfig& config) {
  if (config.transform.name != TransformName::log) return yaml::scalar(name_of(config.transform.name));
  return yaml::map({{"log", config::emit_real(config.transform.offset)}});
}

yaml::Node augment_node(const TrainConfig& config) {
  std::vector<yaml::Node> augment;
  if (config.augment.shift) augment.push_back(yaml::scalar("shift"));
  if (config.augment.flip) augment.push_back(yaml::scalar("flip"));
  if (config.augment.permute) augment.push_back(yaml::scalar("permute"));
  if (config.augment.noise > 0)
    augment.push_back(yaml::map({{"noise", config::emit_real(config.augment.noise)}}));
  return yaml::sequence(std::move(augment));
}

// The schema of a mapping with this key alone.
config::Json single_key_schema(const char* key, config::Json value) {
  return {{"type", "object"},
          {"properties", {{key, std::move(value)}}},
          {"required", {key}},
          {"additionalProperties", false}};
}

config::Json described(config::Json schema, const char* description) {
  schema["description"] = description;
  return schema;
}

config::Json stage_schema() {
  const config::Json folder = {{"description", "folder on a disk of each node"}, {"type", "string"}};
  config::Json subset = single_key_schema(
      "subset", described(config::integer_schema(1, kMostStaged), "training samples that each rank draws"));
  subset["properties"]["local"] = folder;
  return config::any_of({config::choice_schema(kStages), single_key_schema("local", folder), subset});
}

config::Json transform_schema() {
  return config::any_of(
      {config::choice_schema(kTransforms),
       single_key_schema("log", described(config::number_schema(1e-30, 1e30), "x -> log(x + offset)")),
       {{"type", "null"}}});
}

config::Json augment_schema() {
  const config::Json noise = single_key_schema(
      "noise",
      described(config::number_schema(0, 100), "added to input fields, in deviations of each channel"));
  const config::Json item = {{"anyOf", {{{"enum", {"shift", "flip", "permute"}}}, noise}}};
  return config::any_of(
      {{{"enum", {"shift", "flip", "permute", "none", false}}}, noise, {{"type", "array"}, {"items", item}}});
}

bool is_plain_name(const std::string& name) {
  const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && std::ranges::all_of(name, fits) &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0;
}

void read_metrics(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const yaml::Node* metrics = reader.find(key);
  if (metrics == nullptr) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (!metrics->is_map()) {
    diagnostics.error(metrics->mark, fmt::format("'metrics' is a mapping of names to formulas, such as "
                                                 "{{relative_error: \"abs(prediction - target) / target\"}}, "
                                                 "found {}",
                                                 metrics->describe()));
    return;
  }
  for (const auto& [name, formula] : metrics->entries) {
    if (!is_plain_name(name.text) || name.text.starts_with("within_") || name.text.starts_with("below_"))
      diagnostics.error(name.mark, fmt::format("the metric's name '{}' must be of letters, digits and '_', "
                                               "and must not begin with within_ or below_",
                                               name.text));
    if (metric_named(name.text))
      diagnostics.error(name.mark, fmt::format("'{}' is a metric of wflow: choose another name", name.text));
    if (!formula.is_scalar() || formula.text.empty()) {
      diagnostics.error(formula.mark, fmt::format("the metric '{}' is a formula, such as "
                                                  "\"abs(prediction - target) / target\"; found {}",
                                                  name.text, formula.describe()));
      continue;
    }
    if (is_module_file(formula)) {
      config.metrics.push_back({name.text, {}, formula.text});
      continue;
    }
    try {
      target_formula(formula.text, "metric");
    } catch (const ExpressionError& error) {
      diagnostics.error(formula.mark, fmt::format("the metric '{}', character {}: {}", name.text,
                                                  error.offset + 1, error.what()));
    }
    config.metrics.push_back({name.text, formula.text, {}});
  }
}

yaml::Node metrics_node(const TrainConfig& config) {
  std::vector<std::pair<std::string, yaml::Node>> entries;
  for (const MetricConfig& metric : config.metrics)
    entries.emplace_back(metric.name, yaml::scalar(metric.file.empty() ? metric.formula : metric.file));
  return yaml::map(std::move(entries));
}

// Only numbers have metrics of the user.
void check_metrics(yaml::MapReader& reader, const TrainConfig& config) {
  const std::vector<HeadConfig> heads = heads_of(config);
  const auto is_number = [](const HeadConfig& head) {
    return kind_of(head.loss.name) == TargetKind::numbers;
  };
  if (config.metrics.empty() || std::ranges::any_of(heads, is_number)) return;
  reader.diagnostics().error(
      reader.mark_of("metrics"),
      fmt::format("'metrics' are formulas of numbers, and the loss {} learns {}: leave 'metrics' out",
                  name_of(heads.front().loss.name), name_of(kind_of(heads.front().loss.name))));
}

void read_metric(yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
  const std::string text = reader.string(key, config.metric.text());
  std::vector<std::string> names;
  for (const MetricConfig& own : config.metrics) names.push_back(own.name);
  if (const yaml::Node* search = reader.find("search"))
    check_search_metric(*search, config.search, names, reader.diagnostics());
  if (const auto metric = metric_named(text)) {
    config.metric = *metric;
    return;
  }
  if (const auto metric = own_metric_named(text, names)) {
    config.metric = *metric;
    return;
  }
  const std::vector<std::string> known = metric_names();
  names.insert(names.begin(), known.begin(), known.end());
  reader.diagnostics().error(
      reader.mark_of(key),
      fmt::format("'metric' must be one of {} (N: the number of a class), or one of them with "
                  "/TARGET; found '{}'{}",
                  text::join(names, ", "), text, text::suggestion(text, names)));
}

void check_metric(yaml::MapReader& reader, const TrainConfig& config) {
  if (!config.heads.empty()) return;  // once the data are known
  const TargetKind kind = kind_of(config.loss.name);
  if (config.metric.is_of(kind)) return;
  constexpr std::array<const char*, 3> kExamples = {"r2", "mean_iou or accuracy", "map"};
  reader.diagnostics().error(
      reader.mark_of("metric"),
      fmt::format("'metric: {}' is for {}, and the loss {} learns {}; choose a metric such as {}, or another "
                  "loss",
                  config.metric.text(), config.metric.kinds(), name_of(config.loss.name), name_of(kind),
                  kExamples[static_cast<std::size_t>(kind)]));
}

// Keys that a detection does not go together with.
void check_detection(yaml::MapReader& reader, const TrainConfig& config) {
  const std::vector<HeadConfig> heads = heads_of(config);
  const auto detects = [](const HeadConfig& head) { return head.loss.name == LossName::detection; };
  if (std::ranges::none_of(heads, detects)) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  if (config.augment.flip || config.augment.permute)
    diagnostics.error(reader.mark_of("augment"),
                      "'flip' and 'permute' move the cells of a field and leave the boxes of a detection in "
                      "them as they are: leave them out");
  if (config.model.tanh_output)
    diagnostics.error(
        reader.mark_of("model"),
        "'tanh_output' limits the outputs, which are logarithms for the loss detection: leave it "
        "out");
  if (config.members > 1)
    diagnostics.error(
        reader.mark_of("members"),
        "'members' combine means of predictions, and boxes of several networks have none: leave "
        "'members' out");
}

bool has_one_head(const TrainConfig& config) {
  return config.heads.empty();
}

// Each head of a list of layers needs its layer.
void check_heads(yaml::MapReader& reader, const TrainConfig& config) {
  if (config.heads.empty()) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const auto has_no_targets = [](const HeadConfig& head) { return head.constant || !head.like.empty(); };
  if (const auto head = std::ranges::find_if(config.heads, has_no_targets);
      config.members > 1 && head != config.heads.end())
    diagnostics.error(
        reader.mark_of("members"),
        fmt::format("'members' combine predictions of targets, and the head '{}' has none: leave "
                    "out one of them",
                    head->name));
  if (config.model.name == ModelName::module)
    diagnostics.error(reader.mark_of("model"), "a TorchScript module gives one output: leave out 'heads'");
  for (const HeadConfig& head : config.heads) {
    if (is_listed(config.model) || !has_no_targets(head)) continue;
    diagnostics.error(
        reader.mark_of("heads"),
        fmt::format("the head '{}' has no targets, which needs a list of layers as the model", head.name));
  }
  if (!is_listed(config.model)) return;
  std::vector<std::string> names;
  for (const LayerConfig& layer : config.model.layers) names.push_back(layer.name);
  for (const HeadConfig& head : config.heads) {
    const std::string& layer = head.output.empty() ? head.name : head.output;
    if (std::find(names.begin(), names.end(), layer) != names.end()) continue;
    diagnostics.error(reader.mark_of("heads"),
                      fmt::format("the head '{}' needs the layer '{}', and the model has none: give a layer "
                                  "this name, or name one in 'output'{}",
                                  head.name, layer, text::suggestion(layer, names)));
  }
}

// A network that stands for lists of its own.
void check_composed(yaml::MapReader& reader, const TrainConfig& config) {
  const ModelName name = config.model.name;
  const bool composed = name == ModelName::gan || name == ModelName::wae || name == ModelName::cycle ||
                        name == ModelName::inference;
  if (!composed && name != ModelName::semi_supervised) return;
  for (const char* key : {"heads", "alternate", "random_inputs", "members"}) {
    if (!reader.has(key)) continue;
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format(
            "the network {} has heads, updates and random inputs of its own: leave out '{}', or write "
            "the layers out (train.yaml of a run of {} has them)",
            name_of(name), key, name_of(name)));
  }
  if (!composed) return;
  if (name != ModelName::cycle && !config.targets.empty())
    reader.diagnostics().warning(
        reader.mark_of("targets"),
        fmt::format("'targets' has no effect: the network {} learns from its inputs alone; remove it",
                    name_of(name)));
  if (config.loss.name != LossName::mse && !compares_scores(config.loss.name))
    reader.diagnostics().warning(
        reader.mark_of("loss"),
        fmt::format("the loss {} has no effect: the network {} has losses of its own; remove it",
                    name_of(config.loss.name), name_of(name)));
}

void check_alternate(yaml::MapReader& reader, const TrainConfig& config) {
  if (config.alternate.empty()) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const yaml::Mark mark = reader.mark_of("alternate");
  std::vector<std::string> heads;
  for (const HeadConfig& head : config.heads) heads.push_back(head.name);
  std::vector<std::string> parts;
  for (const LayerConfig& layer : config.model.layers)
    if (!layer.part.empty()) parts.push_back(layer.part);
  for (const AlternateConfig& entry : config.alternate) {
    for (const std::string& name : entry.heads) {
      if (std::find(heads.begin(), heads.end(), name) != heads.end()) continue;
      diagnostics.error(mark, fmt::format("'alternate' names '{}', which is no head{}", name,
                                          text::suggestion(name, heads)));
    }
    for (const std::string& name : entry.learn) {
      if (!is_listed(config.model) || std::find(parts.begin(), parts.end(), name) != parts.end()) continue;
      diagnostics.error(mark, fmt::format("'alternate' names '{}', which is no part of the network{}", name,
                                          text::suggestion(name, parts)));
    }
  }
  if (config.optimizer.lag > 0)
    diagnostics.error(
        reader.mark_of("optimizer"),
        "'lag: 1' applies gradients a step later, and 'alternate' makes several updates a step: "
        "leave out one of them");
  if (config.noise_scale_every > 0)
    diagnostics.error(reader.mark_of("noise_scale"),
                      "'noise_scale' is of one loss, and 'alternate' has several: leave out one of them");
}

// Keys of the schedule against keys of the training.
void check_run_schedule(yaml::MapReader& reader, const TrainConfig& config) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const ScheduleConfig& schedule = config.schedule;
  const yaml::Node* block = reader.find("schedule");
  const auto mark_of = [&](const char* key) {
    const yaml::Node* node = block == nullptr ? nullptr : block->find(key);
    return node == nullptr ? reader.mark_of("schedule") : node->mark;
  };
  if (schedule.warmup_epochs >= static_cast<double>(config.epochs) && schedule.warmup_epochs > 0) {
    diagnostics.error(mark_of("warmup_epochs"),
                      fmt::format("'warmup_epochs' must be less than epochs ({})", config.epochs));
  }
  if (!schedule.batch_epochs.empty() && schedule.batch_epochs.back() >= config.epochs) {
    diagnostics.error(mark_of("batch_epochs"),
                      fmt::format("'batch_epochs' must be less than epochs ({})", config.epochs));
  }
  const std::int64_t stop = config.early_stop_epochs;
  if (schedule.decay == Decay::plateau && stop > 0 && stop <= schedule.plateau_epochs) {
    diagnostics.error(
        mark_of("plateau_epochs"),
        fmt::format("'early_stop' ({}) ends the training before the rate falls for the first time: it "
                    "must be more than 'plateau_epochs' ({})",
                    stop, schedule.plateau_epochs));
  }
  if (config.noise_scale_every > 0 && config.optimizer.lag > 0) {
    diagnostics.error(
        reader.mark_of("noise_scale"),
        "'noise_scale' compares gradients of one step, and 'lag: 1' applies those of the step before: "
        "leave out one of them");
  }
}

void check_grid(yaml::MapReader& reader, const TrainConfig& config) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const std::int64_t sharing = config.grid.ranks();
  if (config.ranks % sharing != 0) {
    diagnostics.error(reader.mark_of("grid"),
                      fmt::format("{} ranks share each sample, so that 'ranks' ({}) must be a multiple of {}",
                                  sharing, config.ranks, sharing));
  } else if (config.ranks / config.tournament.groups() / sharing > config.batch &&
             config.grid.choice == GridChoice::given) {
    diagnostics.error(
        reader.mark_of("ranks"),
        sharing == 1
            ? fmt::format(
                  "'ranks' ({}) must not be more than 'batch' ({}): a rank without samples would idle",
                  config.ranks, config.batch)
            : fmt::format("'ranks' ({}) are {} groups, and 'batch' has {} samples: a group without samples "
                          "would idle",
                          config.ranks, config.ranks / sharing, config.batch));
  }
  if (config.grid.choice == GridChoice::fit && config.memory == 0) {
    diagnostics.error(reader.mark_of("grid"),
                      "'grid: fit' takes the fewest ranks whose parts of a sample fit in 'memory': write the "
                      "bytes that a rank may use, such as 'memory: 3GiB'");
  }
  if (config.grid.space.empty() && config.grid.choice == GridChoice::given) return;
  const auto refuse = [&](const char* key, const char* reason) {
    diagnostics.error(
        reader.mark_of(key),
        fmt::format("'grid' and '{}' do not go together: {}; leave out one of them", key, reason));
  };
  if (!config.alternate.empty()) refuse("alternate", "ranks that share samples make one update a step");
  if (config.model.name == ModelName::gan || config.model.name == ModelName::wae)
    refuse("model", "gan and wae make several updates a step");
  if (config.noise_scale_every > 0) refuse("noise_scale", "a rank has the gradients of its cells only");
  if (config.precision != Precision::full) refuse("precision", "ranks that share samples compute in 32 bits");
  if (config.backend == Backend::onednn) refuse("backend", "ranks that share samples compute with libtorch");
  if (config.recompute == Recompute::tiles)
    refuse("recompute", "tiles cut whole samples, and ranks have parts of them: use 'recompute: blocks'");
}

// Each rank must be able to compute its samples by itself, and add them exactly.
void check_cuts(yaml::MapReader& reader, const TrainConfig& config) {
  if (!config.cuts.on) return;
  const auto refuse = [&](const char* key, const char* reason) {
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'deterministic: grid' and '{}' do not go together: {}; leave out one of them", key,
                    reason));
  };
  if (!config.alternate.empty()) refuse("alternate", "the gradients of one update a step are added exactly");
  if (config.model.name == ModelName::gan || config.model.name == ModelName::wae)
    refuse("model", "gan and wae make several updates a step");
  if (config.model.name == ModelName::module)
    refuse("model", "the layers of a TorchScript module are not known");
  if (config.optimizer.lag > 0) refuse("optimizer", "'lag: 1' sums gradients in floats");
  if (config.gradients.wire == WireFormat::half)
    refuse("gradients", "'wire: half' rounds what the nodes exchange");
  if (config.shard != Shard::none) refuse("shard", "exact sums need all gradients on every rank");
  if (config.accumulate > 1) refuse("accumulate", "each sample is a pass of its own");
  if (config.noise_scale_every > 0) refuse("noise_scale", "a step has no gradient of a part of its batch");
  if (config.precision != Precision::full) refuse("precision", "samples are computed in 32 bits");
  if (config.backend == Backend::onednn)
    refuse("backend", "parts of samples are computed with libtorch, too");
  if (config.recompute == Recompute::tiles)
    refuse("recompute", "samples are computed in the parts of one grid");
  if (config.tournament.on()) refuse("tournament", "the number of trainers changes the result");
  if (config.stage_subset > 0) refuse("stage", "the ranks draw samples of their own");
  if (config.memory > 0) refuse("memory", "the planner does not know the parts of samples");
  if (config.grid.choice != GridChoice::given)
    refuse("grid", "the planner does not know the parts of samples: write the grid");
}

std::optional<MetricName> judging_metric(const std::string& text, const TrainConfig& config) {
  if (const auto metric = metric_named(text)) return metric;
  std::vector<std::string> own;
  for (const MetricConfig& metric : config.metrics) own.push_back(metric.name);
  return own_metric_named(text, own);
}

// Where an error of a key of the block is shown.
yaml::Mark mark_in_block(yaml::MapReader& reader, const char* key) {
  const yaml::Node* block = reader.find("tournament");
  const yaml::Node* node = block == nullptr ? nullptr : block->find(key);
  return node == nullptr ? reader.mark_of("tournament") : node->mark;
}

void check_judging_metrics(yaml::MapReader& reader, const TrainConfig& config) {
  for (const std::string& text : config.tournament.metrics) {
    const std::optional<MetricName> metric = judging_metric(text, config);
    if (!metric) {
      std::vector<std::string> names = metric_names();
      for (const MetricConfig& own : config.metrics) names.push_back(own.name);
      reader.diagnostics().error(
          mark_in_block(reader, "metrics"),
          fmt::format(
              "'metrics' of a tournament are metrics in validation: {} (N: the number of a class), or "
              "one of them with /TARGET; found '{}'{}",
              text::join(names, ", "), text, text::suggestion(text, names)));
    } else if (config.heads.empty() && !metric->is_of(kind_of(config.loss.name))) {
      reader.diagnostics().error(
          mark_in_block(reader, "metrics"),
          fmt::format("'{}' is for {}, and the loss {} learns {}: choose another metric for the tournament",
                      text, metric->kinds(), name_of(config.loss.name), name_of(kind_of(config.loss.name))));
    }
  }
}

// Parts of a network by name are known once the data are.
void check_exchanged_parts(yaml::MapReader& reader, const TrainConfig& config) {
  if (config.model.name != ModelName::layers) return;
  std::vector<std::string> parts;
  for (const LayerConfig& layer : config.model.layers)
    if (!layer.part.empty()) parts.push_back(layer.part);
  for (const std::string& name : config.tournament.parts) {
    if (std::ranges::find(parts, name) != parts.end()) continue;
    reader.diagnostics().error(mark_in_block(reader, "exchange"),
                               fmt::format("'exchange' names '{}', which is no part of the network{}", name,
                                           text::suggestion(name, parts)));
  }
}

void check_tournament(yaml::MapReader& reader, const TrainConfig& config) {
  const TournamentConfig& tournament = config.tournament;
  if (!tournament.on()) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const std::int64_t ranks = tournament.groups() * config.grid.ranks();
  if (config.ranks % ranks != 0)
    diagnostics.error(
        mark_in_block(reader, "trainers"),
        config.grid.ranks() == 1
            ? fmt::format("'ranks' ({}) must be a multiple of 'trainers' ({}), which have as many ranks each",
                          config.ranks, tournament.trainers)
            : fmt::format("'ranks' ({}) must be a multiple of {}: {} trainers, and {} ranks that share each "
                          "sample",
                          config.ranks, ranks, tournament.trainers, config.grid.ranks()));
  const auto refuse = [&](const char* key, const char* reason) {
    diagnostics.error(
        reader.mark_of(key),
        fmt::format("'tournament' and '{}' do not go together: {}; leave out one of them", key, reason));
  };
  if (config.members > 1) refuse("members", "the trainers end with one model");
  if (config.folds > 1) refuse("folds", "each trainer has its own part of the samples");
  if (reader.has("search")) refuse("search", "a search ranks trainings that do not exchange models");
  if (config.early_stop_epochs > 0) refuse("early_stop", "all trainers come to every round");
  if (config.shard != Shard::none) refuse("shard", "the ranks of a trainer exchange whole models");
  if (config.stage != Stage::none) refuse("stage", "every trainer would copy all shards");
  if (config.grid.choice != GridChoice::given)
    refuse("grid", "the planner could choose another grid for each trainer: write the parts");
  if (config.optimizer.lag > 0)
    diagnostics.error(
        reader.mark_of("optimizer"),
        "'tournament' and 'lag: 1' do not go together: a gradient that is not applied yet is of "
        "the model before the round; leave out one of them");
  const auto has_decay = [&](const PartConfig& part) {
    return part.own_optimizer && part.optimizer.weight_decay > 0;
  };
  if (std::ranges::find(tournament.perturb, kPerturbedDecay, &PerturbConfig::key) !=
          tournament.perturb.end() &&
      config.optimizer.weight_decay == 0 && std::ranges::none_of(config.parts, has_decay))
    reader.diagnostics().error(mark_in_block(reader, "perturb"),
                               fmt::format("'perturb' multiplies {0}, which is 0: set {0}", kPerturbedDecay));
  if (tournament.trainers > 1 && tournament.every_epochs >= config.epochs)
    diagnostics.error(
        mark_in_block(reader, "every"),
        fmt::format("no round takes place: 'every' ({}) must be less than the {} epoch{} of the "
                    "training",
                    every_node(tournament).text, config.epochs, config.epochs == 1 ? "" : "s"));
  if (tournament.as == TournamentForm::tasks && !known_rounds(tournament, config.epochs))
    diagnostics.error(mark_in_block(reader, "every"),
                      "with 'as: tasks' the number of rounds must be known before there are data: write "
                      "'rounds', or an 'every' in epochs");
  const std::int64_t most =
      tournament.every_epochs > 0 ? (config.epochs - 1) / tournament.every_epochs : tournament.rounds;
  if (tournament.rounds > most)
    diagnostics.error(mark_in_block(reader, "rounds"),
                      fmt::format("'rounds' ({}) must be at most {}: training follows the last round",
                                  tournament.rounds, most));
  check_judging_metrics(reader, config);
  check_exchanged_parts(reader, config);
}

void check_groups(yaml::MapReader& reader, const TrainConfig& config) {
  const GroupsConfig& groups = config.groups;
  if (!groups.on()) return;
  const std::int64_t ranks = groups.count * config.grid.ranks();
  if (ranks > 0 && config.ranks % ranks != 0)
    reader.diagnostics().error(
        reader.mark_of("groups"),
        config.grid.ranks() == 1
            ? fmt::format("'ranks' ({}) must be a multiple of 'count' ({}) of 'groups', which have as many "
                          "ranks each",
                          config.ranks, groups.count)
            : fmt::format("'ranks' ({}) must be a multiple of {}: {} groups, and {} ranks that share each "
                          "sample",
                          config.ranks, ranks, groups.count, config.grid.ranks()));
  const auto refuse = [&](const char* key, const char* named, const char* reason) {
    reader.diagnostics().error(
        reader.mark_of(key),
        fmt::format("'groups' and '{}' do not go together: {}; leave out one of them", named, reason));
  };
  if (config.tournament.on()) refuse("tournament", "tournament", "a tournament has trainers of its own");
  if (config.shard != Shard::none) refuse("shard", "shard", "every group has weights of its own");
  if (config.optimizer.lag > 0)
    refuse("optimizer", "lag: 1",
           "a gradient that is not applied yet is of the weights before the outer step");
  if (config.noise_scale_every > 0)
    refuse("noise_scale", "noise_scale", "it compares gradients of all ranks");
  if (config.cuts.on)
    refuse("deterministic", "deterministic: grid", "the mean of the groups is not an exact sum");
  if (config.grid.choice != GridChoice::given)
    refuse("grid", "grid: auto", "the planner does not know the groups: write the parts");
}

// Refuses what does not go together with `stage: {subset: N}`.
void check_subset(yaml::MapReader& reader, const TrainConfig& config) {
  if (config.stage_subset == 0) return;
  const auto refuse = [&](const std::string& sentence) {
    reader.diagnostics().error(reader.mark_of("stage"), sentence);
  };
  if (config.grid.ranks() > 1 || config.grid.choice != GridChoice::given)
    refuse(
        "'stage: {subset: N}' gives each rank samples of its own, and with 'grid' several ranks share a "
        "sample: leave out one of them");
  if (!config.batch_by.empty())
    refuse(
        "'batch_by' orders the samples of the whole data set, and with 'stage: {subset: N}' each rank has "
        "its own: leave out one of them");
  if (config.memory > 0)
    refuse(
        "'memory' leaves the rest to a cache, and 'stage: {subset: N}' keeps samples beside it: leave out "
        "one "
        "of them");
  if (const std::string why = subset_refusal(config, config.ranks); !why.empty()) refuse(why);
}

// Stages are one training of one network.
void check_follow(yaml::MapReader& reader, const TrainConfig& config) {
  const auto refuse = [&](const char* key, const std::string& sentence) {
    reader.diagnostics().error(reader.mark_of(key), sentence);
  };
  if (config.until.on && !config.follow.on())
    refuse("until",
           "'until' needs 'follow: true': without it, the training begins when all samples are there");
  if (!config.follow.on()) return;
  const auto refuse_with = [&](const char* key, const char* reason) {
    refuse("follow",
           fmt::format("'follow' and '{}' do not go together: {}; leave out one of them", key, reason));
  };
  if (config.search.on()) refuse_with("search", "a search ranks several trainings");
  if (config.tournament.on()) refuse_with("tournament", "a tournament has several trainers");
  if (config.members > 1) refuse_with("members", "the members are trained one behind the other");
  if (config.stage_subset > 0) refuse_with("stage: {subset: N}", "each stage would draw other subsets");
  if (config.init_from == kInitFromLast)
    refuse_with("init_from: last", "the first stage begins the training");
}

// Keys that contradict each other.
void check_train(yaml::MapReader& reader, TrainConfig& config) {
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  check_metric(reader, config);
  check_run_schedule(reader, config);
  const auto predicts_quantiles = [](const HeadConfig& head) { return head.loss.name == LossName::quantile; };
  if (config.members > 1 && std::ranges::any_of(heads_of(config), predicts_quantiles)) {
    diagnostics.error(
        reader.mark_of("members"),
        "'members' combine means and deviations, which the loss quantile does not predict; choose the "
        "loss gaussian, or leave 'members' out");
  }
  if (config.init_from == kInitFromLast && reader.find("search") != nullptr)
    diagnostics.error(reader.mark_of("init_from"),
                      "'init_from: last' goes on with one model, and 'search' "
                      "begins several; leave out one of them");
  if (config.augment.noise > 0 && !config.normalise) {
    diagnostics.error(
        reader.mark_of("augment"),
        "the noise of 'augment' is in deviations of normalised fields, and 'normalise' is false");
  }
  if (config.members > 1 && reader.has("search")) {
    diagnostics.error(
        reader.mark_of("members"),
        "'members' and 'search' do not go together: search with one member, then train the best "
        "settings with 'members'");
  }
  if (config.seed >
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - config.members + 1)) {
    diagnostics.error(reader.mark_of("seed"),
                      "'seed' is too large: member K has the seed 'seed' + K - 1, which must be below 2^63");
  }
  check_heads(reader, config);
  check_alternate(reader, config);
  check_composed(reader, config);
  const bool adversarial = config.model.name == ModelName::gan || config.model.name == ModelName::wae;
  if (config.shard != Shard::none && (adversarial || !config.alternate.empty()))
    diagnostics.error(reader.mark_of("shard"),
                      fmt::format("'shard' and {} do not go together: leave out one of them",
                                  adversarial ? "a model of several updates" : "'alternate'"));
  if (compares_scores(config.loss.name) && !adversarial)
    diagnostics.error(
        reader.mark_of("loss"),
        fmt::format("the loss {} compares a score with a constant: say it in a head with 'constant'",
                    name_of(config.loss.name)));
  check_detection(reader, config);
  check_metrics(reader, config);
  check_grid(reader, config);
  check_cuts(reader, config);
  check_tournament(reader, config);
  check_groups(reader, config);
  check_subset(reader, config);
  check_follow(reader, config);
}

// A block that has needed keys, and that may be absent.
config::Key<TrainConfig> if_present(config::Key<TrainConfig> key) {
  key.read = [read = std::move(key.read)](yaml::MapReader& reader, std::string_view name,
                                          TrainConfig& config) {
    if (reader.has(name)) read(reader, name, config);
  };
  return std::move(key).usually("none").only_if_set();
}

config::Key<TrainConfig> tournament_key() {
  return if_present(
      config::block("tournament", &TrainConfig::tournament, tournament_table(),
                    "[several trainers](tournaments.md) that train by themselves and take over better models "
                    "of each other: their number, or a mapping",
                    "trainers"));
}

yaml::Node follow_node(const TrainConfig& config) {
  return config.follow.on() ? follow_table().write(config.follow) : yaml::scalar("false");
}

config::Key<TrainConfig> follow_key() {
  return config::custom<TrainConfig>(
             "follow", config::any_of({config::boolean_schema(), follow_table().schema()}),
             "[begin while the samples are still simulated](#training-while-simulations-run): `true`, or a "
             "[mapping](#keys-of-follow)",
             [](yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
               if (const yaml::Node* node = reader.find(key))
                 config.follow = read_follow(*node, reader.diagnostics());
             },
             follow_node)
      .usually("`false`")
      .unless_default();
}

config::Key<TrainConfig> until_key() {
  return config::custom<TrainConfig>(
             "until", {{"type", "string"}},
             "with `follow`: the goal, a metric in validation and a number, as `validation_error < 0.05` "
             "(`validation_error` is `mae_ratio`). A stage that reaches it ends the simulations that have "
             "not "
             "begun",
             [](yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
               if (const yaml::Node* node = reader.find(key))
                 config.until = read_goal(*node, reader.diagnostics());
             },
             [](const TrainConfig& config) { return yaml::quoted(config.until.text()); })
      .usually("none")
      .emitted_if([](const TrainConfig& config) { return config.until.on; })
      .only_if_set();
}

config::Key<TrainConfig> groups_key() {
  return if_present(config::block("groups", &TrainConfig::groups, groups_table(),
                                  "[groups of ranks](groups.md) that make steps by themselves and take the "
                                  "mean of their weights now and then: a mapping"));
}

config::Key<TrainConfig> heads_key() {
  return config::custom<TrainConfig>(
             "heads", {{"type", "array"}, {"items", head_table().schema()}, {"minItems", 1}},
             "[several outputs](#several-heads), each with its own targets, loss and weight, in place of "
             "`targets` and `loss`",
             read_heads,
             [](const TrainConfig& config) {
               std::vector<yaml::Node> heads;
               for (const HeadConfig& head : config.heads) heads.push_back(head_table().write(head));
               return yaml::sequence(std::move(heads));
             })
      .usually("one, of `targets` and `loss`")
      .only_if_set();
}

config::Key<TrainConfig> alternate_key() {
  return config::custom<TrainConfig>(
             "alternate", {{"type", "array"}, {"items", alternate_table().schema()}, {"minItems", 1}},
             "[several updates a step](#alternating-updates), each with losses and parts of its own",
             read_alternate,
             [](const TrainConfig& config) {
               std::vector<yaml::Node> entries;
               for (const AlternateConfig& entry : config.alternate)
                 entries.push_back(alternate_table().write(entry));
               return yaml::sequence(std::move(entries));
             })
      .usually("one, with the losses of all heads")
      .only_if_set();
}

// `grid: 4` and `grid: [2, 2, 1]` are `grid: {space: ...}`.
config::Key<TrainConfig> grid_key() {
  config::Key<TrainConfig> key =
      config::block("grid", &TrainConfig::grid, grid_table(),
                    "ranks that [share each sample](#ranks-that-share-a-sample): the parts of a sample, or a "
                    "[mapping](#keys-of-grid)",
                    "space")
          .usually("none")
          .only_if_set();
  key.read = [](yaml::MapReader& reader, std::string_view name, TrainConfig& config) {
    const yaml::Node* node = reader.find(name);
    yaml::Node block = config::block_of(node, "space");
    if (block.is_sequence()) block = yaml::map({{"space", block}});
    if (node != nullptr) block.mark = node->mark;
    grid_table().read(block, config.grid, reader.diagnostics());
  };
  return key;
}

config::Key<TrainConfig> random_inputs_key() {
  return config::custom<TrainConfig>(
             "random_inputs",
             {{"type", "object"}, {"additionalProperties", config::integer_schema(1, 1 << 20)}},
             "inputs that are drawn from a normal distribution, with their numbers of values, such as `{z: "
             "16}`: new ones for each sample and step, as a function of `seed`",
             read_random_inputs, random_inputs_node)
      .usually("none")
      .only_if_set();
}

config::Key<TrainConfig> parts_key() {
  return config::custom<TrainConfig>(
             "parts", {{"type", "object"}, {"additionalProperties", part_table().schema()}},
             "[parts](#parts) of the network by name: frozen, begun from another training, or with a rate or "
             "an optimizer of their own",
             read_parts, parts_node)
      .usually("none")
      .only_if_set();
}

config::Key<TrainConfig> memory_key() {
  return config::bytes("memory", &TrainConfig::memory,
                       "bytes that a rank may use, such as `3GiB`: a training that needs more is refused "
                       "before it starts, and `grid: fit` chooses by it")
      .usually("any number")
      .only_if_set();
}

config::Key<TrainConfig> stage_key() {
  return config::custom<TrainConfig>("stage", stage_schema(),
                                     "where shards are read from: `none` (where they lie), `memory` or "
                                     "`local` (a copy spread over the nodes, "
                                     "[Staging](#staging)), `{local: FOLDER}`; `{subset: N}`: each rank "
                                     "draws N training samples and keeps them "
                                     "([Subsets](#subsets))",
                                     read_stage, stage_node);
}

config::Key<TrainConfig> exclude_slow_key() {
  return config::real(
             "exclude_slow", &TrainConfig::exclude_slow, 0, 1000,
             "in a campaign: starts the training again without a node that takes so many times as long "
             "as the others, such as 1.5 ([slow nodes](#slow-nodes)). 0: only names it")
      .only_if_set()
      .then([](yaml::MapReader& reader, TrainConfig& config) {
        if (config.exclude_slow > 0 && config.exclude_slow < kSlowNode)
          reader.diagnostics().error(
              reader.mark_of("exclude_slow"),
              fmt::format(
                  "'exclude_slow' is {:g}: a node counts as slow from {:g} times the others' time on; "
                  "say that or more",
                  config.exclude_slow, kSlowNode));
      });
}

config::Key<TrainConfig> folds_key() {
  return config::integer(
             "folds", &TrainConfig::folds, 1, 1000,
             "above 1: cross-validation. The training samples are divided into so many parts, by `seed` and "
             "their numbers; one is left out, and is the test split. `wflow analyze --folds` trains without "
             "each ([analyze.md](analyze.md#errors-by-cross-validation))")
      .unless_default();
}

config::Key<TrainConfig> fold_key() {
  return config::integer("fold", &TrainConfig::fold, 1, 1000, "with `folds`: the part that is left out")
      .unless_default()
      .then([](yaml::MapReader& reader, TrainConfig& config) {
        if (config.fold > config.folds)
          reader.diagnostics().error(
              reader.mark_of("fold"),
              fmt::format("'fold' is {}, and there are {} ('folds')", config.fold, config.folds));
      });
}

const config::Table<TrainConfig>& train_table() {
  static const config::Table<TrainConfig> table(
      "the train: block",
      {config::text("data", &TrainConfig::data,
                    "folder of a data set (a path with a `/`); in a campaign the name of a `convert:` step")
           .required(),
       config::text("output", &TrainConfig::output, "folder for all results"),
       config::texts("inputs", &TrainConfig::inputs,
                     "what the network reads: [fields and labels](#fields-and-labels)")
           .usually("all inputs"),
       config::texts("targets", &TrainConfig::targets, "what it learns: labels, or fields of one grid")
           .usually("all targets")
           .emitted_if(has_one_head),
       random_inputs_key(),
       config::integer("seed", &TrainConfig::seed, 0, std::numeric_limits<std::int64_t>::max(),
                       "seed of weights, order, augmentation, dropout"),
       config::integer("members", &TrainConfig::members, 1, 100,
                       "networks of an [ensemble of seeds](#ensembles-of-seeds): their mean predicts, and "
                       "their spread says "
                       "how sure it is")
           .only_if_set(),
       folds_key(),
       fold_key(),
       config::custom<TrainConfig>(
           "init_from", {{"type", "string"}},
           "weights to begin with: `last`, where the data have changed, those of this training's last model; "
           "or a "
           "checkpoint, or the folder of a training ([growing.md](growing.md#training-on))",
           [](yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
             config.init_from = reader.string(key);
             if (config.init_from == "none") config.init_from.clear();
           },
           [](const TrainConfig& config) { return yaml::quoted(config.init_from); })
           .usually("`none`: random")
           .only_if_set(),
       config::custom<TrainConfig>(
           "epochs", config::integer_schema(1, kMostEpochs), "passes over the training samples", read_epochs,
           [](const TrainConfig& config) { return config::emit_integer(config.epochs); }),
       config::integer("batch", &TrainConfig::batch, 1, 1 << 24, "samples a step, over all ranks"),
       config::texts(
           "batch_by", &TrainConfig::batch_by,
           "makes batches of samples that are alike: keys of an order, the first decides. A key is a "
           "label or input of one number, or `length` (of the ragged field). Runs of neighbours in "
           "this order come together, and the runs are shuffled. Sort the data set by the same keys "
           "with `wflow shards sort`, so that a run is also a range of a shard")
           .unless_default(),
       config::integer("batch_run", &TrainConfig::batch_run, 0, 1 << 24,
                       "with `batch_by`: samples of a run. `batch` divided by the number of ranks gives each "
                       "rank one run of each batch")
           .usually("`batch`")
           .unless_default()
           .then([](yaml::MapReader& reader, TrainConfig& config) {
             if (config.batch_run > 0 && config.batch_by.empty())
               reader.diagnostics().error(
                   reader.mark_of("batch_run"),
                   "'batch_run' needs 'batch_by', the order whose neighbours make a run");
           }),
       config::integer("accumulate", &TrainConfig::accumulate, 1, 1 << 20,
                       "passes that a rank makes over its part of a batch: more need less memory"),
       config::integer(
           "ranks", &TrainConfig::ranks, 1, 1 << 20,
           "MPI processes, for the launcher. A world of one where more were asked for is an error, and so "
           "is, in a "
           "campaign, any world that does not have `WFLOW_WORLD_SIZE` ranks (code 5; `--allow-any-ranks`)"),
       grid_key(),
       memory_key(),
       read_elsewhere<TrainConfig>(
           "nodes", config::integer_schema(1, 1 << 20),
           "in a campaign whose workers run in allocations: the nodes that the ranks spread over "
           "([cluster.md](cluster.md))")
           .usually("1")
           .then([](yaml::MapReader& reader, TrainConfig&) { reader.integer("nodes", 1, 1, 1 << 20); }),
       read_elsewhere<TrainConfig>(
           "min_nodes", config::integer_schema(1, 1 << 20),
           "so many nodes are enough where there are no more: with fewer ranks, from the last "
           "checkpoint")
           .usually("`nodes`")
           .then([](yaml::MapReader& reader, TrainConfig&) { reader.integer("min_nodes", 1, 1, 1 << 20); }),
       config::integer("threads", &TrainConfig::threads, 1, 4096,
                       "threads of a rank, for computing. The last bits of the results depend on it"),
       config::integer("loader_threads", &TrainConfig::loader_threads, 1, 256,
                       "threads of a rank, for reading and augmenting"),
       config::bytes("cache", &TrainConfig::cache_bytes,
                     "bytes of samples a rank keeps: decoded, or compressed where not all fit decoded. Free "
                     "is what the kernel "
                     "has available and the limits of the control groups leave")
           .usually("a quarter of the free memory")
           .only_if_set(),
       stage_key(),
       exclude_slow_key(),
       config::custom<TrainConfig>(
           "model",
           config::any_of({model_table().schema()["properties"]["name"],
                           {{"type", "string"}, {"pattern", "\\.pt$"}},
                           model_table().schema(),
                           {{"type", "null"}}}),
           "a name, a [list of layers](#layers), a [TorchScript file](#a-network-of-your-own), or a "
           "[mapping](#keys-of-model). By default from a field to numbers `cosmoflow` (three dimensions) or "
           "`cnn` (one and "
           "two), from numbers to numbers `mlp`, to a field `decoder`, from a field to a field `unet`",
           [](yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
             config.model = read_model(reader.find(key), input_names(config), reader.diagnostics());
           },
           [](const TrainConfig& config) { return model_table().write(config.model); })
           .usually("by the data's shapes"),
       config::custom<TrainConfig>(
           "transform", transform_schema(),
           "`{log: OFFSET}`, `log1p`, `none` of the first input, before normalisation; of other fields the "
           "`convert:` block "
           "has [transforms](convert.md#transforms)",
           [](yaml::MapReader& reader, std::string_view key, TrainConfig& config) {
             config.transform = read_transform(reader.find(key), reader.diagnostics());
           },
           transform_node),
       config::boolean("normalise", &TrainConfig::normalise,
                       "normalise each channel as the data set [records it](convert.md#transforms): by mean "
                       "and deviation of "
                       "all training samples, or `min_max`; after `transform` by mean and deviation of (up "
                       "to 256) training "
                       "samples"),
       config::custom<TrainConfig>(
           "augment", augment_schema(),
           "list of `shift` (periodic), `flip`, `permute` (exchanges axes of as many cells). With `flip`: "
           "the 48 symmetries "
           "of a cube, the 8 of a square. `{noise: 0.01}` adds Gaussian noise to input fields, in deviations "
           "of each channel",
           [](yaml::MapReader& reader, std::string_view, TrainConfig& config) {
             config.augment = read_augment(reader, reader.diagnostics());
           },
           augment_node)
           .usually("none"),
       config::block("loss", &TrainConfig::loss, loss_table(),
                     "a [name](#losses) or a [mapping](#keys-of-loss), on normalised targets", "name")
           .usually("`mse`")
           .emitted_if(has_one_head),
       heads_key(),
       alternate_key(),
       config::block("optimizer", &TrainConfig::optimizer, optimizer_table(),
                     "a [name](#optimizers) or a [mapping](#keys-of-optimizer)", "name")
           .usually("`adamw`"),
       parts_key(),
       config::block("gradients", &TrainConfig::gradients, gradient_table(),
                     "how gradients are summed over the ranks: [keys](#keys-of-gradients), [several "
                     "nodes](#several-nodes)")
           .usually("`{wire: full}`"),
       config::block("schedule", &TrainConfig::schedule, schedule_table(),
                     "learning rate over the training: how it falls, or a [mapping](#keys-of-schedule)",
                     "decay")
           .usually("`cosine`"),
       config::block("checkpoint", &TrainConfig::checkpoint, checkpoint_table(),
                     "how often: [keys](#keys-of-checkpoint)")
           .usually("every epoch"),
       config::custom<TrainConfig>(
           "guard", config::any_of({config::boolean_schema(), guard_table().schema()}),
           "goes back to a checkpoint where memory or a rank has failed ([guard](#guard)): `false`, or a "
           "[mapping](#keys-of-guard)",
           read_guard,
           [](const TrainConfig& config) {
             return config.guard.on ? guard_table().write(config.guard) : config::emit_boolean(false);
           })
           .usually("`true`"),
       config::choice("shard", &TrainConfig::shard, kShards,
                      "what the ranks divide among them, so that each needs less memory: `optimizer`, the "
                      "optimizer's state; `gradients`, also the gradients; `weights`, also the weights "
                      "([Shared state](#shared-state))")
           .only_if_set(),
       config::choice(
           "recompute", &TrainConfig::recompute, kRecomputes,
           "`blocks`: convolutions before a norm or a pool are computed again in the backward pass, "
           "so that a step needs less memory; `tiles`: also chains of convolutions, pools and activations, "
           "in slabs one after the other ([Memory of a step](#memory-of-a-step))")
           .only_if_set(),
       config::choice("select", &TrainConfig::select, kSelects,
                      "weights for test and model: of the last epoch, or `best` in validation"),
       config::custom<TrainConfig>(
           "metrics", {{"type", "object"}, {"additionalProperties", config::text_schema()}},
           "[metrics of your own](#metrics-of-your-own): formulas by name, such as `{relative_error: "
           "\"abs(prediction - target) / target\"}`",
           read_metrics, metrics_node)
           .usually("none")
           .only_if_set(),
       config::custom<TrainConfig>(
           "metric", config::text_schema(),
           "the [metric](#metrics) in validation by which `select: best`, `early_stop` and `keep_best` "
           "compare epochs, "
           "such as `mean_iou` or `r2/TARGET`",
           read_metric, [](const TrainConfig& config) { return yaml::scalar(config.metric.text()); })
           .only_if_set(),
       config::real(
           "ema", &TrainConfig::ema, 0, 0.999999,
           "decay a step of averaged weights; they are then what is validated, tested and exported. 0: none"),
       config::integer("early_stop", &TrainConfig::early_stop_epochs, 0, kMany,
                       "epochs without a better validation after which to stop; 0: never"),
       config::real("min_improvement", &TrainConfig::min_improvement, 0, 1,
                    "`early_stop` and `decay: plateau` count an epoch as better only if its validation is "
                    "lower by more than this "
                    "part of the best one, such as 0.01")
           .only_if_set(),
       config::integer(
           "noise_scale", &TrainConfig::noise_scale_every, 0, kMany,
           "steps between measurements of the [gradient noise scale](#gradient-noise-scale); 0: none")
           .only_if_set(),
       config::boolean("shuffle_labels", &TrainConfig::shuffle_labels,
                       "leak test: training labels in random order; ratios must stay near 1"),
       config::custom<TrainConfig>(
           "deterministic",
           config::any_of({config::boolean_schema(),
                           config::choice_schema(std::array<std::string, 1>{"grid"}), cuts_table().schema()}),
           "`true`: ask libtorch for deterministic kernels; `grid`, or a [mapping](#keys-of-deterministic): "
           "also [the same bits on any number of ranks](#the-same-bits-on-any-number-of-ranks)",
           read_deterministic, deterministic_node)
           .usually("`true`"),
       config::choice("backend", &TrainConfig::backend, kBackends,
                      "what computes on a processor: `torch` (libtorch, and wflow's kernels for few "
                      "channels), `onednn` (oneDNN "
                      "on its blocked layout wherever it has fast kernels; refused where it has none), or "
                      "`auto`: the faster "
                      "of them for each layer; dense layers by oneDNN with both of the latter. The weights "
                      "agree to about 1e-4 "
                      "a step, so a training may go on with another"),
       config::choice("precision", &TrainConfig::precision, kPrecisions,
                      "precision of the products in convolutions and linear layers: `full`, `bf16` or `fp16` "
                      "([precision and "
                      "GPUs](#precision-and-gpus))"),
       config::seconds("max_seconds", &TrainConfig::max_seconds,
                       "after this time, write a checkpoint and end with exit code 6; 0: no limit"),
       read_elsewhere<TrainConfig>("search",
                                   config::any_of({{{"$ref", "#/$defs/token"}}, search_table().schema()}),
                                   "[successive halving](#searching) over the trainings of a campaign's step",
                                   [](const TrainConfig& config) { return to_yaml(config.search); })
           .usually("none")
           .emitted_if([](const TrainConfig& config) { return config.search.on(); })
           .only_if_set(),
       tournament_key(),
       groups_key(),
       follow_key(),
       until_key()},
      check_train);
  return table;
}

}  // namespace

const char* name_of(ModelName name) {
  return kModels[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(TransformName name) {
  return kTransforms[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(LossName name) {
  return kLosses[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(OptimizerName name) {
  return kOptimizers[static_cast<std::size_t>(name)].c_str();
}
const char* name_of(Decay decay) {
  return kDecays[static_cast<std::size_t>(decay)].c_str();
}
bool is_classification(LossName name) {
  return name == LossName::cross_entropy || name == LossName::dice || name == LossName::focal;
}

TargetKind kind_of(LossName name) {
  if (name == LossName::detection) return TargetKind::objects;
  return is_classification(name) ? TargetKind::classes : TargetKind::numbers;
}

const char* name_of(Backend backend) {
  return kBackends[static_cast<std::size_t>(backend)].c_str();
}
const char* name_of(WireFormat wire) {
  return kWireFormats[static_cast<std::size_t>(wire)].c_str();
}
const char* name_of(Precision precision) {
  return kPrecisions[static_cast<std::size_t>(precision)].c_str();
}

const char* name_of(Stage stage) {
  return kStages[static_cast<std::size_t>(stage)].c_str();
}

const char* name_of(Select select) {
  return kSelects[static_cast<std::size_t>(select)].c_str();
}
const char* name_of(Shard shard) {
  return kShards[static_cast<std::size_t>(shard)].c_str();
}
const char* name_of(Recompute recompute) {
  return kRecomputes[static_cast<std::size_t>(recompute)].c_str();
}
const char* name_of(InitialWeights initial) {
  return kInitialWeights[static_cast<std::size_t>(initial)].c_str();
}
const char* name_of(Norm norm) {
  return kNorms[static_cast<std::size_t>(norm)].c_str();
}

ModelConfig default_model(ModelName name) {
  ModelConfig model;
  model.name = name;
  switch (name) {
    case ModelName::cosmoflow:
    case ModelName::automatic:
      model.dense = {64, 32};
      model.leaky_slope = 0.3;
      model.initial = InitialWeights::data;
      model.level_means = true;
      break;
    case ModelName::sc18:
      model.width = 16;
      model.dense = {256, 128};
      break;
    case ModelName::mlperf:
      model.width = 32;
      model.dropout = 0.5;
      model.leaky_slope = 0.3;
      model.dense = {128, 64};
      model.initial = InitialWeights::torch;
      break;
    case ModelName::mlp:
      model.dense = {256, 256, 256};
      model.activation = LayerKind::silu;
      break;
    case ModelName::cnn:
      model.width = 8;
      model.dense = {64};
      break;
    case ModelName::unet:
      model.width = 16;
      model.norm = Norm::batch;
      model.activation = LayerKind::relu;
      model.initial = InitialWeights::torch;
      break;
    case ModelName::resnet:
    case ModelName::deeplab:
      model.width = 16;
      model.norm = Norm::batch;
      model.activation = LayerKind::relu;
      model.depth = 2;
      model.blocks = name == ModelName::resnet ? 3 : 2;
      if (name == ModelName::deeplab) {
        model.dilations = {3, 6, 9};
        model.initial = InitialWeights::torch;
      }
      break;
    case ModelName::tiramisu:
      model.width = 48;
      model.norm = Norm::batch;
      model.activation = LayerKind::relu;
      model.blocks = 4;
      model.growth = 12;
      model.initial = InitialWeights::torch;
      break;
    case ModelName::decoder:
      model.width = 8;
      model.dense = {64, 128};
      model.activation = LayerKind::silu;
      break;
    case ModelName::autoencoder:
    case ModelName::vae:
      model.width = 8;
      model.dense = {128};
      model.initial = InitialWeights::torch;
      break;
    case ModelName::semi_supervised:
      model.width = 8;
      model.dense = {128};
      model.initial = InitialWeights::torch;
      break;
    case ModelName::gan:
    case ModelName::wae:
    case ModelName::cycle:
      model.width = 32;
      model.norm = Norm::batch;
      model.dense = {128, 128};
      model.latent = name == ModelName::gan ? 64 : 20;
      break;
    case ModelName::inference:
      model.width = 16;
      model.dense = {128, 128};
      model.latent = 128;
      break;
    case ModelName::fno:
      model.width = 32;
      model.depth = 4;
      model.dense = {128};
      model.activation = LayerKind::gelu;
      model.initial = InitialWeights::torch;
      break;
    case ModelName::lstm:
      model.width = 64;
      model.depth = 2;
      model.dense = {64};
      break;
    case ModelName::conv_lstm:
      model.width = 16;
      model.depth = 1;
      model.dense = {64};
      break;
    case ModelName::layers:
    case ModelName::module:
      break;
  }
  return model;
}

namespace {

void add_file(const yaml::Node* file, std::vector<yaml::Node>& files) {
  if (file != nullptr && file->is_scalar() && file->text.find("$(") == std::string::npos &&
      std::ranges::find(files, file->text, &yaml::Node::text) == files.end())
    files.push_back(*file);
}

void add_loss_file(const yaml::Node& block, std::vector<yaml::Node>& files) {
  const yaml::Node* loss = block.find("loss");
  if (loss != nullptr && loss->is_map()) add_file(loss->find("file"), files);
}

}  // namespace

std::vector<yaml::Node> module_files(const yaml::Node& train_block) {
  std::vector<yaml::Node> files;
  const yaml::Node* model = train_block.find("model");
  if (model != nullptr)
    add_file(is_module_file(*model) ? model : model->is_map() ? model->find("file") : nullptr, files);
  add_loss_file(train_block, files);
  const yaml::Node* heads = train_block.find("heads");
  if (heads != nullptr && heads->is_sequence())
    for (const yaml::Node& head : heads->items)
      if (head.is_map()) add_loss_file(head, files);
  const yaml::Node* metrics = train_block.find("metrics");
  if (metrics != nullptr && metrics->is_map())
    for (const auto& [name, metric] : metrics->entries)
      if (is_module_file(metric)) add_file(&metric, files);
  return files;
}

std::int64_t GridConfig::ranks() const {
  std::int64_t product = 1;
  for (const std::int64_t parts : space) product *= parts;
  return product;
}

std::string subset_refusal(const TrainConfig& config, std::int64_t ranks) {
  if (ranks > config.ranks)
    return fmt::format(
        "'stage: {{subset: N}}' draws samples for {} ranks ('ranks'), and there are {}: start as many or "
        "fewer",
        config.ranks, ranks);
  if (config.batch % config.ranks != 0)
    return fmt::format(
        "'stage: {{subset: N}}' needs a 'batch' that is a multiple of 'ranks': each of the {} ranks takes an "
        "equal part of its own samples in each step, and 'batch' is {}",
        config.ranks, config.batch);
  return {};
}

std::vector<HeadConfig> heads_of(const TrainConfig& config) {
  if (!config.heads.empty()) return config.heads;
  HeadConfig one;
  one.targets = config.targets;
  one.loss = config.loss;
  return {one};
}

TrainConfig read_train_config(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  TrainConfig config;
  train_table().read(block, config, diagnostics);
  return config;
}

yaml::Node to_yaml(const TrainConfig& config) {
  return train_table().write(config);
}

std::vector<MetricName> tournament_metrics(const TrainConfig& config) {
  if (config.tournament.metrics.empty()) return {config.metric};
  std::vector<MetricName> metrics;
  for (const std::string& text : config.tournament.metrics)
    metrics.push_back(judging_metric(text, config).value());
  return metrics;
}

config::Json train_schema() {
  config::Json schema = {{"description", "a training (docs/train.md)"}};
  schema.update(train_table().schema());
  return schema;
}

std::vector<config::Section> train_sections() {
  return {{"train", train_table().rows()},
          {"train.model", model_table().rows()},
          {"train.model.layers", layer_rows()},
          {"train.loss", loss_table().rows()},
          {"train.heads", head_table().rows()},
          {"train.alternate", alternate_table().rows()},
          {"train.gradient_penalty", penalty_table().rows()},
          {"train.optimizer", optimizer_table().rows()},
          {"train.parts", part_table().rows()},
          {"train.gradients", gradient_table().rows()},
          {"train.grid", grid_table().rows()},
          {"train.schedule", schedule_table().rows()},
          {"train.checkpoint", checkpoint_table().rows()},
          {"train.guard", guard_table().rows()},
          {"train.deterministic", cuts_table().rows()},
          {"train.tournament", tournament_table().rows()},
          {"train.groups", groups_table().rows()},
          {"train.groups.outer", outer_table().rows()},
          {"train.search", search_table().rows()},
          {"train.follow", follow_table().rows()}};
}

}  // namespace wflow::trainer
