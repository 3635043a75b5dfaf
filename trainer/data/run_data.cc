// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/resources.h"
#include "base/text.h"

namespace wflow::trainer {

std::int64_t usual_cache_bytes(const Communicator& communicator) {
  return free_memory() / 4 / communicator.ranks_on_node();
}

namespace {

constexpr std::size_t kStatisticsSamples = 256;
constexpr std::int64_t kMostSharedChunks = std::int64_t{64} << 20;  // bytes of a group's ranks on a machine

std::int64_t cache_bytes(const TrainConfig& config, const Communicator& communicator) {
  if (config.cache_bytes >= 0) return config.cache_bytes;
  return usual_cache_bytes(communicator);
}

bool stages_shards(const TrainConfig& config) {
  return config.stage != Stage::none && config.stage_subset == 0;
}

CacheBudget cache_budget(const TrainConfig& config, const Communicator& communicator, const Dataset& dataset,
                         const DataRoles& roles) {
  std::int64_t decoded = 0;
  std::int64_t stored = 0;
  for (const SampleSource* split : {dataset.train.get(), dataset.validation.get(), dataset.test.get()}) {
    if (config.stage_subset > 0 && split == dataset.train.get()) continue;
    for (const DataRoles::Part& part : roles.parts) {
      const std::int64_t values = dataset.info.fields[part.field].shape.count();
      decoded += values * static_cast<std::int64_t>(sizeof(float) * split->size());
      stored += split->compressed_bytes(part.field);
    }
  }
  return CacheBudget::divided(cache_bytes(config, communicator), decoded, stored);
}

double safe_deviation(double deviation) {
  return deviation > 0 && std::isfinite(deviation) ? deviation : 1.0;
}

// `transform` acts on the first input only; `convert:` has transforms for the others.
bool is_transformed(const TrainConfig& config, const DatasetInfo& info, std::size_t field) {
  const auto first = std::find_if(info.fields.begin(), info.fields.end(),
                                  [](const DataField& candidate) { return candidate.is_input; });
  return config.transform.name != TransformName::none && first != info.fields.end() &&
         first == info.fields.begin() + static_cast<std::ptrdiff_t>(field);
}

// True for the targets of a detection, whose values have units of their own, and may be NaN.
bool is_detected(std::span<const HeadConfig> heads, const DataRoles& roles, std::size_t part) {
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::vector<std::size_t>& fields = roles.heads[h].fields;
    if (heads[h].loss.name == LossName::detection && std::ranges::find(fields, part) != fields.end())
      return true;
  }
  return false;
}

void add_centres(const DataField& field, FieldPart& part) {
  std::vector<double> centres = field.centres();
  if (std::all_of(centres.begin(), centres.end(), [](double centre) { return centre == 0; })) return;
  for (const double centre : centres) {
    const double seen = transformed(part.transform, centre);
    part.transformed_centre.push_back(std::isfinite(seen) ? seen : 0);
  }
  part.centre = std::move(centres);
}

std::vector<FieldPart> parts_of(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  const std::vector<HeadConfig> heads = heads_of(config);
  std::vector<FieldPart> parts;
  for (const DataRoles::Part& part : roles.parts) {
    const DataField& field = info.fields[part.field];
    parts.push_back({part.field, field.shape, {}});
    if (is_transformed(config, info, part.field)) parts.back().transform = config.transform;
    parts.back().may_be_nan = is_detected(heads, roles, parts.size() - 1);
    if (!parts.back().may_be_nan) add_centres(field, parts.back());
    if (!roles.is_target(parts.size() - 1) && parts.back().shape.voxels() > 1)
      parts.back().noise = config.augment.noise;
  }
  return parts;
}

TensorShape common_grid(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles) {
  TensorShape grid;
  const bool augments = config.augment.moves();
  for (const DataRoles::Part& part : roles.parts) {
    const DataField& field = info.fields[part.field];
    if (field.shape.voxels() == 1) continue;
    if (augments && field.has_time)
      throw Error(ExitCode::spec,
                  fmt::format("'augment' moves the cells of a box, and {} has an axis of time", field.name));
    if (augments && grid.voxels() > 1 && field.shape.extent != grid.extent)
      throw Error(ExitCode::spec, fmt::format("'augment' acts on fields of one grid, and {} has {}, not {}",
                                              field.name, text_of(field.shape), text_of(grid)));
    if (grid.voxels() == 1) grid = field.shape;
  }
  return grid;
}

// The same rule as in python/wflow. A quantile normalisation is not linear: mean and deviation replace it.
FieldScale as_recorded(const DataField& field) {
  FieldScale scale;
  for (std::int64_t c = 0; c < field.shape.channels; ++c) {
    const std::size_t at = std::min(static_cast<std::size_t>(c), field.range.size() - 1);
    const LabelRange& range = field.range[at];
    double deviation = safe_deviation(range.deviation);
    double mean = range.mean;
    if (field.normalisation.kind == "min_max") {
      deviation =
          safe_deviation((range.most - range.least) / (field.normalisation.high - field.normalisation.low));
      mean = range.least - field.normalisation.low * deviation;
    }
    scale.mean.push_back(mean);
    scale.std.push_back(deviation);
  }
  return scale;
}

}  // namespace

