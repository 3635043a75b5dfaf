// SPDX-License-Identifier: Apache-2.0
#include "specs/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "converters/config.h"
#include "specs/study/blocks.h"
#include "trainer/config.h"

namespace wflow::specs {

namespace {

using converters::ConvertConfig;
using converters::FieldConfig;
using trainer::TrainConfig;

constexpr std::uint64_t kFewSamples = 5;  // as in trainer/data/check_data.cc

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A list of one value; a box has none.
bool is_constant(const SampleColumn& column) {
  const std::vector<std::string>& values = column.values;
  return !values.empty() && std::all_of(values.begin(), values.end(),
                                        [&](const std::string& value) { return value == values.front(); });
}

class TrainingCheck {
 public:
  TrainingCheck(const Study& study, const Step& step, const ConvertConfig& data, const TrainConfig& config)
      : study_(study), step_(step), data_(data), config_(config) {}

  // The trainer refuses these.
  std::vector<std::string> errors() {
    look_at_copies();
    look_at_grids();
    return std::move(said_);
  }

  std::vector<std::string> doubts() {
    if (study_.samples) {
      look_at_constants(study_.samples->design);
      if (study_.samples->design.count > 0 && !data_.stacked) look_at_sizes(study_.samples->design.count);
    }
    return std::move(said_);
  }

 private:
  template <typename... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) {
    said_.push_back(
        fmt::format("the step '{}': {}", step_.name, fmt::format(text, std::forward<Values>(values)...)));
  }

  bool is_target(const FieldConfig& field) const {
    if (config_.targets.empty()) return field.role == converters::Role::target;
    return contains(config_.targets, field.name);
  }

  // The number of a sample; a field may be learnt from itself.
  bool is_number(const std::string& name) const {
    return std::any_of(data_.fields.begin(), data_.fields.end(), [&](const FieldConfig& field) {
      return field.from_parameters && (field.name == name || contains(field.parameters, name));
    });
  }

  void look_at_copies() {
    for (const std::string& name : config_.inputs) {
      if (contains(config_.targets, name) && is_number(name))
        say("'{}' is an input and a target: the network would copy it; name it in 'inputs' or in 'targets' "
            "alone",
            name);
    }
  }

  // Only fields with a `shape` in the study can be compared.
  void look_at_grids() {
    const FieldConfig* first = nullptr;
    for (const FieldConfig& field : data_.fields) {
      const auto shape = converters::normal_shape(field.shape);
      if (field.from_parameters || !field.layout.empty() || data_.short_form || !is_target(field) || !shape)
        continue;
      if (first == nullptr) first = &field;
      const auto grid = converters::normal_shape(first->shape);
      if (std::equal(shape->begin() + 1, shape->end(), grid->begin() + 1)) continue;
      say("the targets {} and {} are on different grids; a network learns fields of one grid: name one of "
          "them in "
          "'targets'",
          first->name, field.name);
      return;
    }
  }

  void look_at_constants(const SampleDesign& design) {
    for (const SampleColumn& column : design.columns) {
      if (!is_constant(column)) continue;
      const bool target =
          contains(config_.targets, column.name) ||
          std::any_of(data_.fields.begin(), data_.fields.end(), [&](const FieldConfig& field) {
            return is_target(field) && contains(field.parameters, column.name);
          });
      if (target)
        say("the target '{}' is the same in all samples: there is nothing to learn; leave it out of "
            "'targets'",
            column.name);
      else if (contains(config_.inputs, column.name))
        say("the input '{}' is the same in all samples: it tells the network nothing; leave it out of "
            "'inputs'",
            column.name);
    }
  }

  // Fractions are met within one sample if it is known which samples belong together.
  std::array<std::uint64_t, 3> sizes_of(std::uint64_t count) const {
    std::array<std::uint64_t, 3> sizes{};
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      const double share = data_.split.parts[part];
      sizes[part] = static_cast<std::uint64_t>(
          data_.split.fractions ? std::floor(share * static_cast<double>(count) + 0.5) : share);
    }
    return sizes;
  }

  void look_at_sizes(std::uint64_t count) {
    const auto [train, validation, test] = sizes_of(count);
    if (validation < kFewSamples || test < kFewSamples)
      say("of {} samples about {} are for training, {} for validation and {} for the test: errors of so few "
          "say "
          "little; run more samples, or raise the fractions of 'split'",
          text::format_count(count), text::format_count(train), text::format_count(validation),
          text::format_count(test));
    if (static_cast<std::uint64_t>(config_.batch) > train)
      say("'batch' is {} and there are about {} training samples, so that an epoch is one step: lower "
          "'batch'",
          config_.batch, text::format_count(train));
    if (validation > 0) return;
    if (config_.early_stop_epochs > 0)
      say("'early_stop' goes by the training loss, as there are no validation samples: raise the second "
          "fraction "
          "of 'split'");
    if (config_.select == trainer::Select::best || config_.checkpoint.keep_best > 0)
      say("the best epoch is that of the least training loss, as there are no validation samples: raise the "
          "second fraction of 'split'");
  }

  const Study& study_;
  const Step& step_;
  const ConvertConfig& data_;
  const TrainConfig& config_;
  std::vector<std::string> said_;
};

// Visits each training whose data set is a step of the same study.
template <typename Look>
void each_training(const Study& study, const Look& look) {
  for (const Step& step : study.steps) {
    if (step.kind != StepKind::train) continue;
    const std::string source = source_step(step);
    const auto data = std::find_if(study.steps.begin(), study.steps.end(), [&](const Step& other) {
      return other.kind == StepKind::convert && other.name == source;
    });
    if (data == study.steps.end()) continue;
    // Skips a block whose values depend on parameters: it cannot be read without them.
    if (data->block_is_whole && step.block_is_whole)
      look(step, TrainingCheck(study, step, std::get<ConvertConfig>(data->block),
                               std::get<TrainConfig>(step.block)));
  }
}

}  // namespace

void check_trainings(const Study& study, yaml::Diagnostics& diagnostics) {
  each_training(study, [&](const Step& step, TrainingCheck check) {
    for (const std::string& error : check.errors()) diagnostics.error(step.mark, error);
  });
}

std::vector<std::string> training_doubts(const Study& study) {
  std::vector<std::string> all;
  each_training(study, [&](const Step&, TrainingCheck check) {
    for (std::string& doubt : check.doubts()) all.push_back(std::move(doubt));
  });
  return all;
}

}  // namespace wflow::specs
