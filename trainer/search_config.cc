// SPDX-License-Identifier: Apache-2.0
#include "trainer/search_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/config_table.h"
#include "base/text.h"

namespace wflow::trainer {
namespace {

// A number, or a fraction such as 1/3.
std::optional<double> read_fraction(std::string_view written) {
  const std::size_t slash = written.find('/');
  if (slash == std::string_view::npos) return text::to_real(text::trim(written));
  const auto above = text::to_real(text::trim(written.substr(0, slash)));
  const auto below = text::to_real(text::trim(written.substr(slash + 1)));
  return above && below && *below > 0 ? std::optional(*above / *below) : std::nullopt;
}

void read_keep(yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
  const yaml::Node* node = reader.find(key);
  if (node == nullptr) return;
  const auto part = node->is_scalar() ? read_fraction(node->text) : std::nullopt;
  if (part && *part > 0 && *part < 1) {
    search.keep = *part;
    return;
  }
  reader.diagnostics().error(
      node->mark,
      fmt::format("'keep' must be a part between 0 and 1, such as 1/3; found {}", node->describe()));
}

void check_rungs(yaml::MapReader& reader, const std::vector<std::int64_t>& rungs) {
  const bool rise = std::ranges::adjacent_find(rungs, std::greater_equal<>()) == rungs.end();
  if (rungs.size() >= 2 && rise) return;
  reader.diagnostics().error(reader.mark_of("rungs"),
                             "'rungs' must be two or more numbers of epochs that rise, such as [2, 6, 18]");
}

bool is_in_campaign(const SearchConfig& search) {
  return !search.trainings.empty();
}

config::Json text_list_schema() {
  return {{"type", "array"}, {"items", {{"type", "string"}}}};
}

}  // namespace

const config::Table<SearchConfig>& search_table() {
  static const config::Table<SearchConfig> table(
      "the search: block",
      {config::text(
           "metric", &SearchConfig::metric,
           "`validation_loss`, `train_loss` or a [metric](#metrics) in validation such as `mean_iou` or "
           "`mae_ratio/TARGET`: its value at the rung's last epoch. Of two that are equal, the first in the "
           "study goes on"),
       config::custom<SearchConfig>(
           "keep", {{"type", {"string", "number"}}},
           "the part of a rung's trainings that goes on, as `1/3` or `0.25`; rounded down, one at least",
           read_keep, [](const SearchConfig& search) { return config::emit_real(search.keep); })
           .usually("1/3"),
       config::custom<SearchConfig>(
           "rungs", {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 1}}}, {"minItems", 2}},
           "epochs at which the trainings are ranked, rising; the last one is the full training",
           [](yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
             if (!reader.has(key)) return;
             search.rungs = reader.integers(key, 1, kMostEpochs);
             check_rungs(reader, search.rungs);
           },
           [](const SearchConfig& search) { return config::emit_integers(search.rungs); })
           .required(),
       config::custom<SearchConfig>(
           "rung", {{"type", "integer"}, {"minimum", 1}},
           "set by the campaign: the rung up to which to train",
           [](yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
             search.rung = reader.integer(key, 0, 1, std::max<std::int64_t>(1, std::ssize(search.rungs)));
           },
           [](const SearchConfig& search) -> std::optional<yaml::Node> {
             return search.rung > 0 ? std::optional(config::emit_integer(search.rung)) : std::nullopt;
           })
           .unlisted(),
       config::custom<SearchConfig>(
           "folders", text_list_schema(), "set by the campaign: folders of the rungs up to this one",
           [](yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
             search.folders = reader.strings(key);
           },
           [](const SearchConfig& search) -> std::optional<yaml::Node> {
             return is_in_campaign(search) ? std::optional(config::emit_texts(search.folders)) : std::nullopt;
           })
           .unlisted(),
       config::custom<SearchConfig>(
           "trainings", text_list_schema(),
           "set by the campaign: the trainings' outputs, below each of the folders",
           [](yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
             search.trainings = reader.strings(key);
           },
           [](const SearchConfig& search) -> std::optional<yaml::Node> {
             return is_in_campaign(search) ? std::optional(config::emit_texts(search.trainings))
                                           : std::nullopt;
           })
           .unlisted(),
       config::custom<SearchConfig>(
           "training", {{"type", "integer"}, {"minimum", 0}},
           "set by the campaign: the place of this training among them",
           [](yaml::MapReader& reader, std::string_view key, SearchConfig& search) {
             search.training =
                 reader.integer(key, 0, 0, std::max<std::int64_t>(0, std::ssize(search.trainings) - 1));
           },
           [](const SearchConfig& search) -> std::optional<yaml::Node> {
             return is_in_campaign(search) ? std::optional(config::emit_integer(search.training))
                                           : std::nullopt;
           })
           .unlisted()});
  return table;
}

SearchConfig read_search(const yaml::Node& block, yaml::Diagnostics& diagnostics) {
  SearchConfig search;
  if (block.is_map() || block.is_null()) {
    search_table().read(block, search, diagnostics);
  } else {
    yaml::MapReader(block, search_table().where(), diagnostics);
  }
  return search;
}

std::optional<MetricName> search_metric(std::string_view text, std::span<const std::string> own) {
  constexpr std::string_view kValidation = "validation_";
  if (text.starts_with(kValidation)) text.remove_prefix(kValidation.size());
  const std::optional<MetricName> metric = metric_named(text);
  return metric ? metric : own_metric_named(text, own);
}

void check_search_metric(const yaml::Node& block, const SearchConfig& search,
                         std::span<const std::string> own, yaml::Diagnostics& diagnostics) {
  if (search.metric == kTrainLoss || search_metric(search.metric, own)) return;
  std::vector<std::string> names = metric_names();
  names.insert(names.end(), own.begin(), own.end());
  names.insert(names.end(), {"validation_loss", std::string(kTrainLoss)});
  diagnostics.error(
      block.find("metric")->mark,
      fmt::format(
          "'metric' must be validation_loss, train_loss or a metric of the validation such as mean_iou or "
          "mae_ratio/TARGET (docs/train.md), found '{}'{}",
          search.metric, text::suggestion(search.metric, names)));
}

yaml::Node to_yaml(const SearchConfig& search) {
  return search_table().write(search);
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
