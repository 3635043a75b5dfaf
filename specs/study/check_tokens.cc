// SPDX-License-Identifier: Apache-2.0
// Checks every $(NAME) that remains after the variables: it must be known and allowed at its place. In
// scripts some are not tokens but the shell's $(command).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/process.h"
#include "base/text.h"
#include "specs/plan/expansion.h"
#include "specs/plan/launcher.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

constexpr std::uint64_t kMostPaths = 1'000'000;

bool is_identifier(std::string_view name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) && name.front() != '-' &&
         name.front() != '.' && std::all_of(name.begin(), name.end(), fits);
}

bool is_shouted(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

class TokenChecker {
 public:
  TokenChecker(Reading& reading, const Expansion& expansion) : reading_(reading), expansion_(expansion) {
    const Study& study = reading.study;
    for (const auto& [name, value] : study.variables) known_.push_back(name);
    for (const Parameter& parameter : study.parameters) {
      for (const char* suffix : {"", ".label", ".name"}) anywhere_.insert(parameter.name + suffix);
      known_.push_back(parameter.name);
    }
    for (const auto& [name, value] : study.labels) {
      for (const std::string& spelling : {name, upper(name)}) anywhere_.insert(spelling);
      labels_.insert({name, upper(name)});
      known_.push_back(name);
    }
    for (const Step& step : study.steps) {
      const std::string name = step.name + std::string(kWorkspaceSuffix);
      anywhere_.insert(name);
      workspaces_.push_back(name);
    }
    if (study.samples) {
      for (const SampleColumn& column : study.samples->design.columns) columns_.push_back(column.name);
      known_.insert(known_.end(), columns_.begin(), columns_.end());
    }
    known_.insert(known_.end(), reserved_names().begin(), reserved_names().end());
    known_.insert(known_.end(), workspaces_.begin(), workspaces_.end());
    for (const char* name : {"OUTPUT_PATH"}) known_.emplace_back(name);
    if (study.iterate) known_.insert(known_.end(), iteration_names().begin(), iteration_names().end());
  }

  void check_all() {
    for (const auto& [key, value] : reading_.root.entries) {
      if (key.text == "user" || key.text == "study" || key.text == "on") continue;
      // Text that steps insert may use names that only steps have.
      const bool for_steps = key.text == "env" || key.text == "global.parameters" || key.text == "parameters";
      step_ = nullptr;
      for_each_scalar(value, [&](const yaml::Node& node, bool script) { check(node, script, for_steps); });
    }
    for (const Step& step : reading_.study.steps) {
      const auto at = reading_.step_nodes.find(step.name);
      if (at == reading_.step_nodes.end()) continue;
      step_ = &step;
      find_places(*at->second);
      for_each_scalar(*at->second, [&](const yaml::Node& node, bool script) { check(node, script, true); });
    }
  }

 private:
  // The scalars of outputs:, which may differ from sample to sample as scripts do, and when:, which
  // check_conditions() looks at.
  void find_places(const yaml::Node& step) {
    outputs_.clear();
    when_ = nullptr;
    for (const yaml::Node* home : {step.find("run"), &step}) {
      if (home == nullptr) continue;
      if (const yaml::Node* when = home->find("when")) when_ = when;
      const yaml::Node* list = home->find("outputs");
      if (list == nullptr) continue;
      for_each_scalar(*list, [&](const yaml::Node& node, bool) { outputs_.insert(&node); });
    }
    const yaml::Node* convert = step.find("convert");
    converted_.clear();
    if (convert != nullptr) {
      for (const yaml::Node* node : convert_file_nodes(*convert)) converted_.insert(node);
    }
  }

  void check(const yaml::Node& node, bool script, bool for_steps) {
    const std::string_view text = node.text;
    if (step_ != nullptr && &node == when_) return;
    if (step_ != nullptr && script) {
      for (const LauncherProblem& problem : check_launchers(text, *step_))
        reading_.diagnostics.error(place_of(reading_, node, "LAUNCHER", problem.brackets), problem.message);
    }
    if (step_ != nullptr && script && !reading_.study.merlin) check_braces(node);
    std::set<std::string_view> seen;  // variables that repeat each other can make 100,000 uses of a name
    for (auto token = find_token(text); token; token = find_token(text, token->end)) {
      const std::string_view name = token->name;
      if (!seen.insert(name).second) continue;
      if (name.ends_with(kWorkspaceSuffix) && step_ != nullptr && check_workspace(node, name)) continue;
      const bool is_output = step_ != nullptr && outputs_.contains(&node);
      const bool in_script = (script || is_output) && step_ != nullptr;
      if (anywhere_.contains(name)) {
        if (!for_steps) misplaced(node, name, "in steps");
        if (in_script && labels_.contains(name)) check_label(node, name, is_output);
      } else if (is_of_samples(name)) {
        if (converted_.contains(&node) && sample_token(name) == Piece::Kind::sample_id) continue;
        if (!reading_.study.samples) {
          report(node, name, fmt::format("'$({})' needs a samples: block", name));
        } else if (!in_script && step_ != nullptr) {
          misplaced(node, name, "in cmd and restart");
        } else if (!for_steps) {
          misplaced(node, name, "in cmd and restart");
        } else if (step_ != nullptr && check_process(node, name, is_output)) {
          continue;
        } else if (name == "MERLIN_PATHS_ALL" && reading_.study.samples->design.count > kMostPaths) {
          // No shell accepts a command of that length, and Merlin would fail on it later.
          reading_.diagnostics.error(
              place_of(reading_, node, name),
              fmt::format("'$(MERLIN_PATHS_ALL)' would name {} directories; use $(MERLIN_GLOB_PATH)",
                          text::format_count(reading_.study.samples->design.count)));
        }
      } else if (name.starts_with(kQuote)) {
        report(node, name,
               fmt::format("'$({})': quote: takes a column of the samples, and '{}' is none{}", name,
                           without_quote(name), text::suggestion(without_quote(name), columns_)));
      } else if (is_of_scripts(name)) {
        const bool of_a_launcher = name == "LAUNCHER" || name == "VLAUNCHER";
        if (step_ != nullptr && !in_script && of_a_launcher) misplaced(node, name, "in cmd and restart");
        if (!in_script && !for_steps) misplaced(node, name, "in steps");
      } else if (is_meant_for_us(name, script, text)) {
        report(node, name, fmt::format("undefined variable '$({})'{}", name, text::suggestion(name, known_)));
      }
    }
  }

  // {alpha} and {{ alpha }} are how other programs write $(alpha). In a shell they stay as they are.
  void check_braces(const yaml::Node& node) {
    const std::string_view text = node.text;
    for (std::size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
      const std::size_t end = text.find('}', at);
      if (end == std::string_view::npos) return;
      if (at > 0 && (text[at - 1] == '$' || text[at - 1] == '{')) continue;
      std::string_view name = text::trim(text.substr(at + 1, end - at - 1));
      if (name.starts_with('{')) name = text::trim(name.substr(1));
      if (!expansion_.column(name) && !anywhere_.contains(name)) continue;
      reading_.diagnostics.warning(place_of(reading_, node, name),
                                   fmt::format("'{{{}}}' stays as it is; its value is $({})", name, name));
    }
  }

  // The text of a label in a script: tokens of samples follow the rules of the script itself.
  void check_label(const yaml::Node& node, std::string_view label, bool is_output) {
    const std::string text = expansion_.with_labels(fmt::format("$({})", label));
    for (auto token = find_token(text); token; token = find_token(text, token->end)) {
      if (!is_of_samples(token->name)) continue;
      if (!reading_.study.samples) return;  // reported at the label itself
      if (check_process(node, token->name, is_output, label)) return;
    }
  }

  // Checks that a token of samples fits the step's processes: one sample, a bundle, or none. True if it has
  // reported an error. `label`: the name through which the text contains the token.
  bool check_process(const yaml::Node& node, std::string_view name, bool is_output,
                     std::string_view label = {}) {
    const auto kind = sample_token(name);
    const bool of_bundle = kind == Piece::Kind::samples_file || kind == Piece::Kind::first_sample ||
                           kind == Piece::Kind::sample_count;
    const bool of_sample = !of_bundle && (kind || expansion_.column(name));
    std::string message;
    if (of_bundle && step_->bundle == 0) {
      message = fmt::format("'$({})' needs the key 'bundle' (samples a process) in the step '{}'", name,
                            step_->name);
    } else if (of_sample && step_->bundle > 0) {
      message = fmt::format(
          "'$({})' is of one sample, and a process of the step '{}' gets several (bundle: {}); "
          "{}",
          name, step_->name, step_->bundle,
          is_output ? "name a file of the bundle, with $(WFLOW_FIRST)"
                    : "read the rows of $(WFLOW_SAMPLES_FILE)");
    } else if (of_sample && is_output && !expansion_.sample_dependent(*expansion_.step_index(step_->name))) {
      message = fmt::format("'$({})' is of one sample, and the step '{}' does not run once a sample", name,
                            step_->name);
    }
    if (message.empty()) {
      if (label.empty() && step_->bundle == 0) check_case(node, name);
      return false;
    }
    if (!label.empty()) message = fmt::format("the label '{}': {}", label, message);
    reading_.diagnostics.error(place_of(reading_, node, label.empty() ? name : label), std::move(message));
    return true;
  }

  // A column in another case, in a step of Merlin's that no other token makes one of samples.
  void check_case(const yaml::Node& node, std::string_view name) {
    const auto column = expansion_.column(name);
    if (!column || expansion_.sample_dependent(*expansion_.step_index(step_->name))) return;
    reading_.diagnostics.warning(
        place_of(reading_, node, name),
        fmt::format("'$({})' stays as it is, and the step '{}' runs once: in Merlin's files it must be "
                    "written as the column is, $({})",
                    name, step_->name, columns_[*column]));
  }

  // True if it has reported an error, or the name is a step's.
  bool check_workspace(const yaml::Node& node, std::string_view name) {
    const std::string_view other = name.substr(0, name.size() - kWorkspaceSuffix.size());
    if (other == step_->name) {
      report(node, name,
             fmt::format("the step '{}' names its own workspace; write $(WORKSPACE)", step_->name));
      return true;
    }
    const auto index = expansion_.step_index(other);
    if (!index) {
      report(node, name,
             fmt::format("undefined variable '$({})'{}", name, text::suggestion(name, workspaces_)));
      return true;
    }
    if (!waits_for(*step_, *index)) {
      reading_.diagnostics.warning(
          place_of(reading_, node, name),
          fmt::format("the step '{}' uses $({}) but does not wait for '{}'; add it to depends:", step_->name,
                      name, other));
    }
    return true;
  }

  bool waits_for(const Step& step, std::size_t wanted) const {
    std::set<std::size_t> seen;
    std::vector<const Step*> open = {&step};
    while (!open.empty()) {
      const Step* next = open.back();
      open.pop_back();
      for (const Dependency& dependency : next->depends) {
        const auto parent = expansion_.step_index(dependency.step);
        if (!parent || !seen.insert(*parent).second) continue;
        if (*parent == wanted) return true;
        open.push_back(&reading_.study.steps[*parent]);
      }
    }
    return false;
  }

  bool is_of_samples(std::string_view name) const {
    if (expansion_.column(name) || sample_token(name)) return true;
    return name == "MERLIN_SAMPLE_NAMES" || name == "MERLIN_GLOB_PATH" || name == "MERLIN_PATHS_ALL";
  }

  static bool is_of_scripts(std::string_view name) {
    return name == "WORKSPACE" || name == "LAUNCHER" || name == "VLAUNCHER" || return_code(name).has_value();
  }

  bool is_meant_for_us(std::string_view name, bool script, std::string_view text) const {
    if (!is_identifier(name)) return false;
    if (!script || is_shouted(name) || name.ends_with(kWorkspaceSuffix)) return true;
    const std::string word(name);
    const bool function = text.find(word + "()") != std::string_view::npos ||
                          text.find(word + " ()") != std::string_view::npos ||
                          text.find("function " + word) != std::string_view::npos;
    return !function && !is_shell_builtin(name) && !find_program(word);
  }

  void misplaced(const yaml::Node& node, std::string_view name, std::string_view where) {
    report(node, name, fmt::format("'$({})' can be used {} only", name, where));
  }

  void report(const yaml::Node& node, std::string_view name, std::string message) {
    const yaml::Mark mark = place_of(reading_, node, name);
    if (!reported_.insert(fmt::format("{}:{}:{}", mark.line, mark.column, name)).second) return;
    // Merlin leaves such a token unchanged, even if the shell cannot use it.
    const bool may_be_theirs = reading_.study.merlin || !reading_.study.format.certain;
    if (may_be_theirs && !reading_.options.strict) {
      reading_.diagnostics.warning(mark, std::move(message));
    } else {
      reading_.diagnostics.error(mark, std::move(message));
    }
  }

  Reading& reading_;
  const Expansion& expansion_;
  const Step* step_ = nullptr;
  std::vector<std::string> known_;               // for suggestions
  std::vector<std::string> columns_;             // columns of the samples
  std::vector<std::string> workspaces_;          // "<step>.workspace"
  std::set<std::string, std::less<>> anywhere_;  // allowed in all text of steps
  std::set<std::string, std::less<>> labels_;    // labels in env:
  std::set<const yaml::Node*> outputs_;          // scalars in outputs: of step_
  const yaml::Node* when_ = nullptr;             // the when: of step_
  std::set<const yaml::Node*> converted_;        // files of convert:, which may be one for each sample
  std::set<std::string> reported_;
};

}  // namespace

void check_tokens(Reading& reading, const Expansion& expansion) {
  TokenChecker(reading, expansion).check_all();
}

}  // namespace wflow::specs
