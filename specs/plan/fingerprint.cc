// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/versions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "converters/config.h"
#include "specs/plan/expansion.h"
#include "specs/samples/samples.h"
#include "specs/study/blocks.h"
#include "specs/study/tokens.h"
#include "trainer/config.h"
#include "trainer/search_config.h"

namespace wflow::specs {

namespace {

std::string without_path(std::string text, const std::string& campaign) {
  constexpr std::string_view kName = "$(CAMPAIGN)";
  for (std::size_t at = 0; (at = text.find(campaign, at)) != std::string::npos; at += kName.size())
    text.replace(at, campaign.size(), kName);
  return text;
}

// Adds the columns of the samples that the text names to `columns`.
std::string text_of(const Pieces& pieces, const SampleDesign* design, std::vector<std::string>& columns) {
  std::string text;
  for (const Piece& piece : pieces) {
    using Kind = Piece::Kind;
    if (piece.kind == Kind::literal) {
      text += piece.text;
      continue;
    }
    text += fmt::format("\x01{}", static_cast<int>(piece.kind));
    if (design == nullptr) continue;
    if (piece.kind == Kind::column || piece.kind == Kind::quoted_column) {
      columns.push_back(design->columns.at(piece.column).name);
      text += "\x01" + columns.back();
    } else if (piece.kind == Kind::sample_vector || piece.kind == Kind::samples_file) {
      for (const SampleColumn& column : design->columns) {
        columns.push_back(column.name);
        text += "\x01" + column.name;
      }
    }
  }
  return text;
}

void remove_keys(yaml::Node& node, std::initializer_list<const char*> keys) {
  for (const char* key : keys) remove_key(node, key);
}

// The block with its defaults and a fixed order of keys.
std::string convert_settings(converters::ConvertConfig config, bool closing) {
  // The blocks of a growing campaign stay unchanged if no sample moves.
  if (!closing && config.split.order != converters::SplitOrder::count) config.count = 0;
  if (!closing && config.count > 0 && !config.grown.empty()) config.count = config.grown.front();
  config.grown.clear();
  config.block_starts.clear();
  const converters::ConvertConfig defaults;
  config.delete_inputs = defaults.delete_inputs;
  if (!closing) {
    config.on_missing = defaults.on_missing;
    config.max_missing = defaults.max_missing;
    config.name = defaults.name;
  }
  config.output.clear();
  return yaml::emit(converters::to_yaml(config));
}

// The settings of a rung: its epochs, and the rule that selects its trainings. Later rungs do not affect it.
trainer::SearchConfig search_settings(trainer::SearchConfig search) {
  search.rungs.resize(static_cast<std::size_t>(search.rung));
  search.folders.clear();
  search.trainings.clear();  // the step depends on them
  if (search.rung > 1) return search;
  trainer::SearchConfig first;  // the first rung ranks no training
  first.rungs = search.rungs;
  first.rung = search.rung;
  return first;
}

std::string train_settings(trainer::TrainConfig config) {
  // Compares like the trainer itself (trainer/training/training_state.cc).
  if (config.init_from == trainer::kInitFromLast) config.init_from.clear();
  if (config.search.on()) config.search = search_settings(std::move(config.search));
  config.tournament.before.clear();  // the step depends on them
  config.follow.folders.clear();
  config.follow.source.clear();
  yaml::Node node = trainer::to_yaml(config);
  remove_keys(node, {"ranks", "threads", "loader_threads", "cache", "checkpoint", "guard", "max_seconds"});
  return yaml::emit(node);
}

std::string edges_text(const Plan& plan, ArrayId array) {
  std::string text;
  for (const Edge& edge : plan.edges(array))
    text += fmt::format("{} {} {}\n", plan.array_name(edge.parent), static_cast<int>(edge.kind), edge.block);
  return text;
}

}  // namespace

Basis Plan::basis(ArrayId array) const {
  const PlannedStep& planned = steps_[step_of(array)];
  const Step& step = study_->steps[planned.study_step];
  const std::uint32_t row = row_of(planned, array);
  const SampleDesign* design = study_->samples ? &study_->samples->design : nullptr;
  Basis basis;
  const auto add = [&](const char* name, const std::string& text) {
    basis.parts.emplace_back(name, without_path(text, campaign_.string()));
  };
  const auto rendered = [&](const std::string& text) {
    return text_of(pieces(text, planned, row, false), planned.sample_dependent ? design : nullptr,
                   basis.columns);
  };
  switch (planned.kind) {
    case StepKind::shell: {
      add("cmd", rendered(step.command));
      add("restart", step.restart.empty() ? "" : rendered(step.restart));
      add("shell", rendered(step.shell));
      add("env.sources", rendered(text::join(study_->sources, "\n")));
      break;
    }
    case StepKind::convert: {
      const bool closing = planned.block_samples == 0;
      const Block block = task_template(array).settings;
      const auto* config = std::get_if<converters::ConvertConfig>(&block);
      add("convert", config == nullptr ? yaml::emit(to_yaml(block)) : convert_settings(*config, closing));
      if (closing || config == nullptr) break;
      const RowColumns columns = row_columns(*config);
      basis.columns = columns.names;
      if (columns.all && design != nullptr) {
        std::string names;
        for (const SampleColumn& column : design->columns) {
          basis.columns.push_back(column.name);
          names += column.name + "\n";
        }
        add("columns", names);
      }
      break;
    }
    case StepKind::train: {
      const Block block = task_template(array).settings;
      const auto* config = std::get_if<trainer::TrainConfig>(&block);
      add("train", config == nullptr ? yaml::emit(to_yaml(block)) : train_settings(*config));
      break;
    }
    case StepKind::propose: {
      add("propose", yaml::emit(to_yaml(task_template(array).settings)));
      break;
    }
    case StepKind::plugin: {
      const TaskTemplate task = task_template(array);
      yaml::Node settings = written_block(array);
      if (const auto* plugin = std::get_if<PluginBlock>(&task.settings))
        set_key(settings, "library", yaml::quoted(plugin->library));
      set_key(settings, "bundle", yaml::scalar(std::to_string(task.bundle)));
      add("plugin", yaml::emit(settings));
      for (const SampleColumn& column : design->columns) basis.columns.push_back(column.name);
      break;
    }
  }
  std::sort(basis.columns.begin(), basis.columns.end());
  basis.columns.erase(std::unique(basis.columns.begin(), basis.columns.end()), basis.columns.end());
  add("bundle", std::to_string(step.bundle));
  if (study_->samples && (planned.sample_dependent || planned.kind == StepKind::convert))
    add("level_max_dirs",
        fmt::format("{} of {}", study_->samples->level_max_dirs, study_->samples->layout_count()));
  add("depends", edges_text(*this, array));
  return basis;
}

Basis basis_of(const Plan& plan, ArrayId array) {
  return plan.basis(array);
}

std::string fingerprint_of(const Plan& plan, ArrayId array) {
  const Basis basis = plan.basis(array);
  std::string text;
  for (const auto& [name, part] : basis.parts) text += fmt::format("{} {} {}\n", name, part.size(), part);
  for (const std::string& name : basis.columns) {
    const SampleDesign& design = plan.study().samples->design;
    const auto at = std::find_if(design.columns.begin(), design.columns.end(),
                                 [&](const SampleColumn& column) { return column.name == name; });
    if (at == design.columns.end()) continue;
    text +=
        name + " " + column_signature(design, static_cast<std::size_t>(at - design.columns.begin())) + "\n";
  }
  return hash_bytes(text);
}

std::vector<std::string> differing_parts(const Basis& from, const Basis& to) {
  std::vector<std::string> names;
  const auto text_in = [](const Basis& basis, const std::string& name) -> const std::string* {
    for (const auto& [part, text] : basis.parts) {
      if (part == name) return &text;
    }
    return nullptr;
  };
  for (const auto& [name, text] : to.parts) {
    const std::string* was = text_in(from, name);
    if (was == nullptr || *was != text) names.push_back(name);
  }
  for (const auto& [name, text] : from.parts) {
    if (text_in(to, name) == nullptr) names.push_back(name);
  }
  if (from.columns != to.columns && names.empty()) names.emplace_back("columns");
  return names;
}

}  // namespace wflow::specs