RunData::RunData(const TrainConfig& config, Communicator& communicator, const TrainerPart* part)
    : config_(config),
      staging_(stages_shards(config) ? std::make_unique<Staging>(config, communicator) : nullptr),
      dataset_(staging_ ? staging_->open_dataset() : open_dataset(config.data)),
      all_folds_(leave_fold_out(dataset_, config)),
      beside_(take_part(dataset_.train, part)),
      roles_(roles_of(config, dataset_.info)),
      heads_(heads_of(config)),
      targets_(target_shapes(config, dataset_.info, roles_)),
      grid_(common_grid(config, dataset_.info, roles_)),
      budget_(cache_budget(config, communicator, dataset_, roles_)),
      train_(*dataset_.train, parts_of(config, dataset_.info, roles_), budget_),
      validation_(*dataset_.validation, train_.parts(), budget_),
      test_(*dataset_.test, train_.parts(), budget_) {
  if (beside_.held_out) held_out_.emplace(*beside_.held_out, train_.parts(), budget_);
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    if (!is_classification(heads_[h].loss.name)) continue;
    const DataRoles::Head& head = roles_.heads[h];
    const double usual =
        head.learns_fields()
            ? usual_class_of_field(all_training_samples(), roles_.parts[head.fields.front()].field,
                                   field_of(head.fields.front()).shape)
            : usual_class_of_label(all_training_samples(), head.labels.front());
    targets_[h].usual_class = static_cast<std::int64_t>(usual);
    if (heads_[h].loss.class_weighting != ClassWeighting::listed)
      targets_[h].class_counts = training_class_counts(h, communicator);
  }
  if (config.stage_subset > 0) subset_ = std::make_unique<HeldSubset>(config, train_, communicator);
  cache_bytes_ = cache_bytes(config, communicator);
}

std::vector<std::uint64_t> RunData::training_class_counts(std::size_t head,
                                                          Communicator& communicator) const {
  const auto [first, end] =
      even_part(all_training_samples().size(), static_cast<std::size_t>(communicator.rank()),
                static_cast<std::size_t>(communicator.size()));
  std::vector<std::uint64_t> own(static_cast<std::size_t>(targets_[head].classes), 0);
  for (std::size_t sample = first; sample < end; ++sample) count_sample(head, sample, own);
  return sum_values(communicator, own);
}

