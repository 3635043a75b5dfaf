// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace wflow::trainer {
namespace {

constexpr std::size_t kFewSamples = 5;
constexpr double kFarFromZero = 1e4;  // deviations

class DataCheck {
 public:
  DataCheck(const TrainConfig& config, const DatasetInfo& info, const DataRoles& roles,
            const SplitSizes& sizes)
      : config_(config), info_(info), roles_(roles), sizes_(sizes) {}

  std::vector<std::string> run() {
    refuse_copies();
    refuse_moves_of_numbers();
    look_at_sizes();
    look_at_validation();
    for (const DataRoles::Input& input : roles_.inputs) {
      if (input.label) {
        look_at_range("input", input.name, info_.label_range[*input.label]);
      } else if (!keeps_values(config_.model.layers, input.name)) {
        look_at_field("input", input.part);
      }
    }
    look_at_targets();
    return std::move(doubts_);
  }

 private:
  template <typename... Values>
  void doubt(fmt::format_string<Values...> text, Values&&... values) {
    std::string sentence = fmt::format(text, std::forward<Values>(values)...);
    if (std::find(doubts_.begin(), doubts_.end(), sentence) == doubts_.end())
      doubts_.push_back(std::move(sentence));
  }

  bool reconstructs() const {
    return config_.model.name == ModelName::autoencoder || config_.model.name == ModelName::vae;
  }

  bool learns(std::size_t label) const {
    return std::any_of(roles_.heads.begin(), roles_.heads.end(), [label](const DataRoles::Head& head) {
      return std::find(head.labels.begin(), head.labels.end(), label) != head.labels.end();
    });
  }

  void refuse_copies() {
    for (const DataRoles::Input& input : roles_.inputs) {
      if (config_.model.name == ModelName::layers && !config_.heads.empty())
        continue;  // it says who reads what
      if (input.label && learns(*input.label))
        throw Error(
            ExitCode::spec,
            fmt::format("'{}' is an input and a target: the network would copy it; name it in 'inputs' or "
                        "in 'targets' alone",
                        input.name));
      if (!input.label && roles_.is_target(input.part) && !reconstructs())
        doubt("the field {} is an input and a target: a {} learns to copy it; leave it out of one of them",
              input.name, name_of(config_.model.name));
    }
  }

  void refuse_moves_of_numbers() const {
    if (!config_.augment.moves()) return;
    const auto is_box = [this](const DataRoles::Part& part) {
      return info_.fields[part.field].shape.voxels() > 1;
    };
    if (std::any_of(roles_.parts.begin(), roles_.parts.end(), is_box)) return;
    throw Error(ExitCode::spec,
                "'augment' moves the cells of fields, and the inputs and targets are numbers; leave it out");
  }

  void look_at_sizes() {
    const auto& [train, validation, test] = sizes_;
    if (train == 1)
      doubt(
          "there is 1 training sample, and a network learns from what differs between samples: run more "
          "samples, or raise the first fraction of 'split'");
    if (validation < kFewSamples || test < kFewSamples)
      doubt(
          "the data set has {} training, {} validation and {} test samples: errors of so few say little; run "
          "more samples, or raise the fractions of 'split'",
          train, validation, test);
    if (static_cast<std::size_t>(config_.batch) > train)
      doubt("'batch' is {} and there are {} training samples, so that an epoch is one step: lower 'batch'",
            config_.batch, train);
  }

  void look_at_validation() {
    if (sizes_.validation > 0) return;
    if (config_.early_stop_epochs > 0)
      doubt(
          "'early_stop' goes by the training loss, as there are no validation samples: raise the second "
          "fraction of 'split'");
    if (config_.schedule.decay == Decay::plateau)
      doubt(
          "'decay: plateau' goes by the training loss, as there are no validation samples: raise the second "
          "fraction of 'split'");
    if (config_.select == Select::best || config_.checkpoint.keep_best > 0)
      doubt(
          "the best epoch is that of the least training loss, as there are no validation samples: raise the "
          "second fraction of 'split'");
  }

  void look_at_targets() {
    const std::vector<HeadConfig> configs = heads_of(config_);
    for (std::size_t h = 0; h < configs.size(); ++h) {
      const bool classes = is_classification(configs[h].loss.name);
      for (const std::size_t label : roles_.heads[h].labels)
        look_at_range("target", info_.labels[label], info_.label_range[label], classes);
      // A detection's other values count only where there is an object.
      if (configs[h].loss.name == LossName::detection) {
        look_at_objects(roles_.heads[h].fields.front());
        continue;
      }
      for (const std::size_t part : roles_.heads[h].fields) look_at_field("target", part, classes);
    }
  }

  void look_at_objects(std::size_t part) {
    const DataField& field = info_.fields[roles_.parts[part].field];
    // One range for all channels says nothing of the first.
    if (field.range.empty() || (field.range.size() == 1 && field.shape.channels > 1)) return;
    if (field.range.front().most < 0.5)
      doubt("the first channel of {} is never 1 in the training samples: there is no object to find",
            field.name);
  }

  void look_at_range(const char* role, const std::string& name, const LabelRange& range,
                     bool classes = false) {
    if (range.deviation == 0 || range.least == range.most) {
      doubt("the {} '{}' is {:.9g} in all training samples: {}", role, name, range.mean,
            role == std::string_view("target") ? "there is nothing to learn; leave it out of 'targets'"
                                               : "it tells the network nothing; leave it out of 'inputs'");
      return;
    }
    const double deviations = std::abs(range.mean) / range.deviation;
    if (classes || deviations <= kFarFromZero) return;
    doubt(
        "the {} '{}' varies by {:.3g} around {:.9g}: store it as float64 (its 'dtype' in the convert: block) "
        "and "
        "give float64 to the exported model, or take an offset off",
        role, name, range.deviation, range.mean);
  }

  void look_at_field(const char* role, std::size_t part, bool classes = false) {
    const DataField& field = info_.fields[roles_.parts[part].field];
    const std::vector<std::string> names = channel_names(field.name, field);
    for (std::size_t c = 0; c < field.range.size(); ++c) {
      const bool named = field.range.size() == names.size();
      const std::string name = c < field.channels.size() ? field.channels[c] : named ? names[c] : field.name;
      look_at_range(role, name, field.range[c], classes);
    }
  }

  const TrainConfig& config_;
  const DatasetInfo& info_;
  const DataRoles& roles_;
  const SplitSizes sizes_;
  std::vector<std::string> doubts_;
};

}  // namespace

std::vector<std::string> check_data(const TrainConfig& config, const DatasetInfo& info,
                                    const DataRoles& roles, const SplitSizes& sizes) {
  return DataCheck(config, info, roles, sizes).run();
}

}  // namespace wflow::trainer
