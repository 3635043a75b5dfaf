// SPDX-License-Identifier: Apache-2.0
#include "trainer/search_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/text.h"

namespace wflow::trainer {
namespace {

constexpr std::int64_t kMostEpochs = 100'000'000;  // the limit of 'epochs' too

// A number, or a fraction such as 1/3.
std::optional<double> read_fraction(std::string_view written) {
  const std::size_t slash = written.find('/');
  if (slash == std::string_view::npos) return text::to_real(text::trim(written));
  const auto above = text::to_real(text::trim(written.substr(0, slash)));
  const auto below = text::to_real(text::trim(written.substr(slash + 1)));
  return above && below && *below > 0 ? std::optional(*above / *below) : std::nullopt;
}

double read_keep(yaml::MapReader& reader, double fallback) {
  const yaml::Node* node = reader.find("keep");
  if (node == nullptr) return fallback;
  const auto part = node->is_scalar() ? read_fraction(node->text) : std::nullopt;
  if (part && *part > 0 && *part < 1) return *part;
  reader.diagnostics().error(
      node->mark,
      fmt::format("'keep' must be a part between 0 and 1, such as 1/3; found {}", node->describe()));
  return fallback;
}

void check_rungs(yaml::MapReader& reader, const std::vector<std::int64_t>& rungs) {
  const bool rise = std::ranges::adjacent_find(rungs, std::greater_equal<>()) == rungs.end();
  if (rungs.size() >= 2 && rise) return;
  reader.diagnostics().error(reader.mark_of("rungs"),
                             "'rungs' must be two or more numbers of epochs that rise, such as [2, 6, 18]");
}

void check_metric(yaml::MapReader& reader, const std::string& metric) {
  const std::array<std::string, 2> losses = {"validation_loss", "train_loss"};
  if (std::ranges::find(losses, metric) != losses.end()) return;
  if (metric.starts_with(kRatioMetric) && metric.size() > kRatioMetric.size()) return;
  reader.diagnostics().error(
      reader.mark_of("metric"),
      fmt::format("'metric' must be validation_loss, train_loss or validation_mae_ratio/TARGET, found '{}'{}",
                  metric, text::suggestion(metric, losses)));
}

yaml::Node quoted_list(const std::vector<std::string>& texts) {
  std::vector<yaml::Node> items;
  for (const std::string& text : texts) items.push_back(yaml::quoted(text));
  return yaml::sequence(std::move(items));
}

}  // namespace

SearchConfig read_search(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  yaml::MapReader reader(block, "the search: block", diagnostics);
  SearchConfig search;
  if (!block.is_map() && !block.is_null()) return search;
  search.metric = reader.string("metric", search.metric);
  check_metric(reader, search.metric);
  search.keep = read_keep(reader, search.keep);
  if (reader.required("rungs") != nullptr) {
    search.rungs = reader.integers("rungs", 1, kMostEpochs);
    check_rungs(reader, search.rungs);
  }
  search.rung = reader.integer("rung", 0, 1, std::max<std::int64_t>(1, std::ssize(search.rungs)));
  search.folders = reader.strings("folders");
  search.trainings = reader.strings("trainings");
  search.training =
      reader.integer("training", 0, 0, std::max<std::int64_t>(0, std::ssize(search.trainings) - 1));
  reader.finish();
  return search;
}

yaml::Node to_yaml(const SearchConfig& search) {
  std::vector<yaml::Node> rungs;
  for (const std::int64_t epochs : search.rungs) rungs.push_back(yaml::scalar(std::to_string(epochs)));
  yaml::Node node = yaml::map({{"metric", yaml::quoted(search.metric)},
                               {"keep", yaml::scalar(text::from_real(search.keep))},
                               {"rungs", yaml::sequence(std::move(rungs))}});
  const auto add = [&](const char* key, yaml::Node value) {
    node.entries.emplace_back(yaml::scalar(key), std::move(value));
  };
  if (search.rung > 0) add("rung", yaml::scalar(std::to_string(search.rung)));
  if (search.trainings.empty()) return node;
  add("folders", quoted_list(search.folders));
  add("trainings", quoted_list(search.trainings));
  add("training", yaml::scalar(std::to_string(search.training)));
  return node;
}

std::size_t trainings_in_rung(const SearchConfig& search, std::size_t trainings, std::size_t rung) {
  constexpr double kRounding = 1e-9;  // so that a third of nine is three
  for (std::size_t i = 1; i < rung; ++i) {
    const double kept = std::floor(static_cast<double>(trainings) * search.keep + kRounding);
    trainings = std::max<std::size_t>(1, static_cast<std::size_t>(kept));
  }
  return trainings;
}

}  // namespace wflow::trainer