void RunData::count_sample(std::size_t head, std::size_t sample, std::span<std::uint64_t> counts) const {
  const DataRoles::Head& of = roles_.heads[head];
  const auto read = [&](std::size_t part) {
    std::vector<float> values(static_cast<std::size_t>(field_of(part).shape.count()));
    const std::span<float> to = values;
    all_training_samples().read_scaled(roles_.parts[part].field, {&sample, 1}, {&to, 1}, {}, nullptr);
    return values;
  };
  std::vector<float> values;
  std::vector<float> mask;
  if (of.learns_fields()) {
    values = read(of.fields.front());
    if (of.masks.front()) mask = read(*of.masks.front());
  } else {
    values = {static_cast<float>(all_training_samples().targets(sample)[of.labels.front()])};
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || (!mask.empty() && mask[i] < 0.5)) continue;
    ++counts[class_number(values[i], targets_[head])];
  }
}

std::vector<std::string> RunData::labels() const {
  std::vector<std::string> labels;
  for (const TargetShape& shape : targets_)
    labels.insert(labels.end(), shape.labels.begin(), shape.labels.end());
  return labels;
}

std::size_t RunData::first_target(std::size_t head) const {
  std::size_t first = 0;
  for (std::size_t h = 0; h < head; ++h) first += targets_[h].labels.size();
  return first;
}

void RunData::normalise_inputs() {
  Normalisation& n = normalisation_;
  for (const DataRoles::Input& input : roles_.inputs) {
    if (!input.label) continue;
    const LabelRange& range = dataset_.info.label_range[*input.label];
    const bool scales = config_.normalise && !keeps_values(config_.model.layers, input.name);
    n.numbers_mean.push_back(scales ? range.mean : 0.0);
    n.numbers_std.push_back(scales ? safe_deviation(range.deviation) : 1.0);
  }
  for (const RandomInput& input : config_.random_inputs) {
    const auto size = static_cast<std::size_t>(input.size);
    n.fields[input.name] = {std::vector<double>(size, 0.0), std::vector<double>(size, 1.0), false};
  }
}

void RunData::add_target_scale(std::size_t head) {
  Normalisation& n = normalisation_;
  // A target field is compared as the network would see it.
  for (const std::size_t part : roles_.heads[head].fields) {
    const FieldScale scale = *n.of_field(roles_.parts[part].name);
    n.y_mean.insert(n.y_mean.end(), scale.mean.begin(), scale.mean.end());
    n.y_std.insert(n.y_std.end(), scale.std.begin(), scale.std.end());
  }
  if (roles_.heads[head].constant) {
    n.y_mean.push_back(0);
    n.y_std.push_back(1);
  }
  for (const std::size_t label : roles_.heads[head].labels) {
    const LabelRange& range = dataset_.info.label_range[label];
    if (is_classification(heads_[head].loss.name)) {
      n.y_mean.push_back(0);
      n.y_std.push_back(1);
      continue;
    }
    // The targets fill tanh's range, which is symmetric about 0.
    n.y_mean.push_back(config_.model.tanh_output ? 0.5 * (range.least + range.most) : range.mean);
    n.y_std.push_back(
        safe_deviation(config_.model.tanh_output ? 0.5 * (range.most - range.least) : range.deviation));
  }
}

std::vector<std::string> RunData::normalised_otherwise() const {
  std::vector<std::string> names;
  for (const DataRoles::Part& part : roles_.parts) {
    const DataField& field = dataset_.info.fields[part.field];
    if (config_.normalise && field.normalisation.kind == "quantile") names.push_back(field.name);
  }
  return names;
}

void RunData::compute_normalisation(Communicator& communicator) {
  Normalisation& n = normalisation_;
  n = {};
  normalise_inputs();
  for (std::size_t part = 0; part < roles_.parts.size(); ++part) {
    FieldScale scale = scale_of(part, communicator);
    if (roles_.parts[part].name == kField) {
      n.x_mean = std::move(scale.mean);
      n.x_std = std::move(scale.std);
    } else {
      n.fields[roles_.parts[part].name] = std::move(scale);
    }
  }
  for (std::size_t h = 0; h < heads_.size(); ++h) add_target_scale(h);
}

