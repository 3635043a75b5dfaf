// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "specs/plan/plan.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

std::string plural(std::uint64_t count, std::string_view word) {
  return fmt::format("{} {}{}", text::format_count(count), word, count == 1 ? "" : "s");
}

std::string edge_text(const Edge& edge, const std::string& parent) {
  switch (edge.kind) {
    case EdgeKind::element:
      return fmt::format("{} (sample by sample)", parent);
    case EdgeKind::block:
      return fmt::format("{} (blocks of {})", parent, edge.block);
    case EdgeKind::all:
      break;
  }
  return fmt::format("{} (all)", parent);
}

std::string resources_text(const PlannedStep& step) {
  const Resources& r = step.resources;
  std::string text = r.procs > 1 ? fmt::format("{} processes of {}", r.procs,
                                               plural(static_cast<std::uint64_t>(r.cores), "core"))
                                 : plural(static_cast<std::uint64_t>(r.cores), "core");
  if (r.nodes > 1) text += fmt::format(" on {} nodes", r.nodes);
  if (r.gpus > 0) text += ", " + plural(static_cast<std::uint64_t>(r.gpus), "GPU");
  if (r.memory_bytes > 0) text += ", " + text::format_bytes(static_cast<std::uint64_t>(r.memory_bytes));
  return text;
}

std::string indented(std::string_view title, std::string_view body) {
  std::string result;
  for (const std::string& line : text::split(text::trim(body), '\n')) {
    result += fmt::format("  {:<7}{}\n", result.empty() ? title : "", line);
  }
  return result;
}

class Describer {
 public:
  explicit Describer(const Plan& plan) : plan_(plan) {
    const auto& samples = plan.study().samples;
    if (samples && samples->design.count > 0) table_ = open_samples(samples->design);
  }

  std::string describe() const {
    const Study& study = plan_.study();
    std::string result = fmt::format("study {}\n", study.name);
    result += specs::describe(study.format) + "\n";
    result += fmt::format("campaign {}\n", plan_.campaign().string());
    if (study.samples) result += samples_text(*study.samples);
    if (!study.parameters.empty()) {
      result += fmt::format("parameters {}: {}\n", names_of(study.parameters),
                            plural(study.parameters.front().values.size(), "combination"));
    }
    for (const PlannedStep& step : plan_.steps()) result += step_text(step);
    result += fmt::format("\n{}, {}, {}\n", plural(plan_.steps().size(), "step"),
                          plural(plan_.array_count(), "array"), plural(plan_.element_count(), "task"));
    return result;
  }

 private:
  template <typename List>
  static std::string names_of(const List& list) {
    std::vector<std::string> names;
    for (const auto& item : list) names.push_back(item.name);
    return text::join(names, ", ");
  }

  static std::string samples_text(const Samples& samples) {
    const SampleDesign& design = samples.design;
    const std::string count =
        design.count == 0 ? "as many as samples: generate: makes" : text::format_count(design.count);
    return fmt::format(
        "samples {}: {}, {}\n", names_of(design.columns), count,
        design.kind == DesignKind::file ? design.file.string() : std::string(name_of(design.kind)));
  }

  std::string step_text(const PlannedStep& step) const {
    std::string result = fmt::format("\n{} ({}): ", step.name, name_of(step.kind));
    if (step.arrays > 1) result += plural(step.arrays, "combination") + " x ";
    result += fmt::format("{}, {}\n", plural(step.elements, "task"), resources_text(step));
    std::vector<std::string> after;
    for (const Edge& edge : step.edges)
      after.push_back(edge_text(edge, plan_.steps()[plan_.step_of(edge.parent)].name));
    if (!after.empty()) result += fmt::format("  after  {}\n", text::join(after, ", "));
    result += keys_text(step);
    if (step.bundle > 0) return result + bundle_text(step);
    const ArrayId last = step.first_array + step.arrays - 1;
    result += task_text("first", step, step.first_array, 0);
    if (step.arrays > 1 || step.elements > 1) result += task_text("last", step, last, step.elements - 1);
    return result;
  }

  // The keys of the study other than the command.
  std::string keys_text(const PlannedStep& planned) const {
    const Step& step = plan_.study().steps[planned.study_step];
    std::string result;
    if (!step.when.empty()) result += indented("when", step.when);
    std::vector<std::string> with;
    if (planned.priority != 0) with.push_back(fmt::format("priority {}", planned.priority));
    if (planned.continue_on) with.push_back(fmt::format("continue_on {}", name_of(*planned.continue_on)));
    if (step.output == OutputMode::packed) with.emplace_back("packed output");
    if (planned.bundle > 0) with.push_back("bundles of " + plural(planned.bundle, "sample"));
    if (!with.empty()) result += indented("with", text::join(with, ", "));
    std::vector<std::string> outputs;
    for (const StepOutput& output : step.outputs) outputs.push_back(output_text(output));
    if (!outputs.empty()) result += indented("leaves", text::join(outputs, ", "));
    return result;
  }

