// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/process.h"
#include "base/text.h"
#include "specs/study/reading.h"
#include "specs/study/study.h"

namespace wflow::specs {

namespace {

Hook read_hook(std::string_view event, const yaml::Node& node, yaml::Diagnostics& diagnostics) {
  Hook hook;
  hook.event = event;
  if (node.is_map()) {
    yaml::MapReader block(node, fmt::format("'{}' of the on: block", event), diagnostics);
    hook.command = block.required_string("run");
    hook.timeout_s = block.seconds("timeout", hook.timeout_s);
    if (event == "stalled") hook.after_s = block.seconds("after", hook.after_s);
    block.finish();
  } else if (node.is_scalar()) {
    hook.command = node.text;
  } else {
    diagnostics.error(
        node.mark, fmt::format("'{}' must be a command or {{run: COMMAND, timeout: 1 min}}, found {}", event,
                               node.describe()));
    return hook;
  }
  if (text::trim(hook.command).empty() && !node.is_map())
    diagnostics.error(node.mark,
                      fmt::format("'{}' of the on: block is empty; a command was expected", event));
  if (hook.timeout_s <= 0 || hook.after_s <= 0)
    diagnostics.error(node.mark, fmt::format("'timeout' and 'after' of '{}' must be times above 0", event));
  return hook;
}

std::vector<Hook> read_hooks(const yaml::Node& root, yaml::Diagnostics& diagnostics) {
  std::vector<Hook> hooks;
  const yaml::Node* node = root.is_map() ? root.find("on") : nullptr;
  if (node == nullptr || node->is_null()) return hooks;
  yaml::MapReader block(*node, "the on: block", diagnostics);
  for (const std::string_view event : kHookEvents) {
    if (const yaml::Node* hook = block.find(event)) hooks.push_back(read_hook(event, *hook, diagnostics));
  }
  block.finish();
  return hooks;
}

std::optional<MetricsFile> read_metrics(const Study& study, const yaml::Node& root,
                                        yaml::Diagnostics& diagnostics) {
  const yaml::Node* node = root.is_map() ? root.find("metrics") : nullptr;
  if (node == nullptr || node->is_null()) return std::nullopt;
  yaml::MapReader block(*node, "the metrics: block", diagnostics);
  MetricsFile metrics;
  const std::string file = block.required_string("prometheus");
  metrics.every_s = block.seconds("every", metrics.every_s);
  if (metrics.every_s < 1) diagnostics.error(node->mark, "'every' of the metrics: block must be 1 s or more");
  block.finish();
  if (file.empty()) return std::nullopt;
  metrics.file = locate(study, file).lexically_normal();
  // node_exporter's textfile collector reads no other names.
  if (metrics.file.extension() != ".prom")
    diagnostics.warning(block.mark_of("prometheus"),
                        fmt::format("node_exporter reads files named *.prom; '{}' is none", file));
  return metrics;
}

// A plain first word that is neither a builtin nor a program is a spelling error.
void check_program(const Hook& hook, const yaml::Mark& mark, yaml::Diagnostics& diagnostics) {
  const std::string_view command = text::trim(hook.command);
  const std::string word(command.substr(0, command.find_first_of(" \t\n;|&<>")));
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./";
  if (word.empty() || word.find_first_not_of(kPlain) != std::string::npos) return;
  SpawnRequest ask;
  ask.argv = {"/bin/sh", "-c", "command -v -- \"$0\"", word};
  constexpr double kLimit_s = 5;
  if (run_command(ask, kLimit_s).status == 0) return;
  diagnostics.warning(mark,
                      fmt::format("'{}' of the on: block: there is no program '{}' here{}", hook.event, word,
                                  word.starts_with('.') ? "; commands start in the campaign's directory: "
                                                          "$(SPECROOT) is the study's"
                                                        : ""));
}

}  // namespace

void check_hooks(Reading& reading) {
  const yaml::Node* node = reading.root.find("on");
  for (const Hook& hook : read_hooks(reading.root, reading.diagnostics)) {
    const yaml::Node* place = node->find(hook.event);
    check_program(hook, place == nullptr ? node->mark : place->mark, reading.diagnostics);
  }
  read_metrics(reading.study, reading.root, reading.diagnostics);
}

std::vector<Hook> hooks_of(const Study& study) {
  yaml::Diagnostics ignored("");  // reading the study has reported it all
  return read_hooks(study.expanded, ignored);
}

std::optional<MetricsFile> metrics_file_of(const Study& study) {
  yaml::Diagnostics ignored("");
  return read_metrics(study, study.expanded, ignored);
}

}  // namespace wflow::specs