std::vector<std::vector<ChannelScale>> RunData::scales() const {
  std::vector<std::vector<ChannelScale>> scales;
  for (std::size_t k = 0; k < roles_.parts.size(); ++k) {
    const DataRoles::Part& part = roles_.parts[k];
    auto scale = normalisation_.of_field(part.name);
    if (!scale ||
        scale->mean.size() != static_cast<std::size_t>(dataset_.info.fields[part.field].shape.channels))
      throw Error(ExitCode::data, fmt::format("the normalisation has no entry for the field {}", part.name));
    for (std::size_t c = 0; c < scale->mean.size(); ++c) scale->mean[c] -= train_.offset(k, c);
    scales.push_back(channel_scales(*scale));
  }
  return scales;
}

std::vector<std::int64_t> RunData::target_grid(std::size_t head) const {
  const DataRoles::Head& of = roles_.heads[head];
  if (!of.learns_fields()) return {};
  return field_of(of.fields.front()).grid;
}

bool RunData::target_is_without_channels(std::size_t head) const {
  const DataRoles::Head& of = roles_.heads[head];
  if (of.fields.size() != 1) return false;
  const DataField& field = field_of(of.fields.front());
  return field.shape.voxels() > 1 && !field.has_channels;
}

bool RunData::target_is_transformed(std::size_t head) const {
  const std::vector<std::size_t>& fields = roles_.heads[head].fields;
  return std::any_of(fields.begin(), fields.end(), [&](std::size_t part) {
    return is_transformed(config_, dataset_.info, roles_.parts[part].field);
  });
}

bool RunData::is_input(std::size_t part) const {
  return std::any_of(roles_.inputs.begin(), roles_.inputs.end(),
                     [part](const DataRoles::Input& input) { return !input.label && input.part == part; });
}

// True for the mask of a target that no layer reads, and for that of a padded input: layers compare it with
// 0.5.
bool RunData::is_mask(std::size_t part) const {
  if (roles_.is_mask(part) && !is_input(part)) return true;
  const std::vector<DataField>& fields = dataset_.info.fields;
  for (std::size_t k = 0; k < fields.size(); ++k)
    if (fields[k].is_input && mask_of(k, dataset_.info) == roles_.parts[part].field) return true;
  return false;
}

FieldScale RunData::scale_of(std::size_t part, Communicator& communicator) {
  const auto channels = static_cast<std::size_t>(field_of(part).shape.channels);
  FieldScale scale;
  if (!config_.normalise || is_mask(part) || is_detected(heads_, roles_, part) ||
      keeps_values(config_.model.layers, roles_.parts[part].name)) {
    scale = {std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0), false};
  } else if (is_transformed(config_, dataset_.info, roles_.parts[part].field) ||
             field_of(part).range.empty()) {
    scale = measured(part, communicator);
  } else {
    scale = as_recorded(field_of(part));
  }
  scale.transformed = is_transformed(config_, dataset_.info, roles_.parts[part].field);
  return scale;
}

