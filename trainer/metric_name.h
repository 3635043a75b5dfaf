// SPDX-License-Identifier: Apache-2.0
// Names of the metrics that compare the epochs of a training, or trainings: `metric:` of `train:` and of
// `search:`.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wflow::trainer {

// Kinds of targets. Each metric is of some of them.
enum class TargetKind { numbers, classes, objects };
const char* name_of(TargetKind kind);

// "mean_iou", "iou_2/events": the name, the class, the target. A name that is not one of metric_names() is
// that of a metric of the user, which is of numbers.
struct MetricName {
  std::string name = "loss";
  std::optional<std::size_t> of_class;
  std::string target;  // empty: the mean over the targets

  bool is_loss() const { return name == "loss"; }
  bool larger_is_better() const;
  bool is_of(TargetKind kind) const;
  std::string kinds() const;  // "classes or objects", for messages
  std::string key() const;    // without the target: "iou_2", as in a row of metrics.jsonl
  std::string text() const;   // as metric_named() reads it
  bool operator==(const MetricName&) const = default;
};

// No value for an unknown name.
std::optional<MetricName> metric_named(std::string_view text);
// The metric of the user that "NAME" or "NAME/TARGET" means.
std::optional<MetricName> own_metric_named(std::string_view text, std::span<const std::string> own);
// All names, for messages; N stands for the number of a class.
std::vector<std::string> metric_names();

}  // namespace wflow::trainer
