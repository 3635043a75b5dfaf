// SPDX-License-Identifier: Apache-2.0
// The results of finished trainings, from the result.json beside each model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "cli/top/words.h"
#include "cli/view/status.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownResults = 4;

// Null if it is not there or no result of wflow-train.
nlohmann::json read_result(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  nlohmann::json result = nlohmann::json::parse(read_file(file), nullptr, false);
  const bool whole = result.is_object() && result.contains("test") && result["test"].is_object() &&
                     result["test"].contains("targets") && result["test"]["targets"].is_object();
  return whole ? result : nlohmann::json();
}

std::optional<double> number_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

// Its directory, from the name of an iteration ("iterations/003") or of a campaign ("study_20261121-160001").
std::optional<fs::path> campaign_before(const fs::path& campaign) {
  const std::string name = campaign.filename().string();
  if (campaign.parent_path().filename() == "iterations") {
    const auto number = text::to_integer(name);
    if (!number || *number < 2) return std::nullopt;
    if (*number == 2) return campaign.parent_path().parent_path();
    return campaign.parent_path() / fmt::format("{:03}", *number - 1);
  }
  const std::size_t mark = name.rfind('_');
  if (mark == std::string::npos) return std::nullopt;
  std::string before;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(campaign.parent_path(), ignored)) {
    const std::string other = entry.path().filename().string();
    const bool earlier =
        other < name && other.size() == name.size() && other.starts_with(name.substr(0, mark + 1));
    if (earlier && fs::exists(entry.path() / ".wflow", ignored)) before = std::max(before, other);
  }
  return before.empty() ? std::nullopt : std::optional(campaign.parent_path() / before);
}

std::string cell_of(std::optional<double> value) {
  return value ? fmt::format("{:.4g}", *value) : "-";
}

// "0.085, before 0.102: 17 % better"; ratios: less is better.
std::string change_text(double now, double before, const fs::path& where) {
  const double change = before != 0 ? 100 * (before - now) / std::abs(before) : 0;
  const std::string words =
      std::abs(change) < 0.05 ? "no change"
                              : fmt::format("{:.3g} % {}", std::abs(change), change > 0 ? "better" : "worse");
  return fmt::format("{:.3g}, before {:.3g}: {} ({})", now, before, words, where.string());
}

std::string network_text(const nlohmann::json& result) {
  std::vector<std::string> parts;
  const nlohmann::json model = result.value("model", nlohmann::json::object());
  if (model.is_object() && model.contains("name") && model["name"].is_string()) {
    std::string network = model["name"].get<std::string>();
    if (const auto parameters = number_in(model, "parameters"))
      network += " with " + top::counted(static_cast<std::uint64_t>(*parameters), "parameter");
    parts.push_back(std::move(network));
  }
  const auto selected = number_in(result, "selected_epoch");
  const auto epochs = number_in(result, "epochs");
  if (selected && epochs)
    parts.push_back(fmt::format("the weights of epoch {:.0f} of {:.0f}", *selected, *epochs));
  if (result.contains("members") && result["members"].is_array())
    parts.push_back(top::counted(result["members"].size(), "member"));
  return text::join(parts, ", ");
}

std::vector<nlohmann::json> items_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array()
             ? std::vector<nlohmann::json>(found->begin(), found->end())
             : std::vector<nlohmann::json>();
}

// "  tournament: the best of 4 models is that of trainer 2 (validation loss 0.012, 0.015, 0.02, 0.031); 9
// rounds, 11 models replaced"; empty without one.
std::string tournament_line(const nlohmann::json& result) {
  const nlohmann::json tournament = result.value("tournament", nlohmann::json::object());
  if (!tournament.is_object()) return {};
  const auto best = number_in(tournament, "best");
  const auto rounds = number_in(tournament, "rounds");
  const std::vector<nlohmann::json> metrics = items_in(tournament, "metrics");
  const std::vector<nlohmann::json> ranking = items_in(tournament, "ranking");
  if (!best || !rounds || metrics.empty() || !metrics.front().is_string()) return {};
  const auto metric = metrics.front().get<std::string>();
  std::vector<std::string> values;
  for (const nlohmann::json& entry : ranking)
    if (entry.is_object() && entry.contains("validation") && entry["validation"].is_object())
      values.push_back(cell_of(number_in(entry["validation"], metric.c_str())));
  std::uint64_t taken = 0;
  for (const nlohmann::json& bout : items_in(tournament, "bouts"))
    if (bout.is_object() && bout.contains("took") && bout["took"] == true) ++taken;
  return fmt::format(
      "  tournament: the best of {} models is that of trainer {:.0f} (validation {} {}); {}, {} replaced",
      ranking.size(), *best, metric, text::join(values, ", "),
      top::counted(static_cast<std::uint64_t>(*rounds), "round"), top::counted(taken, "model"));
}

// "  events: accuracy 0.9812, mean IoU 0.6103 (0 0.981, 1 0.402, 2 0.448)"; empty for numbers.
std::string classes_line(const std::string& target, const nlohmann::json& errors) {
  constexpr std::size_t kMostListed = 16;
  if (!errors.is_object() || !errors.contains("mean_iou")) return {};
  std::vector<std::string> each;
  const nlohmann::json classes = errors.value("classes", nlohmann::json::array());
  for (std::size_t k = 0; k < classes.size() && classes.size() <= kMostListed; ++k)
    if (const auto iou = number_in(classes[k], "iou")) each.push_back(fmt::format("{} {:.3f}", k, *iou));
  return fmt::format("  {}: accuracy {}, mean IoU {}{}", target, cell_of(number_in(errors, "accuracy")),
                     cell_of(number_in(errors, "mean_iou")),
                     each.empty() ? "" : " (" + text::join(each, ", ") + ")");
}

