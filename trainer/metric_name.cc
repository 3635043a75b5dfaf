// SPDX-License-Identifier: Apache-2.0
#include "trainer/metric_name.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace wflow::trainer {
namespace {

struct Metric {
  std::string_view name;
  bool larger_is_better;
  bool of_classes;
  bool of_numbers;
  bool takes_class;
};

// For classes, `mae` is the error rate.
constexpr std::array<Metric, 14> kMetrics = {{{"loss", false, false, false, false},
                                              {"mae", false, false, false, false},
                                              {"mae_ratio", false, false, false, false},
                                              {"rmse", false, false, true, false},
                                              {"r2", true, false, true, false},
                                              {"accuracy", true, true, false, false},
                                              {"mean_iou", true, true, false, false},
                                              {"mean_dice", true, true, false, false},
                                              {"mean_auc", true, true, false, false},
                                              {"iou", true, true, false, true},
                                              {"dice", true, true, false, true},
                                              {"precision", true, true, false, true},
                                              {"recall", true, true, false, true},
                                              {"auc", true, true, false, true}}};

const Metric* metric_called(std::string_view name) {
  const auto found = std::ranges::find(kMetrics, name, &Metric::name);
  return found == kMetrics.end() ? nullptr : &*found;
}

}  // namespace

bool MetricName::larger_is_better() const {
  const Metric* metric = metric_called(name);
  return metric != nullptr && metric->larger_is_better;
}

bool MetricName::is_of_classes() const {
  const Metric* metric = metric_called(name);
  return metric != nullptr && metric->of_classes;
}

bool MetricName::is_of_numbers() const {
  const Metric* metric = metric_called(name);
  return metric != nullptr && metric->of_numbers;
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

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric& metric : kMetrics)
    names.push_back(std::string(metric.name) + (metric.takes_class ? "_N" : ""));
  return names;
}

}  // namespace wflow::trainer