// Scale of the transformed values; the manifest has statistics of the stored ones.
FieldScale RunData::measured(std::size_t part, Communicator& communicator) {
  const auto channels = static_cast<std::size_t>(field_of(part).shape.channels);
  const auto voxels = static_cast<std::size_t>(field_of(part).shape.voxels());
  // One sum per sample, gathered in order of the samples: the number of ranks does not change the additions.
  const std::size_t count = std::min(kStatisticsSamples, train_.size());
  const Permutation order(train_.size(), hash64(config_.seed, 4));
  const auto [first, end] = even_part(count, static_cast<std::size_t>(communicator.rank()),
                                      static_cast<std::size_t>(communicator.size()));
  std::vector<double> sums;
  std::vector<float> scratch;
  for (std::size_t i = first; i < end; ++i) {
    const std::span<const float> x = train_.whole(part, static_cast<std::size_t>(order(i)), scratch);
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      double squares = 0;
      for (const float v : x.subspan(c * voxels, voxels)) {
        sum += v;
        squares += static_cast<double>(v) * v;
      }
      sums.push_back(sum);
      sums.push_back(squares);
    }
  }
  std::string bytes(sums.size() * sizeof(double), '\0');
  if (!sums.empty()) std::memcpy(bytes.data(), sums.data(), bytes.size());
  std::vector<double> totals(2 * channels, 0.0);
  for (const std::string& part : communicator.all_gather(bytes)) {
    std::vector<double> values(part.size() / sizeof(double));
    if (!part.empty()) std::memcpy(values.data(), part.data(), part.size());
    for (std::size_t i = 0; i < values.size(); ++i) totals[i % (2 * channels)] += values[i];
  }
  const double cells = static_cast<double>(count) * static_cast<double>(voxels);
  FieldScale scale;
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = totals[2 * c] / cells;
    scale.mean.push_back(mean + train_.offset(part, c));
    scale.std.push_back(safe_deviation(std::sqrt(std::max(0.0, totals[2 * c + 1] / cells - mean * mean))));
  }
  return scale;
}

void RunData::copy_labels(const SampleSource& source, std::size_t i, bool training, std::size_t head,
                          float* to) const {
  const std::size_t of =
      training && config_.shuffle_labels
          ? static_cast<std::size_t>(Permutation(source.size(), hash64(config_.seed, 5))(i))
          : i;
  const std::span<const double> all = source.targets(of);
  const std::vector<std::size_t>& labels = roles_.heads[head].labels;
  const std::size_t first = first_target(head);
  for (std::size_t t = 0; t < labels.size(); ++t) {
    const double value = all[labels[t]];
    to[t] = static_cast<float>((value - normalisation_.y_mean[first + t]) / normalisation_.y_std[first + t]);
  }
}

// Fills [samples, targets, cells] from the parts, which follow one another; class numbers stay as they are.
void RunData::copy_fields(const Batch& batch, std::size_t head, std::span<float> to) const {
  const std::size_t samples = batch.items.size();
  const std::size_t row = to.size() / samples;
  std::size_t at = 0;
  for (const std::size_t part : roles_.heads[head].fields) {
    const std::size_t count = batch.counts[part];
    const std::span<const float> values = batch.values(part);
    for (std::size_t n = 0; n < samples; ++n)
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(n * count), count,
                  to.begin() + static_cast<std::ptrdiff_t>(n * row + at));
    at += count;
  }
  if (is_classification(heads_[head].loss.name)) {
    constexpr double kRounding = 1e-3;  // of values that were normalised and are whole again
    const std::size_t target = first_target(head);
    for (float& value : to) {
      const double number = value * normalisation_.y_std[target] + normalisation_.y_mean[target];
      const double nearest = std::round(number);
      value = static_cast<float>(std::abs(number - nearest) < kRounding ? nearest : number);
    }
  }
  hide_padding(batch, roles_.heads[head], to);
}

void RunData::hide_padding(const Batch& batch, const DataRoles::Head& head, std::span<float> to) const {
  const std::size_t samples = batch.items.size();
  const std::size_t row = to.size() / samples;
  std::size_t at = 0;
  for (std::size_t k = 0; k < head.fields.size(); ++k) {
    const std::size_t count = batch.counts[head.fields[k]];
    if (const auto part = head.masks[k]) {
      const FieldScale scale = *normalisation_.of_field(roles_.parts[*part].name);
      const std::span<const float> mask = batch.values(*part);
      const std::size_t cells = batch.counts[*part];
      for (std::size_t n = 0; n < samples; ++n)
        for (std::size_t i = 0; i < count; ++i)
          if (mask[n * cells + i % cells] * scale.std[0] + scale.mean[0] < 0.5)
            to[n * row + at + i] = std::numeric_limits<float>::quiet_NaN();
    }
    at += count;
  }
}

