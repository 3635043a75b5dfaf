// SPDX-License-Identifier: Apache-2.0
// Warns of columns of the samples that no step uses. A misspelt name often appears only here.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

class ColumnUse {
 public:
  ColumnUse(Reading& reading, const Expansion& expansion)
      : reading_(reading), expansion_(expansion), used_(reading.study.samples->design.columns.size()) {}

  void check() {
    look_below(reading_.root);
    for (const auto& [name, value] : reading_.study.labels) look_at(value, false);
    for (const Step& step : reading_.study.steps) look_at(step);
    if (!all_) report();
  }

 private:
  // The whole file except the samples themselves.
  void look_below(const yaml::Node& block) {
    for (const auto& [key, value] : block.entries) {
      if (key.text == "samples") continue;
      if (key.text == "merlin") {
        look_below(value);
      } else {
        for_each_scalar(value, [&](const yaml::Node& node, bool script) { look_at(node.text, script); });
      }
    }
  }

  void look_at(const std::string& text, bool script) {
    for (auto token = find_token(text); token; token = find_token(text, token->end)) {
      const auto kind = sample_token(token->name);
      if (const auto column = expansion_.column(token->name)) used_[*column] = true;
      if (token->name == "MERLIN_SAMPLE_NAMES" || kind == Piece::Kind::sample_vector ||
          kind == Piece::Kind::samples_file)
        all_ = true;
    }
    // A script may read the table itself.
    if (script && reads_table(text)) all_ = true;
  }

  bool reads_table(const std::string& script) const {
    const std::string file = std::filesystem::path(reading_.study.samples->design.file).filename().string();
    const auto names = [&](const std::string& what) { return script.find(what) != std::string::npos; };
    return names("merlin_info") || names("MERLIN_INFO") || names("samples.") ||
           (!file.empty() && names(file));
  }

  // Blocks that use columns by plain names, and all columns if they name none.
  void look_at(const Step& step) {
    if (step.kind == StepKind::shell) {
      all_ = all_ || step.bundle > 0;
      return;
    }
    for_each_scalar(step.settings, [&](const yaml::Node& node, bool) {
      if (const auto column = expansion_.column(node.text)) used_[*column] = true;
    });
    yaml::Diagnostics ignored("");  // of a study with errors, whose blocks have not been checked
    const Block block = step.block.index() == 0 ? read_block(step.kind, step.settings, ignored) : step.block;
    if (const auto* convert = std::get_if<converters::ConvertConfig>(&block)) {
      const RowColumns columns = row_columns(*convert);
      all_ = all_ || columns.all;
      for (const std::string& name : columns.names) {
        if (const auto column = expansion_.column(name)) used_[*column] = true;
      }
    }
    const auto* plugin = std::get_if<PluginBlock>(&block);
    if (plugin != nullptr && plugin->parameters.empty()) all_ = true;
  }

  void report() {
    std::vector<std::string> unused;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) unused.push_back(reading_.study.samples->design.columns[i].name);
    }
    if (unused.empty()) return;
    bool runs_for_samples = false;
    for (std::size_t i = 0; i < reading_.study.steps.size(); ++i)
      runs_for_samples = runs_for_samples || expansion_.sample_dependent(i);
    const yaml::Mark mark = place_of_column(unused.front());
    if (!runs_for_samples) {
      reading_.diagnostics.warning(
          mark,
          fmt::format("no step uses the samples, so that each step runs once; name a column in a cmd, for "
                      "example $({})",
                      unused.front()));
      return;
    }
    for (std::string& name : unused) name = "'" + name + "'";
    reading_.diagnostics.warning(mark, fmt::format("nothing uses the column{} {} of the samples",
                                                   unused.size() == 1 ? "" : "s", text::join(unused, ", ")));
  }

  // The place where the samples name it; otherwise their beginning.
  yaml::Mark place_of_column(const std::string& name) const {
    const yaml::Node* samples = reading_.root.find("samples");
    const yaml::Node* merlin = reading_.root.find("merlin");
    if (samples == nullptr && merlin != nullptr) samples = merlin->find("samples");
    yaml::Mark mark = reading_.study.samples->mark;
    bool found = false;
    if (samples == nullptr) return mark;
    for_each_scalar(*samples, [&](const yaml::Node& node, bool) {
      if (!found && node.text == name && node.mark.line > 0) mark = node.mark;
      found = found || node.text == name;
    });
    return mark;
  }

  Reading& reading_;
  const Expansion& expansion_;
  std::vector<bool> used_;
  bool all_ = false;
};

}  // namespace

void check_columns(Reading& reading, const Expansion& expansion) {
  if (reading.study.samples && !reading.diagnostics.has_errors()) ColumnUse(reading, expansion).check();
}

}  // namespace wflow::specs