// "  event: map 0.912, mean_precision 0.8"; empty for a target without further metrics.
std::string metrics_line(const std::string& target, const nlohmann::json& errors) {
  if (!errors.is_object() || !errors.contains("metrics") || !errors["metrics"].is_object()) return {};
  std::vector<std::string> each;
  for (const auto& [name, value] : errors["metrics"].items())
    each.push_back(name + " " + cell_of(number_in(errors["metrics"], name.c_str())));
  return fmt::format("  {}: {}", target, text::join(each, ", "));
}

// The sentence of the training about a node that its ranks waited for; empty if there was none.
std::string slow_node_of(const nlohmann::json& result) {
  const auto ranks = result.find("ranks_this_segment");
  if (ranks == result.end() || !ranks->is_object()) return {};
  const auto slow = ranks->find("slow");
  return slow != ranks->end() && slow->is_string() ? slow->get<std::string>() : std::string();
}

// "  plan: 433.3 MiB a rank predicted, 410.1 MiB measured (+6 %); 0.563 s a step predicted, 0.58 s measured
// (-3 %)"; empty for a training without a plan.
std::string plan_line(const nlohmann::json& result) {
  const nlohmann::json prediction = result.value("prediction", nlohmann::json::object());
  if (!result.contains("plan") || !prediction.is_object()) return {};
  std::vector<std::string> parts;
  const auto add = [&](const char* key, const char* what, const auto& text_of_number) {
    if (!prediction.contains(key) || !prediction[key].is_object()) return;
    const auto predicted = number_in(prediction[key], "predicted");
    const auto measured = number_in(prediction[key], "measured");
    const auto error = number_in(prediction[key], "error_percent");
    if (predicted && measured && error)
      parts.push_back(fmt::format("{} {} predicted, {} measured ({:+.0f} %)", text_of_number(*predicted),
                                  what, text_of_number(*measured), *error));
  };
  add("memory_bytes", "a rank",
      [](double bytes) { return text::format_bytes(static_cast<std::uint64_t>(std::max(0.0, bytes))); });
  add("step_seconds", "a step", [](double seconds) { return fmt::format("{:.3g} s", seconds); });
  return parts.empty() ? std::string() : "  plan: " + text::join(parts, "; ");
}

std::vector<std::string> lines_of_result(const nlohmann::json& result, const std::string& name,
                                         const fs::path& file, const fs::path& campaign,
                                         const Terminal& terminal) {
  std::vector<std::string> lines = {
      fmt::format("{}: {}", styled(terminal, Style::bold, name), network_text(result))};
  Table table({"  test error of", "mean abs", "of the mean guess", "R2"});
  for (const auto& [target, errors] : result["test"]["targets"].items()) {
    if (!errors.is_object()) continue;
    table.add({{"  " + target},
               {cell_of(number_in(errors, "mae"))},
               {cell_of(number_in(errors, "mae_ratio"))},
               {cell_of(number_in(errors, "r2"))}});
  }
  for (std::string& line : table.whole_lines(terminal)) lines.push_back(std::move(line));
  for (const auto& [target, errors] : result["test"]["targets"].items())
    for (std::string line : {classes_line(target, errors), metrics_line(target, errors)})
      if (!line.empty()) lines.push_back(std::move(line));
  if (const std::string slow = slow_node_of(result); !slow.empty()) lines.push_back("  " + slow);
  for (std::string line : {tournament_line(result), plan_line(result)})
    if (!line.empty()) lines.push_back(std::move(line));
  const auto now = number_in(result["test"], "mean_mae_ratio");
  const auto where = campaign_before(campaign);
  if (!now || !where) return lines;
  const fs::path earlier = *where / file.lexically_relative(campaign);
  const nlohmann::json before = read_result(earlier);
  if (const auto ratio = before.is_null() ? std::nullopt : number_in(before["test"], "mean_mae_ratio"))
    lines.push_back("  ratio of mean errors: " + change_text(*now, *ratio, earlier.parent_path()));
  return lines;
}

}  // namespace

std::vector<std::string> training_results(const engine::CampaignStatus& status, const Terminal& terminal) {
  std::vector<std::string> lines;
  std::size_t results = 0;
  for (const engine::ArtifactView& artifact : status.artifacts) {
    if (artifact.kind != "model") continue;
    const fs::path file = fs::path(artifact.path).parent_path() / "result.json";
    const nlohmann::json result = read_result(file);
    if (result.is_null() || ++results > kShownResults) continue;
    const fs::path campaign = status.directory;
    const std::string name = file.parent_path().lexically_relative(campaign).string();
    lines.emplace_back();
    for (std::string& line : lines_of_result(result, name, file, campaign, terminal))
      lines.push_back(std::move(line));
  }
  if (results > kShownResults)
    lines.push_back(fmt::format("and {} with a result.json beside their models",
                                top::counted(results - kShownResults, "other training")));
  return lines;
}

}  // namespace wflow::cli