  static std::string output_text(const StepOutput& output) {
    std::string result = output.file;
    if (!output.dataset.empty()) result += ":" + output.dataset;
    if (!output.shape.empty()) result += fmt::format(" [{}]", fmt::join(output.shape, ", "));
    return output.finite ? result + " finite" : result;
  }

  std::string bundle_text(const PlannedStep& step) const {
    const TaskTemplate task = plan_.task_template(step.first_array);
    return indented("first", "in " + task.workspace) + indented("", template_text(plan_, task.command));
  }

  std::string task_text(const char* title, const PlannedStep& step, ArrayId array,
                        std::uint64_t element) const {
    const TaskTemplate task = plan_.task_template(array);
    if (step.elements == 0) return indented("each", template_text(plan_, task.command));
    std::string where = task.workspace;
    const bool has_own =
        task.sample_dependent && (task.kind == StepKind::shell || task.kind == StepKind::plugin);
    const Blocks bundles(std::max<std::uint64_t>(task.bundle, 1), task.sample_starts);
    const std::uint64_t directories = bundles.count(layout_of(task));
    if (has_own && (directories > 1 || bundles.block_of(element) > 0))
      where += "/" + sample_path(bundles.block_of(element), directories, task.level_max_dirs);
    std::string result = indented(title, "in " + where);
    if (task.kind == StepKind::plugin) {
      const BlockRange bundle = bundles.around(element, task.sample_count);
      return result + indented("", fmt::format("samples {} to {}", bundle.first, bundle.end - 1));
    }
    if (task.kind == StepKind::shell) {
      return result +
             indented("", command_text(task.command, bundles.around(element, task.sample_count).first,
                                       table_.get(), layout_of(task), task.level_max_dirs));
    }
    if (task.kind == StepKind::convert && task.block_samples > 0) {
      const BlockRange block =
          Blocks(task.block_samples, task.sample_starts).items(element, task.sample_count);
      return result + indented("", fmt::format("samples {} to {}", block.first, block.end - 1));
    }
    if (task.kind == StepKind::convert) return result + indented("", "manifest.json of all shards");
    return result + indented("", yaml::emit(plan_.written_block(array)));
  }

  const Plan& plan_;
  std::unique_ptr<const SampleTable> table_;
};

}  // namespace

std::string describe(const Plan& plan) {
  return Describer(plan).describe();
}

std::string template_text(const Plan& plan, const Pieces& pieces) {
  std::string result;
  for (const Piece& piece : pieces) {
    switch (piece.kind) {
      case Piece::Kind::literal:
        result += piece.text;
        break;
      case Piece::Kind::column:
        result += "$(" + plan.study().samples->design.columns[piece.column].name + ")";
        break;
      case Piece::Kind::quoted_column:
        result += fmt::format("$({}{})", kQuote, plan.study().samples->design.columns[piece.column].name);
        break;
      case Piece::Kind::sample_id:
        result += "$(MERLIN_SAMPLE_ID)";
        break;
      case Piece::Kind::sample_path:
        result += "$(MERLIN_SAMPLE_PATH)";
        break;
      case Piece::Kind::sample_vector:
        result += "$(MERLIN_SAMPLE_VECTOR)";
        break;
      case Piece::Kind::samples_file:
        result += "$(WFLOW_SAMPLES_FILE)";
        break;
      case Piece::Kind::first_sample:
        result += "$(WFLOW_FIRST)";
        break;
      case Piece::Kind::sample_count:
        result += "$(WFLOW_COUNT)";
        break;
    }
  }
  return result;
}

std::string command_text(const Pieces& pieces, std::uint64_t sample, const SampleTable* table,
                         std::uint64_t count, std::uint32_t level_max_dirs) {
  std::string result;
  for (const Piece& piece : pieces) {
    switch (piece.kind) {
      case Piece::Kind::literal:
        result += piece.text;
        break;
      case Piece::Kind::column:
        if (table != nullptr) result += table->text(sample, piece.column);
        break;
      case Piece::Kind::quoted_column:
        if (table != nullptr) result += text::shell_quote(table->text(sample, piece.column));
        break;
      case Piece::Kind::sample_id:
        result += std::to_string(sample);
        break;
      case Piece::Kind::sample_path:
        result += sample_path(sample, count, level_max_dirs);
        break;
      case Piece::Kind::sample_vector:
        for (std::size_t i = 0; table != nullptr && i < table->columns().size(); ++i) {
          if (i > 0) result += ' ';
          result += table->text(sample, i);
        }
        break;
      case Piece::Kind::samples_file:
        result += "$(WFLOW_SAMPLES_FILE)";
        break;
      case Piece::Kind::first_sample:
        result += std::to_string(sample);
        break;
      case Piece::Kind::sample_count:
        result += "$(WFLOW_COUNT)";
        break;
    }
  }
  return result;
}

}  // namespace wflow::specs