void RunData::draw_inputs(Feed& feed, const Batch& batch, const std::optional<StepOfBatch>& step) const {
  constexpr std::uint64_t kNoStep = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t key = hash64(hash64(config_.seed, 7), step ? step->step : kNoStep);
  for (std::size_t k = 0; k < config_.random_inputs.size(); ++k) {
    const auto size = static_cast<std::size_t>(config_.random_inputs[k].size);
    std::vector<float>& values = feed.numbers[roles_.inputs.size() + k];
    values.resize(batch.items.size() * size);
    for (std::size_t n = 0; n < batch.items.size(); ++n) {
      const std::uint64_t sample = hash64(hash64(key, k), step ? step->first + n : batch.items[n].index);
      for (std::size_t i = 0; i < size; ++i)
        values[n * size + i] = static_cast<float>(normal_real(sample, static_cast<std::uint64_t>(i)));
    }
    feed.inputs.push_back(values);
  }
}

// The cells of an input, in a batch with the cells of boxes() or with all of them.
std::span<const float> RunData::input_cells(Feed& feed, const Batch& batch, std::size_t input) const {
  const std::size_t part = roles_.inputs[input].part;
  const std::span<const float> values = batch.values(part);
  if (batch.boxes.empty() || input_boxes_[input] == batch.boxes[part]) return values;
  TensorShape shape = field_of(part).shape;
  const SamplePart all = {values, PeriodicBox(batch.boxes[part])};
  const std::vector<ChannelScale> unchanged(static_cast<std::size_t>(shape.channels));
  const std::size_t count = static_cast<std::size_t>(shape.channels * input_boxes_[input].cells());
  std::vector<float>& cells = feed.numbers[input];
  cells.resize(batch.items.size() * count);
  for (std::size_t n = 0; n < batch.items.size(); ++n)
    copy_box({all.values.subspan(n * batch.counts[part], batch.counts[part]), all.cells},
             std::span(cells).subspan(n * count, count), input_boxes_[input], shape, unchanged, {});
  return cells;
}

void RunData::share(std::vector<Box> inputs, Communicator& communicator, Communicator& group) {
  input_boxes_ = std::move(inputs);
  for (std::size_t part = 0; part < roles_.parts.size(); ++part) boxes_.push_back(box_of_part(part));
  train_.set_boxes(cached_boxes(*dataset_.train, config_.augment.moves()));
  validation_.set_boxes(cached_boxes(*dataset_.validation, false));
  test_.set_boxes(cached_boxes(*dataset_.test, false));
  if (held_out_) held_out_->set_boxes(cached_boxes(*beside_.held_out, false));
  std::int64_t bytes = cache_bytes(config_, communicator);
  // With a limit of the memory, the cache has what is left of it.
  const bool limited = config_.memory > 0;
  share_decoded(group, communicator.size() / group.size(), limited ? bytes : kMostSharedChunks);
  if (limited) bytes -= shared_bytes();
  divide_cache(bytes);
}

// True if other ranks of a group need chunks that this rank needs.
bool RunData::needs_common_chunks(std::size_t part, const SampleSource::ChunkForm& form) const {
  const auto& extent = field_of(part).shape.extent;
  if (boxes_[part] == Box::of(extent) || config_.augment.moves()) return true;
  for (std::size_t axis = 0; axis < extent.size(); ++axis) {
    const Range& own = boxes_[part].axes[axis];
    if (own.begin % form.extent[axis] != 0 || (own.end % form.extent[axis] != 0 && own.end != extent[axis]))
      return true;
  }
  return false;
}

