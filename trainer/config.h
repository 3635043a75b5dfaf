// SPDX-License-Identifier: Apache-2.0
// The checked `train:` block. Includes neither libtorch nor MPI: `wflow validate` reads it too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "trainer/follow_config.h"
#include "trainer/layer_config.h"
#include "trainer/metric_name.h"
#include "trainer/search_config.h"
#include "trainer/tournament_config.h"

// The `groups:` block of `train:`.

namespace wflow::config {
template <typename Config>
class Table;
}

namespace wflow::trainer {

// The step that all groups take together: trainer/training/optimizer.h.
struct OuterConfig {
  double rate = 1;
  double momentum = 0;
  bool is_mean() const { return rate == 1 && momentum == 0; }
  bool operator==(const OuterConfig&) const = default;
};

// Groups of ranks that train by themselves between outer steps.
struct GroupsConfig {
  std::int64_t count = 0;  // 0: one group a node
  std::int64_t steps = 0;  // of a group between two outer steps; 0: no groups
  OuterConfig outer;
  bool on() const { return steps > 0; }
  bool operator==(const GroupsConfig&) const = default;
};

const config::Table<GroupsConfig>& groups_table();
const config::Table<OuterConfig>& outer_table();

}  // namespace wflow::trainer

namespace wflow::trainer {

// automatic: chosen by the data's shape, once that is known; layers: written out in the block; module: a
// TorchScript file.
enum class ModelName {
  cosmoflow,
  sc18,
  mlperf,
  mlp,
  cnn,
  unet,
  resnet,
  deeplab,
  tiramisu,
  decoder,
  autoencoder,
  vae,
  fno,
  lstm,
  conv_lstm,
  gan,
  wae,
  cycle,
  semi_supervised,
  inference,
  layers,
  automatic,
  module
};
enum class TransformName { none, log, log1p };
// gaussian: the network gives mean and logarithm of the variance of each target. focal: cross_entropy with
// less weight on cells that are nearly right. quantile: the network gives quantiles of each target. formula:
// written out by the user.
// detection: an object's confidence, class and box in each cell.
// bce, wasserstein: of a score against a constant, for adversarial training.
// module: a TorchScript file of the user. mixture: the network gives the joint density of all targets.
enum class LossName {
  mse,
  mae,
  huber,
  gaussian,
  cross_entropy,
  dice,
  focal,
  quantile,
  formula,
  detection,
  bce,
  wasserstein,
  module,
  mixture
};
// Source of the class weights: the configuration, or the classes' shares of the training split.
enum class ClassWeighting { listed, inverse, inverse_root };
// larc: sgd with a layer-wise rate that is never above the common one.
enum class OptimizerName { adamw, adam, sgd, lars, larc, lamb };
// plateau: the rate falls where the validation stops improving.
enum class Decay { none, cosine, linear, polynomial, step, one_cycle, plateau };
enum class Select { last, best };
// The state that the ranks of a training divide among them: none, or that of the value and of all values
// before it. none: each rank has all.
enum class Shard { none, optimizer, gradients, weights };
// Activations that are computed again in the backward pass, instead of being kept.
enum class Recompute { none, blocks, tiles };
// Library for convolutions on a processor. torch: libtorch and the kernels for few channels; onednn: oneDNN
// wherever it has kernels; automatic: the faster of the two for each layer.
enum class Backend { automatic, torch, onednn };
// Place from which the shards are read. none: the data directory; local, memory: a copy that is spread over
// the nodes of the job, on their own disks or in their memory.
enum class Stage { none, local, memory };
// Precision of the products in convolutions and linear layers; weights, sums, norms and all else stay in full
// precision.
enum class Precision { full, bf16, fp16 };
// Number format of gradients in messages between nodes: float32 or bfloat16.
enum class WireFormat { full, half };
// Norm after a convolution. Batch norm and group norm remove the mean amplitude (of the batch, or of a
// sample); a network that learns the strength of a field needs it.
enum class Norm { none, batch, group };
// Rules of trainer/model/graph_builder.h. data: he, then scaled so that every channel has variance 1 over
// some training samples.
enum class InitialWeights { automatic, data, he, torch };

struct ModelConfig {
  ModelName name = ModelName::cosmoflow;
  std::int64_t width = 4;  // channels of the first convolution
  double dropout = 0;
  Norm norm = Norm::none;
  double leaky_slope = 0.01;
  bool tanh_output = false;         // outputs limited to +-1.2 (MLPerf's choice for targets in [-1, 1])
  std::vector<std::int64_t> dense;  // hidden fully connected layers
  LayerKind activation = LayerKind::leaky_relu;
  // unet, resnet, deeplab, tiramisu: number of times that the grid is halved; fno, lstm, conv_lstm: layers
  std::int64_t depth = 3;
  std::int64_t latent = 16;  // values between encoder and decoder; gan: random numbers; inference: LSTM units
  // cycle: weight of predictions and cycles beside the latent code; semi_supervised: of the reconstruction
  double auxiliary_weight = 1;
  InitialWeights initial = InitialWeights::automatic;
  std::int64_t modes = 12;      // fno: lowest frequencies along each axis
  bool level_means = false;     // cosmoflow: the dense layers read the means of every level
  std::int64_t blocks = 0;      // resnet, deeplab: residual blocks a level; tiramisu: layers of a dense block
  std::int64_t growth = 0;      // tiramisu: channels that a layer adds
  bool pre_activation = false;  // resnet: norm and activation before each convolution
  std::int64_t components = 8;  // inference: normal distributions of a draw's proposal
  std::vector<std::int64_t> dilations;  // deeplab: of the parallel convolutions
  Padding padding = Padding::same;      // of the named networks' convolutions: same or periodic
  std::vector<LayerConfig> layers;
  std::vector<std::string> outputs;  // layers: names; empty: the last layer
  std::string file;                  // module: the TorchScript file
  bool operator==(const ModelConfig&) const = default;
};

// Defaults for the keys that a `model:` block leaves out; they depend on the model's name.
ModelConfig default_model(ModelName name);
// The TorchScript files that a `train:` block names as model, losses and metrics, but for those that still
// have a token.
std::vector<yaml::Node> module_files(const yaml::Node& train_block);

struct TransformConfig {
  TransformName name = TransformName::none;
  double offset = 0.1;  // log(x + offset)
  bool operator==(const TransformConfig&) const = default;
};

struct AugmentConfig {
  bool shift = false;    // periodic, any number of cells along each axis
  bool flip = false;     // mirror each axis
  bool permute = false;  // exchange axes of as many cells
  double noise = 0;      // standard deviation of noise on input fields, in deviations of each channel
  bool moves() const { return shift || flip || permute; }
  bool operator==(const AugmentConfig&) const = default;
};

struct LossConfig {
  LossName name = LossName::mse;
  double delta = 1;                   // huber: the loss is linear beyond this many deviations of the target
  std::vector<double> class_weights;  // classes, if listed; empty: all 1
  ClassWeighting class_weighting = ClassWeighting::listed;
  std::int64_t classes = 0;  // of a classification or detection; 0: as many as the training data have
  double gamma = 2;          // focal: exponent of 1 - the probability of the true class
  std::vector<double> quantiles = {0.05, 0.5, 0.95};  // quantile: rising
  double smooth = 1;                                  // dice
  double kl_weight = 1;                               // vae
  double box_weight = 5;                              // detection: of the error of a box
  double empty_weight = 0.5;                          // detection: of a cell without an object
  std::string formula;                                // formula: the loss of a prediction and its target
  std::string file;                                   // module: the TorchScript file
  std::int64_t components = 8;                        // mixture: normal distributions
  bool operator==(const LossConfig&) const = default;
};
// The same bits of the weights on any number of ranks: each sample is computed by itself, and in the same
// parts whatever ranks share it.
struct SampleCuts {
  bool on = false;
  std::vector<std::int64_t> parts;  // along depth, height and width; empty: chosen by the network
  bool operator==(const SampleCuts&) const = default;
};

// True if the target is a class number.
bool is_classification(LossName name);
TargetKind kind_of(LossName name);

// A metric that the user writes: a formula of predictions and targets in physical units, or a TorchScript
// file.
struct MetricConfig {
  std::string name;
  std::string formula;
  std::string file = {};  // in place of the formula
  bool operator==(const MetricConfig&) const = default;
};

// One of several things that a network learns at once: an output of its own, with its targets and loss.
struct HeadConfig {
  std::string name;
  std::vector<std::string> targets;  // labels, or fields of one grid
  std::optional<double> constant;    // in place of targets
  // In place of both: a field in whose units the output is. There is no truth, and so no loss.
  std::string like;
  LossConfig loss;
  double weight = 1;   // of its loss in the sum of all
  std::string output;  // lists of layers: the layer that is compared; empty: the one with the head's name
  std::optional<bool> save;  // as an output of the exported model
  bool is_exported() const { return save.value_or(!constant); }
  bool operator==(const HeadConfig&) const = default;
};

// An input of numbers that are drawn from a normal distribution for each sample of each step.
struct RandomInput {
  std::string name;
  std::int64_t size = 1;
  bool operator==(const RandomInput&) const = default;
};

// weight * (|gradient| - norm)^2, the mean over the samples; the gradient is that of a score by a value.
struct GradientPenalty {
  std::string of;    // the score's layer; empty: no penalty
  std::string from;  // an input or a layer before it
  double weight = 10;
  double norm = 0;
  bool operator==(const GradientPenalty&) const = default;
};

// One of several updates that a step makes, each with losses and parts of its own.
struct AlternateConfig {
  std::vector<std::string> heads;  // whose losses count
  std::vector<std::string> learn;  // parts that learn; empty: all
  std::int64_t every = 1;          // steps
  GradientPenalty penalty = {};
  bool operator==(const AlternateConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  double learning_rate = 2e-3;
  double momentum = 0.9;  // sgd
  bool nesterov = false;  // sgd
  double beta1 = 0.9;     // adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;           // not of biases and norms
  double clip_norm = 0;              // largest norm of the whole gradient; 0: no limit
  double larc_trust = 0;             // layer-wise adaptive rate, clipped; 0: off
  double lars_trust = 0.001;         // lars
  std::int64_t lag = 0;              // 1: a step's gradient is applied a step later
  std::int64_t reference_batch = 0;  // batch that the rate is for; it grows in proportion; 0: it does not
  bool operator==(const OptimizerConfig&) const = default;
};

// Settings of a named part of the network.
struct PartConfig {
  std::string name;
  bool freeze = false;    // its weights stay as they are
  std::string init_from;  // a checkpoint or the folder of a training that has the part; empty: none
  double rate = 1;        // factor on the learning rate
  bool own_optimizer = false;
  OptimizerConfig optimizer = {};  // in place of the common one
  bool save = false;               // as a model of its own
  bool operator==(const PartConfig&) const = default;
};

// Options of the sum of gradients over the ranks.
struct GradientConfig {
  WireFormat wire = WireFormat::full;
  bool operator==(const GradientConfig&) const = default;
};

struct ScheduleConfig {
  double warmup_epochs = 0;
  Decay decay = Decay::cosine;
  double final_factor = 0;          // factor on the learning rate at the last step
  double power = 1;                 // polynomial
  std::vector<double> step_epochs;  // step: epochs at which the rate falls
  double step_factor = 0.1;         // step, plateau: factor at each of them
  double rise = 0.3;                // one_cycle: part of the run in which the rate rises
  std::int64_t plateau_epochs = 5;  // plateau: epochs without a better validation before the rate falls
  std::vector<std::int64_t> batch_epochs;  // epochs at which the batch grows, ascending
  std::int64_t batch_factor = 2;           // factor on the batch at each of them
  bool operator==(const ScheduleConfig&) const = default;
};

// The largest batch of a run over its first one.
inline constexpr std::int64_t kMostBatchGrowth = 1 << 20;

struct CheckpointConfig {
  std::int64_t every_epochs = 1;  // 0: never by epoch
  std::int64_t every_steps = 0;
  double every_seconds = 0;
  std::int64_t keep_last = 2;
  std::int64_t keep_best = 0;  // also keep those after the epochs with the best validation
  bool operator==(const CheckpointConfig&) const = default;
};

// Limits that tell faulty memory or ranks from ordinary instability: trainer/training/guard.h.
struct GuardConfig {
  bool on = true;
  double deviations = 12;  // a loss that lies this many mean deviations above its mean raises an alarm
  std::int64_t agree_every = 100;  // steps between comparisons of the ranks' states by hash; 0: never
  std::int64_t rollbacks = 10;     // the next one ends the run
  bool operator==(const GuardConfig&) const = default;
};

// How the ranks that share a sample are chosen: by the configuration, or by the planner when the training
// starts (training/planner.h). fastest: the grid with the fastest step; fit: the one with the fewest ranks
// whose parts fit in the memory.
enum class GridChoice { given, fastest, fit };

struct GridConfig {
  // Parts along depth, height and width; one number: along the longest axis of the input; empty: none.
  std::vector<std::int64_t> space;
  GridChoice choice = GridChoice::given;
  std::int64_t ranks() const;
  bool operator==(const GridConfig&) const = default;
};

struct TrainConfig {
  std::string data;                  // directory with manifest.json; in a campaign the name of a convert step
  std::string output = "training";   // directory for checkpoints, metrics, model
  std::vector<std::string> inputs;   // x, the data's field, or labels; empty: x
  std::vector<std::string> targets;  // labels, or x; empty: every label of the data
  std::vector<RandomInput> random_inputs;
  std::uint64_t seed = 1;
  std::int64_t members = 1;  // trainings with different seeds; their mean is the prediction
  // Above 1: the training samples are so many parts, of which one, from 1 on, is the test split
  // (data/trainer_part.h).
  std::int64_t folds = 1;
  std::int64_t fold = 1;
  std::int64_t epochs = 10;
  std::int64_t batch = 16;  // samples a step, over all ranks
  // Keys of an order in which neighbouring samples come together, in runs of batch_run; empty: any samples.
  std::vector<std::string> batch_by;
  std::int64_t batch_run = 0;   // 0: a batch
  std::int64_t accumulate = 1;  // passes over a rank's part of a batch; more passes need less memory
  std::int64_t ranks = 1;       // used by the launcher, checked by the program
  GridConfig grid;              // of the ranks that share a sample
  std::int64_t memory = 0;      // bytes that a rank may use; 0: any
  std::int64_t threads = 1;     // per rank
  std::int64_t loader_threads = 1;
  std::int64_t cache_bytes = -1;  // memory per rank for decoded samples; -1: a quarter of the free memory
  Stage stage = Stage::none;
  std::string stage_folder;  // for `local`; empty: $TMPDIR, else /tmp
  // Above 0: each of `ranks` draws so many training samples, with replacement, and keeps them in `stage`
  // (data/subset.h).
  std::int64_t stage_subset = 0;
  // Above 0: asks for a restart without a node whose ranks take so many times as long as the others.
  double exclude_slow = 0;
  ModelConfig model;
  TransformConfig transform;
  bool normalise = true;
  AugmentConfig augment;
  LossConfig loss;
  std::vector<HeadConfig> heads;           // empty: one, of `targets` and `loss`
  std::vector<AlternateConfig> alternate;  // empty: one update, with the losses of all heads
  OptimizerConfig optimizer;
  Shard shard = Shard::none;
  Recompute recompute = Recompute::none;
  std::vector<PartConfig> parts;
  GradientConfig gradients;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  GuardConfig guard;
  Select select = Select::last;
  std::vector<MetricConfig> metrics;  // of the user
  MetricName metric;                  // in validation, for `select: best`, early_stop and keep_best
  double ema = 0;  // decay per step of the averaged weights that are evaluated and exported; 0: no averaging
  std::int64_t early_stop_epochs = 0;  // epochs without a better validation before the stop; 0: never
  double min_improvement = 0;  // smaller improvements do not count for early_stop_epochs; part of the best
  std::int64_t noise_scale_every = 0;  // steps between measurements of the gradient noise scale; 0: none
  bool shuffle_labels = false;         // leak test: a network can learn nothing from such data
  bool deterministic = true;
  SampleCuts cuts;  // `deterministic: grid`
  Backend backend = Backend::automatic;
  Precision precision = Precision::full;
  // Initial weights. Empty: random; kInitFromLast: if the data have changed, those of this training's last
  // model; else a checkpoint, or the folder of a training.
  std::string init_from;
  double max_seconds = 0;  // after this time, write a checkpoint and exit with code 6; 0: no limit
  SearchConfig search;     // of a campaign's step; off: a training by itself
  TournamentConfig tournament;
  GroupsConfig groups;
  FollowConfig follow;  // of a campaign's step
  GoalConfig until;     // with `follow`: the validation that ends the simulations
  bool operator==(const TrainConfig&) const = default;
};

inline constexpr const char* kInitFromLast = "last";
// A node whose ranks take so many times as long as the others is named as slow.
inline constexpr double kSlowNode = 1.2;

// Why `stage: {subset: N}` can't be used on this many ranks: a sentence, empty if it can. The subsets are
// those of config.ranks ranks.
std::string subset_refusal(const TrainConfig& config, std::int64_t ranks);

// The heads of a completed configuration: at least one; the name is empty where the block has no `heads`.
std::vector<HeadConfig> heads_of(const TrainConfig& config);

// The metrics that a tournament judges by; of a configuration without errors.
std::vector<MetricName> tournament_metrics(const TrainConfig& config);

// Name of the data's field among inputs and targets.
inline constexpr const char* kField = "x";

// Reads the block; every error goes to `diagnostics`.
TrainConfig read_train_config(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// All keys with their values, also defaults; reads back equal.
yaml::Node to_yaml(const TrainConfig& config);

// Names of the values in YAML.
const char* name_of(ModelName name);
const char* name_of(TransformName name);
const char* name_of(LossName name);
const char* name_of(OptimizerName name);
const char* name_of(Decay decay);
const char* name_of(Select select);
const char* name_of(Shard shard);
const char* name_of(Recompute recompute);
const char* name_of(Backend backend);
const char* name_of(Stage stage);
const char* name_of(Precision precision);
const char* name_of(WireFormat wire);
const char* name_of(Norm norm);
const char* name_of(InitialWeights initial);

}  // namespace wflow::trainer
