// SPDX-License-Identifier: Apache-2.0
// `wflow plan` and `wflow validate`: the memory that each grid of a training's ranks needs. wflow-train
// counts it, from the manifest of the data set.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/campaign/campaigns.h"
#include "cli/commands/run.h"
#include "specs/plan/workspace.h"
#include "specs/study/blocks.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;

constexpr double kMostSeconds = 120;
constexpr std::uint32_t kMostCounted = 8;  // parameter combinations of a step

bool is_there(const std::string& data) {
  std::error_code none;
  return fs::exists(fs::path(data) / "manifest.json", none);
}

bool has_plan(const std::string& output) {
  std::error_code none;
  return fs::exists(fs::path(output) / "plan.json", none);
}

bool leaves_to_planner(const trainer::TrainConfig& config) {
  return config.memory > 0 || config.grid.choice != trainer::GridChoice::given;
}

const trainer::TrainConfig* config_of(const specs::TaskTemplate& task) {
  return std::get_if<trainer::TrainConfig>(&task.settings);
}

// The same study in its last campaign, which may have the data sets.
std::optional<specs::Plan> last_campaign(const specs::Study& study) {
  const auto last = last_campaign_of(study);
  if (!last) return std::nullopt;
  try {
    specs::require_trusted(*last);
    return specs::Plan(study, *last);
  } catch (const Error&) {
    return std::nullopt;  // of another user: as if it were not there
  }
}

CommandResult count(const trainer::TrainConfig& config, TrainingForm form) {
  const FileDescriptor file(::memfd_create("train.yaml", MFD_CLOEXEC));
  if (!file) throw system_error(errno, "cannot make a file in memory");
  write_all(file.get(), yaml::emit(specs::to_yaml(specs::Block(config))), "train.yaml");
  SpawnRequest request;
  request.argv = {sibling_program("wflow-train"), "/dev/stdin", "--plan"};
  if (form == TrainingForm::json) request.argv.emplace_back("--json");
  request.stdin_fd = file.get();
  return run_command(request, kMostSeconds);
}

std::string reason_in(const CommandResult& result) {
  constexpr std::string_view kProgram = "wflow-train: ";
  std::string reason(text::trim(result.err));
  if (const std::size_t at = reason.rfind(kProgram); at != std::string::npos)
    reason.erase(0, at + kProgram.size());
  return reason;
}

class TrainingCounter {
 public:
  TrainingCounter(const specs::Plan& plan, bool all, TrainingForm form)
      : plan_(plan), all_(all), form_(form), campaign_(last_campaign(plan.study())) {}

  // Nothing for a training that is left out.
  std::optional<TrainingMemory> memory_of(const specs::PlannedStep& step) const {
    TrainingMemory memory;
    memory.step = step.name;
    const std::uint32_t arrays = std::min(step.arrays, kMostCounted);
    for (specs::ArrayId array = step.first_array; array < step.first_array + arrays; ++array) {
      const specs::TaskTemplate task = plan_.task_template(array);
      const trainer::TrainConfig* config = config_of(task);
      const bool first = array == step.first_array;
      if (config == nullptr || (!leaves_to_planner(*config) && !(all_ && first))) continue;
      add(array, *config, step, memory);
    }
    if (memory.text.empty() && memory.refusals.empty() && memory.json.empty()) return std::nullopt;
    return memory;
  }