std::vector<std::size_t> RunData::fields_of_common_chunks(Communicator& group) const {
  std::vector<int> needs(roles_.parts.size(), 0);
  for (std::size_t part = 0; part < needs.size(); ++part) {
    const SampleSource::ChunkForm form = dataset_.train->chunk_form(roles_.parts[part].field);
    needs[part] = form.bytes > 0 && needs_common_chunks(part, form) ? 1 : 0;
  }
  const std::vector<int> all = gather_values(group, needs);
  std::vector<std::size_t> fields;
  for (std::size_t part = 0; part < needs.size(); ++part) {
    bool is_common = false;
    for (std::size_t at = part; at < all.size(); at += needs.size()) is_common = is_common || all[at] != 0;
    if (is_common) fields.push_back(roles_.parts[part].field);
  }
  return fields;
}

// Memory for the chunks of three batches, as many as a loader has: one rank may be ahead of another. A
// collective call of the group.
void RunData::share_decoded(Communicator& group, std::int64_t groups, std::int64_t most_bytes) {
  const std::vector<std::size_t> fields = fields_of_common_chunks(group);
  std::size_t largest = 1;
  std::size_t of_sample = 0;
  for (const std::size_t field : fields) {
    const SampleSource::ChunkForm form = dataset_.train->chunk_form(field);
    largest = std::max(largest, form.bytes);
    of_sample += form.of_sample;
  }
  const std::int64_t samples = (config_.batch + groups - 1) / groups;
  // The least that a rank of the group allows.
  const auto allowed = static_cast<std::size_t>(
      -most_of(group, -static_cast<double>(std::min(most_bytes, kMostSharedChunks))));
  const std::size_t least = 2 * static_cast<std::size_t>(group.size());
  const std::size_t slots =
      std::min(std::max(3 * static_cast<std::size_t>(samples) * of_sample, least), allowed / largest);
  if (fields.empty() || slots < least) return;
  sharing_ = share_chunks(group, slots, largest);
  if (!sharing_.chunks) return;
  for (const std::size_t field : fields) {
    std::uint64_t split = 0;
    for (SampleSource* source : {dataset_.train.get(), dataset_.validation.get(), dataset_.test.get()})
      source->share(field, *sharing_.chunks, ++split, sharing_.rank, sharing_.ranks);
  }
}

// Targets are whole on every rank, where the loss is computed.
Box RunData::box_of_part(std::size_t part) const {
  const Box whole = Box::of(field_of(part).shape.extent);
  if (roles_.is_target(part) || roles_.is_mask(part)) return whole;
  std::optional<Box> box;
  for (std::size_t i = 0; i < roles_.inputs.size(); ++i) {
    if (roles_.inputs[i].label || roles_.inputs[i].part != part) continue;
    const Box& needed = input_boxes_[i];
    for (std::size_t axis = 0; box && axis < needed.axes.size(); ++axis)
      box->axes[axis] = hull(box->axes[axis], needed.axes[axis]);
    if (!box) box = needed;
  }
  return box.value_or(whole);
}

// An augmentation that moves cells needs other cells in each epoch: where samples are one piece, all of them
// are read anyway, and worth keeping.
std::vector<Box> RunData::cached_boxes(const SampleSource& source, bool moves) const {
  std::vector<Box> boxes = boxes_;
  for (std::size_t part = 0; part < boxes.size(); ++part)
    if (moves && !source.has_parts(roles_.parts[part].field))
      boxes[part] = Box::of(field_of(part).shape.extent);
  return boxes;
}

std::int64_t RunData::kept_bytes(std::size_t groups, std::int64_t epochs) const {
  const double other_groups = 1 - 1 / static_cast<double>(groups);
  double kept = 0;
  for (const CachedSplit* split : {&train_, &validation_, &test_}) {
    if (config_.stage_subset > 0 && split == &train_) continue;
    // A group has other training samples in each epoch, and the same validation and test samples.
    const double part =
        split == &train_ ? 1 - std::pow(other_groups, static_cast<double>(epochs)) : 1 - other_groups;
    kept += part * static_cast<double>(split->values() * sizeof(float) * split->size());
  }
  return std::min(cache_bytes_, static_cast<std::int64_t>(kept));
}

