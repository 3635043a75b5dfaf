// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_name.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::array<TargetKind, 3> kTargetKinds = {TargetKind::numbers, TargetKind::classes,
                                                    TargetKind::objects};

constexpr unsigned bit_of(TargetKind kind) {
  return 1U << static_cast<unsigned>(kind);
}
constexpr unsigned kOfNumbers = bit_of(TargetKind::numbers);
constexpr unsigned kOfClasses = bit_of(TargetKind::classes);
constexpr unsigned kOfObjects = bit_of(TargetKind::objects);
constexpr unsigned kOfAll = kOfNumbers | kOfClasses | kOfObjects;

struct Metric {
  std::string_view name;
  bool larger_is_better;
  unsigned kinds;
  bool takes_class;
};

// For classes, `mae` is the error rate.
constexpr std::array<Metric, 18> kMetrics = {{{"loss", false, kOfAll, false},
                                              {"mae", false, kOfAll, false},
                                              {"mae_ratio", false, kOfAll, false},
                                              {"rmse", false, kOfNumbers | kOfObjects, false},
                                              {"r2", true, kOfNumbers | kOfObjects, false},
                                              {"accuracy", true, kOfClasses, false},
                                              {"mean_iou", true, kOfClasses, false},
                                              {"mean_dice", true, kOfClasses, false},
                                              {"mean_auc", true, kOfClasses, false},
                                              {"iou", true, kOfClasses, true},
                                              {"dice", true, kOfClasses, true},
                                              {"precision", true, kOfClasses | kOfObjects, true},
                                              {"recall", true, kOfClasses | kOfObjects, true},
                                              {"auc", true, kOfClasses, true},
                                              {"map", true, kOfObjects, false},
                                              {"mean_precision", true, kOfObjects, false},
                                              {"mean_recall", true, kOfObjects, false},
                                              {"ap", true, kOfObjects, true}}};

const Metric* metric_called(std::string_view name) {
  const auto found = std::ranges::find(kMetrics, name, &Metric::name);
  return found == kMetrics.end() ? nullptr : &*found;
}

}  // namespace

const char* name_of(TargetKind kind) {
  switch (kind) {
    case TargetKind::numbers:
      return "numbers";
    case TargetKind::classes:
      return "classes";
    case TargetKind::objects:
      return "objects";
  }
  return "";
}

bool MetricName::larger_is_better() const {
  const Metric* metric = metric_called(name);
  return metric != nullptr && metric->larger_is_better;
}

bool MetricName::is_of(TargetKind kind) const {
  const Metric* metric = metric_called(name);
  return metric == nullptr ? kind == TargetKind::numbers : (metric->kinds & bit_of(kind)) != 0;
}

std::string MetricName::kinds() const {
  std::vector<std::string> kinds;
  for (const TargetKind kind : kTargetKinds)
    if (is_of(kind)) kinds.emplace_back(name_of(kind));
  return text::join(kinds, " or ");
}

std::string MetricName::key() const {
  return of_class ? name + "_" + std::to_string(*of_class) : name;
}

std::string MetricName::text() const {
  return target.empty() ? key() : key() + "/" + target;
}

std::optional<MetricName> metric_named(std::string_view text) {
  MetricName metric;
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    metric.target = text.substr(slash + 1);
    if (metric.target.empty()) return std::nullopt;
    text = text.substr(0, slash);
  }
  metric.name = text;
  const Metric* plain = metric_called(text);
  if (plain != nullptr && !plain->takes_class) {
    if (metric.is_loss() && !metric.target.empty()) return std::nullopt;
    return metric;
  }
  const std::size_t mark = text.rfind('_');
  if (mark == std::string_view::npos) return std::nullopt;
  const auto number = text::to_integer(text.substr(mark + 1));
  metric.name = text.substr(0, mark);
  const Metric* of_class = metric_called(metric.name);
  if (of_class == nullptr || !of_class->takes_class || !number || *number < 0) return std::nullopt;
  metric.of_class = static_cast<std::size_t>(*number);
  return metric;
}

std::optional<MetricName> own_metric_named(std::string_view text, std::span<const std::string> own) {
  MetricName metric;
  const std::size_t slash = text.find('/');
  metric.name = text.substr(0, slash);
  if (slash != std::string_view::npos) metric.target = text.substr(slash + 1);
  if (slash != std::string_view::npos && metric.target.empty()) return std::nullopt;
  if (std::ranges::find(own, metric.name) == own.end()) return std::nullopt;
  return metric;
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& metric : kMetrics)
    names.push_back(std::string(metric.name) + (metric.takes_class ? "_N" : ""));
  return names;
}

}  // namespace wflow::trainer