 private:
  void add(specs::ArrayId array, trainer::TrainConfig config, const specs::PlannedStep& step,
           TrainingMemory& memory) const {
    const std::string name = plan_.array_name(array);
    const bool shown = form_ == TrainingForm::json || memory.text.empty();
    const std::optional<trainer::TrainConfig> earlier = earlier_training(array);
    if (!is_there(config.data)) {
      if (!earlier || !is_there(earlier->data)) {
        if (shown) say(name, missing(step, config.data), memory);
        return;
      }
      config.data = earlier->data;
      memory.is_earlier = true;
    }
    // The plan with its seconds, if there is one, is that of the last campaign.
    if (earlier && !has_plan(config.output)) config.output = earlier->output;
    const CommandResult result = count(config, form_);
    const bool counted =
        result.status == 0 || (result.status == static_cast<int>(ExitCode::spec) && !result.out.empty());
    if (!counted) {
      if (shown) say(name, fmt::format("{}: not known: {}\n", name, reason_in(result)), memory);
      return;
    }
    if (result.status != 0) memory.refusals.push_back({name, config.data, reason_in(result)});
    if (!shown) return;
    if (form_ == TrainingForm::json) {
      nlohmann::ordered_json entry = {
          {"training", name}, {"data", config.data}, {"earlier_data", memory.is_earlier}};
      entry.update(nlohmann::ordered_json::parse(result.out));
      memory.json.push_back(std::move(entry));
      return;
    }
    memory.text = fmt::format("{} on {} rank{}, with the data set {}\n{}", name, config.ranks,
                              config.ranks == 1 ? "" : "s", short_name(config.data), result.out);
  }

  // In place of a table.
  void say(const std::string& training, std::string sentence, TrainingMemory& memory) const {
    if (form_ == TrainingForm::json) {
      memory.json.push_back({{"training", training}, {"missing", text::trim(sentence)}});
    } else {
      memory.text = std::move(sentence);
    }
  }

  std::optional<trainer::TrainConfig> earlier_training(specs::ArrayId array) const {
    if (!campaign_ || array >= campaign_->array_count()) return std::nullopt;
    const specs::TaskTemplate task = campaign_->task_template(array);
    const trainer::TrainConfig* config = config_of(task);
    if (config == nullptr) return std::nullopt;
    return *config;
  }

  std::string missing(const specs::PlannedStep& step, const std::string& data) const {
    const std::string source = specs::source_step(plan_.study().steps[step.study_step]);
    if (source.empty())
      return fmt::format(
          "{}: the data set {} is not there: once it is, wflow plan shows what the training needs\n",
          step.name, data);
    return fmt::format(
        "{}: there is no data set of the step '{}' yet: after wflow run --until {}, wflow plan shows what "
        "the "
        "training needs\n",
        step.name, source, source);
  }

  const specs::Plan& plan_;
  const bool all_;
  const TrainingForm form_;
  const std::optional<specs::Plan> campaign_;
};

// True for a step that trains the same network in the same memory as an earlier step: in a search, every rung
// after the first one; in a tournament that runs as tasks, every task but the first part of trainer 1.
bool repeats_a_training(const specs::Plan& plan, const specs::PlannedStep& planned) {
  const specs::Step& step = plan.study().steps[planned.study_step];
  if (const auto part = specs::tournament_part(step))
    return part->ranks || part->part != 1 || part->trainer != 1;
  const auto rung = specs::search_rung(step);
  return rung && rung->rung > 1;
}

}  // namespace

nlohmann::ordered_json trainings_json(const std::vector<TrainingMemory>& trainings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const TrainingMemory& training : trainings)
    for (const nlohmann::ordered_json& entry : training.json) all.push_back(entry);
  return all;
}

std::vector<TrainingMemory> training_memory(const specs::Plan& plan, bool all, TrainingForm form) {
  std::vector<TrainingMemory> found;
  const bool trains = std::ranges::any_of(
      plan.steps(), [](const specs::PlannedStep& step) { return step.kind == specs::StepKind::train; });
  if (!trains) return found;
  const TrainingCounter counter(plan, all, form);
  for (const specs::PlannedStep& step : plan.steps()) {
    if (step.kind != specs::StepKind::train || repeats_a_training(plan, step)) continue;
    try {
      if (auto memory = counter.memory_of(step)) found.push_back(std::move(*memory));
    } catch (const Error& error) {  // there is no wflow-train
      found.push_back(
          {step.name,
           fmt::format("{}: {}\n", step.name, error.what()),
           {},
           false,
           nlohmann::ordered_json::array({{{"training", step.name}, {"missing", error.what()}}})});
    }
  }
  return found;
}

}  // namespace wflow::cli