void RunData::divide_cache(std::int64_t bytes) {
  cache_bytes_ = bytes;
  std::int64_t decoded = 0;
  std::int64_t stored = 0;
  bool moves_parts = false;
  std::vector<const CachedSplit*> splits = {&train_, &validation_, &test_};
  if (held_out_) splits.push_back(&*held_out_);
  for (const CachedSplit* split : splits) {
    decoded += static_cast<std::int64_t>(split->values() * sizeof(float) * split->size());
    for (std::size_t part = 0; part < roles_.parts.size(); ++part) {
      const std::size_t field = roles_.parts[part].field;
      const bool is_whole = split->box(part) == Box::of(field_of(part).shape.extent);
      const bool moves = split == &train_ && !is_whole && config_.augment.moves();
      const double share = moves ? 1.0
                                 : static_cast<double>(split->box(part).cells()) /
                                       static_cast<double>(field_of(part).shape.voxels());
      moves_parts = moves_parts || moves;
      stored +=
          static_cast<std::int64_t>(share * static_cast<double>(split->source().compressed_bytes(field)));
    }
  }
  // Samples whose cells move are read again in each epoch: only their compressed chunks can be kept.
  const std::int64_t kept = moves_parts || decoded > bytes ? std::min(bytes, stored) : 0;
  budget_.set(bytes - kept, kept);
}

converters::ReadCounts RunData::read_counts() const {
  converters::ReadCounts counts;
  for (const SampleSource* split :
       {&all_training_samples(), &std::as_const(*dataset_.validation), &std::as_const(*dataset_.test)})
    counts += split->counts();
  return counts;
}

void RunData::fill(Feed& feed, const Batch& batch, CachedSplit& split, bool training,
                   const std::optional<StepOfBatch>& step) const {
  const std::size_t samples = batch.items.size();
  feed.inputs.clear();
  feed.numbers.resize(roles_.inputs.size() + config_.random_inputs.size());
  std::size_t number = 0;
  for (std::size_t i = 0; i < roles_.inputs.size(); ++i) {
    if (!roles_.inputs[i].label) {
      feed.inputs.push_back(input_cells(feed, batch, i));
      continue;
    }
    feed.numbers[i].resize(samples);
    for (std::size_t n = 0; n < samples; ++n) {
      const double value = split.source().targets(batch.items[n].index)[*roles_.inputs[i].label];
      feed.numbers[i][n] = static_cast<float>((value - normalisation_.numbers_mean[number]) /
                                              normalisation_.numbers_std[number]);
    }
    feed.inputs.push_back(feed.numbers[i]);
    ++number;
  }
  draw_inputs(feed, batch, step);
  feed.truths.resize(heads_.size());
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    std::vector<float>& truths = feed.truths[h];
    const std::size_t labels = targets_[h].labels.size();
    truths.resize(samples * labels * static_cast<std::size_t>(targets_[h].cells));
    if (targets_[h].truth != Truth::data) {
      const double constant = roles_.heads[h].constant.value_or(std::numeric_limits<double>::quiet_NaN());
      std::fill(truths.begin(), truths.end(), static_cast<float>(constant));
      continue;
    }
    if (roles_.heads[h].learns_fields()) {
      if (samples > 0) copy_fields(batch, h, truths);
      continue;
    }
    for (std::size_t n = 0; n < samples; ++n)
      copy_labels(split.source(), batch.items[n].index, training, h, &truths[n * labels]);
  }
}

std::vector<double> RunData::truths(const SampleSource& source, std::size_t head) const {
  std::vector<double> list;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::span<const double> all = source.targets(i);
    for (const std::size_t label : roles_.heads[head].labels) list.push_back(all[label]);
  }
  return list;
}

}  // namespace wflow::trainer
