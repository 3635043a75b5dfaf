// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/config_table.h"
#include "base/process.h"
#include "base/text.h"
#include "specs/study/reading.h"
#include "specs/study/study.h"

namespace wflow::specs {

namespace {

const config::Table<Hook>& hook_table() {
  static const config::Table<Hook> table(
      "a command of on:",
      {config::required_text("run", &Hook::command, "the command, for `/bin/sh`"),
       config::seconds("timeout", &Hook::timeout_s,
                       "time limit: then the command gets SIGTERM, and SIGKILL two seconds later")
           .with_default("1 min"),
       config::seconds("after", &Hook::after_s, "`stalled`: the time without a task that ends")
           .usually("30 min")
           .only_if([](const Hook& hook) { return hook.event == "stalled"; })});
  return table;
}

void read_hook(yaml::MapReader& reader, std::string_view event, std::vector<Hook>& hooks) {
  const yaml::Node* node = reader.find(event);
  if (node == nullptr) return;
  yaml::Diagnostics& diagnostics = reader.diagnostics();
  const std::string where = fmt::format("'{}' of the on: block", event);
  Hook& hook = hooks.emplace_back();
  hook.event = event;
  if (node->is_map()) {
    hook_table().read(*node, hook, diagnostics, where);
  } else if (node->is_scalar()) {
    hook.command = node->text;
  } else {
    diagnostics.error(
        node->mark, fmt::format("'{}' must be a command or {{run: COMMAND, timeout: 1 min}}, found {}", event,
                                node->describe()));
    return;
  }
  if (text::trim(hook.command).empty() && !node->is_map())
    diagnostics.error(node->mark, where + " is empty; a command was expected");
  if (hook.timeout_s <= 0 || hook.after_s <= 0)
    diagnostics.error(node->mark, fmt::format("'timeout' and 'after' of '{}' must be times above 0", event));
}

config::Key<std::vector<Hook>> event_key(const std::string& event, std::string meaning) {
  config::Json block = hook_table().schema();
  if (event != "stalled") block["properties"].erase("after");
  return config::custom<std::vector<Hook>>(event, config::any_of({{{"type", "string"}}, std::move(block)}),
                                           std::move(meaning), read_hook);
}

const config::Table<std::vector<Hook>>& hooks_table() {
  static const config::Table<std::vector<Hook>> table(
      "the on: block",
      {event_key("finished",
                 "all tasks of the campaign, and the campaigns that followed it, have ended, with or without "
                 "failures"),
       event_key("failed", "the same, and tasks have failed for good"),
       event_key("stalled",
                 "a step is held back (too many failures, no worker), or no task has ended for `after`. "
                 "Once, until a task ends again"),
       event_key("first_failure", "the first task has failed for good"),
       event_key("allocation_lost",
                 "an allocation has ended before its walltime, and wflow did not return it: cancelled, "
                 "preempted, a node failed")});
  return table;
}

std::vector<Hook> read_hooks(const yaml::Node& root, yaml::Diagnostics& diagnostics) {
  std::vector<Hook> hooks;
  const yaml::Node* node = root.is_map() ? root.find("on") : nullptr;
  if (node != nullptr && !node->is_null()) hooks_table().read(*node, hooks, diagnostics);
  return hooks;
}

struct MetricsBlock : MetricsFile {
  std::string prometheus;  // as written
};

const config::Table<MetricsBlock>& metrics_table() {
  static const config::Table<MetricsBlock> table(
      "the metrics: block",
      {config::required_text(
           "prometheus", &MetricsBlock::prometheus,
           "the file that wflow writes, for the textfile collector of `node_exporter`. A relative path "
           "begins at the study's file"),
       config::seconds<MetricsBlock>("every", &MetricsFile::every_s, "how often")
           .with_default("15 s")
           .then([](yaml::MapReader& reader, MetricsBlock& metrics) {
             if (metrics.every_s < 1)
               reader.diagnostics().error(reader.node().mark,
                                          "'every' of the metrics: block must be 1 s or more");
           })});
  return table;
}

std::optional<MetricsFile> read_metrics(const Study& study, const yaml::Node& root,
                                        yaml::Diagnostics& diagnostics) {
  const yaml::Node* node = root.is_map() ? root.find("metrics") : nullptr;
  if (node == nullptr || node->is_null()) return std::nullopt;
  MetricsBlock metrics;
  metrics_table().read(*node, metrics, diagnostics);
  if (metrics.prometheus.empty()) return std::nullopt;
  metrics.file = locate(study, metrics.prometheus).lexically_normal();
  // node_exporter's textfile collector reads no other names.
  if (metrics.file.extension() != ".prom")
    diagnostics.warning(
        node->find("prometheus")->mark,
        fmt::format("node_exporter reads files named *.prom; '{}' is none", metrics.prometheus));
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

BlockTables hook_tables() {
  return {{{"on", hooks_table().schema()}, {"metrics", metrics_table().schema()}},
          {{"on", hooks_table().rows()},
           {"on.command", hook_table().rows()},
           {"metrics", metrics_table().rows()}}};
}

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
