// SPDX-License-Identifier: Apache-2.0
// batch: and the workers, ours at top level and Merlin's below merlin: resources:.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/process.h"
#include "base/text.h"
#include "specs/study/reading.h"

namespace wflow::specs {

namespace {

const std::array<std::string, 7> kTypes = {"local", "slurm", "flux", "lsf", "pbs", "lsf-srun", "local_pool"};

// Merlin's and Maestro's, beside those with a member of their own.
constexpr std::array<std::string_view, 14> kOtherKeys = {
    "flux_path", "flux_start_opts", "flux_exec", "flux_exec_workers", "host", "reservation", "qos",
    "gpus",      "procs",           "flux_uri",  "version",           "args", "memory",      "exclusive"};

// The number behind --concurrency (-c) of Celery's worker arguments; 0 without one.
int concurrency_of(const std::string& args) {
  std::vector<std::string> words;
  for (const std::string& word : text::split(args, ' ')) {
    const std::size_t equals = word.find('=');
    if (!word.empty()) words.push_back(word.substr(0, equals));
    if (equals != std::string::npos) words.push_back(word.substr(equals + 1));
  }
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--concurrency" && words[i] != "-c" && words[i] != "--autoscale") continue;
    const auto number = text::to_integer(words[i + 1].substr(0, words[i + 1].find(',')));
    if (number && *number > 0 && *number < 100000) return static_cast<int>(*number);
  }
  return 0;
}

// Names of steps, and steps themselves for the message's sake.
void check_steps(Reading& reading, const yaml::Node* node, WorkerGroup& group) {
  const std::vector<std::string> known = step_names(reading.study);
  if (node == nullptr) return;
  for (const yaml::Node& item : node->is_sequence() ? node->items : std::vector<yaml::Node>{*node}) {
    if (!item.is_scalar() || item.text == "all") continue;
    if (std::find(known.begin(), known.end(), item.text) != known.end()) continue;
    reading.diagnostics.error(item.mark,
                              fmt::format("the worker '{}' serves the step '{}', which is not in the study{}",
                                          group.name, item.text, text::suggestion(item.text, known)));
  }
}

// Merlin's --local does not look at workers, and nor does a local campaign of one of its files. Anything else
// waits for workers on those machines, which nobody may have thought of.
void check_machines(Reading& reading, const yaml::Mark& mark, WorkerGroup& group) {
  const Study& study = reading.study;
  const std::string host = host_name();
  if (group.machines.empty() || names_host(group.machines, host)) return;
  const std::string names = text::join(group.machines, ", ");
  if (reading.options.local || (study.merlin && study.batch.type == "local")) {
    reading.diagnostics.warning(
        mark, fmt::format("'machines' of the worker '{}' ({}) is left out of account: this is a local "
                          "campaign, and all its steps run on this machine ({})",
                          group.name, names, host));
    group.machines.clear();
    return;
  }
  reading.diagnostics.warning(
      mark,
      fmt::format("the worker '{}' runs on machines whose name contains {}, which this one ({}) does not: "
                  "its steps wait until you start it, on any machine that sees the campaign's directory: "
                  "wflow worker --campaign DIRECTORY --group '{}'; or run all steps here: wflow run --local",
                  group.name, text::join(group.machines, " or "), host, group.name));
}

void read_group(Reading& reading, const yaml::Node& key, const yaml::Node& node, bool ours) {
  yaml::MapReader block(node, fmt::format("the worker '{}'", key.text), reading.diagnostics);
  WorkerGroup group;
  group.name = key.text;
  group.steps = block.strings("steps");
  group.nodes = block.string("nodes");
  group.machines = block.strings("machines");
  group.slots = static_cast<int>(block.integer("slots", 0, 0, 100000));
  group.pin = block.boolean("pin", false);
  const std::string args = block.string("args");
  if (!ours && group.slots == 0) group.slots = concurrency_of(args);
  block.find("batch");
  block.finish();
  check_machines(reading, block.mark_of("machines"), group);
  check_steps(reading, block.find("steps"), group);
  reading.study.workers.push_back(std::move(group));
}

void read_groups(Reading& reading, const yaml::Node& node, bool ours) {
  yaml::MapReader block(node, "the workers: block", reading.diagnostics);
  for (const auto& [key, value] : block.node().entries) read_group(reading, key, value, ours);
}

}  // namespace

void read_batch(Reading& reading) {
  const yaml::Node* node = reading.root.find("batch");
  if (node == nullptr) return;
  yaml::MapReader block(*node, "the batch: block", reading.diagnostics);
  Batch& batch = reading.study.batch;
  batch.type = kTypes[block.choice("type", 0, kTypes)];
  if (batch.type == "local_pool") batch.type = "local";  // Maestro's word for several tasks at once
  batch.shell = block.string("shell", batch.shell);
  batch.bank = block.string("bank");
  batch.queue = block.string("queue");
  batch.walltime = block.string("walltime");
  if (!batch.walltime.empty() && !yaml::parse_seconds(batch.walltime)) block.seconds("walltime", 0);
  batch.launch_pre = block.string("launch_pre");
  batch.launch_args = block.string("launch_args");
  batch.worker_launch = block.string("worker_launch");
  batch.nodes = block.string("nodes");
  const auto nodes = text::to_integer(batch.nodes);
  if (!batch.nodes.empty() && batch.nodes != "all" && (!nodes || *nodes < 1)) {
    reading.diagnostics.error(block.mark_of("nodes"),
                              fmt::format("'nodes' must be a whole number from 1, found '{}'", batch.nodes));
  }
  batch.dry_run = block.boolean("dry_run", false);
  for (const std::string_view key : kOtherKeys) {
    if (const yaml::Node* value = block.find(key)) batch.other[std::string(key)] = value_text(*value);
  }
  block.finish();
}

void read_workers(Reading& reading) {
  const yaml::Node* ours = reading.root.find("workers");
  if (ours != nullptr && !ours->is_null()) read_groups(reading, *ours, true);
  const yaml::Node* merlin = reading.root.find("merlin");
  if (merlin == nullptr || merlin->is_null()) return;
  yaml::MapReader block(*merlin, "the merlin: block", reading.diagnostics);
  block.find("samples");
  if (const yaml::Node* resources = block.find("resources")) {
    yaml::MapReader inner(*resources, "the resources: block", reading.diagnostics);
    inner.find("task_server");
    inner.find("overlap");
    if (const yaml::Node* workers = inner.find("workers")) {
      if (ours != nullptr)
        reading.diagnostics.error(workers->mark, "workers stand here and at top level; one of them must go");
      read_groups(reading, *workers, false);
    }
    inner.finish();
  }
  block.finish();
}

}  // namespace wflow::specs
