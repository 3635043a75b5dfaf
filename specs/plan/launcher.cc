// SPDX-License-Identifier: Apache-2.0
#include "specs/plan/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace {

struct Numbers {
  std::string nodes, procs, procs_a_node, cores, gpus;  // cores, gpus: empty if not requested
};

std::string key(const LauncherKeys& keys, const std::string& name) {
  const auto at = keys.find(name);
  return at == keys.end() ? std::string() : at->second;
}

// srun -t counts a plain number as minutes; in the files it is seconds, as it is for YAML, which reads
// 00:30:00 as 1800. What is no time (UNLIMITED, a shell variable) goes to the launcher as written.
std::string slurm_time(const LauncherKeys& keys) {
  const auto limit_s = walltime_s(keys);
  if (!limit_s) return key(keys, "walltime");
  const auto seconds = static_cast<std::int64_t>(std::ceil(*limit_s));
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
  return seconds < 86400 ? clock : fmt::format("{}-{}", seconds / 86400, clock);
}

std::string flux_time(const LauncherKeys& keys) {
  const auto limit_s = walltime_s(keys);
  return limit_s ? fmt::format("{:.0f}s", *limit_s) : key(keys, "walltime");
}

// Additional flags of Flux: batch: args: {mpi: spectrum} is -o mpi=spectrum.
std::string flux_options(const Study& study) {
  const yaml::Node* batch = study.expanded.find("batch");
  const yaml::Node* args = batch == nullptr || !batch->is_map() ? nullptr : batch->find("args");
  std::vector<std::string> options;
  if (args != nullptr) {
    for (const auto& [name, value] : args->entries) options.push_back(name.text + "=" + value.text);
  }
  return text::join(options, ",");
}

// Follows Maestro's adapters for the schedulers: neither a time limit nor Merlin's keys slurm, flux and lsf.
std::string maestro_command(const Study& study, const LauncherKeys& keys, const Numbers& n) {
  const std::string type = batch_type(study, keys);
  std::vector<std::string> words;
  const auto add = [&words](std::string_view flag, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}{}", flag, value));
  };
  const auto or_else = [&keys](const std::string& name, const char* fallback) {
    const std::string value = key(keys, name);
    return value.empty() ? std::string(fallback) : value;
  };
  if (type == "slurm") {
    words = {"srun", "-n " + n.procs};
    if (keys.contains("nodes")) add("-N ", n.nodes);
    add("-c ", n.cores);
  } else if (type == "flux") {
    words = {"flux run", "-n " + n.procs, "-N " + n.nodes, "-c " + (n.cores.empty() ? "1" : n.cores)};
    add("-g ", n.gpus);
    add("-o ", flux_options(study));
  } else if (type == "lsf") {
    words = {"jsrun", "--nrs " + n.procs, "-b " + or_else("bind", "rs")};
    add("-g ", n.gpus);
    add("-B ", key(keys, "bind gpus"));
    add("-a ", or_else("tasks per rs", "1"));
    add("-r ", or_else("rs per node", "1"));
    add("-c ", or_else("cpus per rs", "1"));
  }
  return text::join(words, " ");
}

// The launcher is chosen on the machine where the task runs: wflow's own command becomes the launcher of the
// innermost resource manager there, on the nodes of the task.
std::string own_command(const LauncherKeys& keys, const std::string& numbers) {
  std::string words = "wflow launch" + numbers;
  for (const char* manager : {"slurm", "flux", "lsf"}) {
    if (const std::string options = key(keys, manager); !options.empty())
      words += fmt::format(" --{}={}", manager, text::shell_quote(options));
  }
  return words;
}

std::string command(const Study& study, const LauncherKeys& keys, const Numbers& n) {
  const std::string type = batch_type(study, keys);
  const bool maestro = study.format.dialect == Dialect::maestro;
  if (maestro && (type == "slurm" || type == "flux" || type == "lsf")) return maestro_command(study, keys, n);
  std::vector<std::string> words;
  const auto add = [&words](std::string_view flag, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}{}", flag, value));
  };
  const auto or_else = [&keys](const std::string& name, std::string fallback) {
    const std::string value = key(keys, name);
    return value.empty() ? fallback : value;
  };
  if (type == "slurm" || type == "lsf-srun") {
    words = {"srun", "-n " + n.procs, "-N " + n.nodes};
    add("-c ", n.cores);
    add("--gpus-per-task=", n.gpus);
    add("-t ", slurm_time(keys));
    add("--reservation=", key(keys, "reservation"));
    add("", key(keys, "slurm"));
  } else if (type == "flux") {
    words = {"flux run", "-n " + n.procs, "-N " + n.nodes};
    add("-c ", n.cores);
    add("-g ", n.gpus);
    add("-t ", flux_time(keys));
    add("", key(keys, "flux"));
  } else if (type == "lsf") {
    words = {"jsrun", "--np " + n.procs, "--nrs " + or_else("num resource set", n.nodes)};
    add("-c ", n.cores);
    add("-g ", n.gpus);
    add("-b ", or_else("bind", "rs"));
    add("-d ", or_else("launch_distribution", "plane:" + n.procs_a_node));
    add("-X ", or_else("exit_on_error", "1"));
    add("", key(keys, "lsf"));
  } else if (type == "pbs") {
    words = {"mpiexec", "-n " + n.procs};
  }
  return text::join(words, " ");
}

}  // namespace

std::string batch_type(const Study& study, const LauncherKeys& keys) {
  const std::string own = key(keys, "batch type");
  return own.empty() ? study.batch.allocation.type : own;
}

std::string script_suffix(const Study& study, const LauncherKeys& keys) {
  const std::string type = batch_type(study, keys);
  if (study.format.dialect == Dialect::maestro)
    return type == "slurm" || type == "flux" || type == "lsf" ? "." + type : "";
  return type == "slurm" || type == "flux" || type == "lsf" || type == "lsf-srun" ? ".slurm" : "";
}

Resources slot_resources(const Study& study, Resources resources) {
  if (study.merlin) resources.gpus = 0;
  return resources;
}

std::string launcher(const Study& study, const LauncherKeys& keys, const Resources& resources) {
  if (!study.merlin) {
    const bool alone = resources.nodes <= 1 && resources.procs <= 1;
    return alone ? "" : own_command(keys, "");
  }
  const bool cores = keys.contains("cores per task") || keys.contains("cores");
  return command(study, keys,
                 {std::to_string(resources.nodes), std::to_string(resources.procs),
                  std::to_string(resources.procs / std::max(1, resources.nodes)),
                  cores ? std::to_string(resources.cores) : "",
                  resources.gpus > 0 ? std::to_string(resources.gpus) : ""});
}

namespace {

// The numbers in the brackets of $(LAUNCHER)[2n, 4p]; 0: not given.
struct Allocation {
  int nodes = 0;
  int procs = 0;
};

// `text` between the brackets: "2n, 4p", "4p", "2n", or nodes and processes by place: "2, 4".
std::optional<Allocation> allocation_of(std::string_view text) {
  Allocation allocation;
  const std::vector<std::string> parts = text::split(text, ',');
  if (parts.size() > 2) return std::nullopt;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::string_view part = text::trim(parts[i]);
    const char unit = part.empty() ? ' ' : part.back();
    const bool has_unit = unit == 'n' || unit == 'p';
    if (!has_unit && parts.size() != 2) return std::nullopt;
    if (has_unit) part.remove_suffix(1);
    const auto number = text::to_integer(part);
    int& place = (has_unit ? unit == 'n' : i == 0) ? allocation.nodes : allocation.procs;
    if (!number || *number < 1 || *number > 10'000'000 || place != 0) return std::nullopt;
    place = static_cast<int>(*number);
  }
  return allocation;
}

// Calls `use` for every $(LAUNCHER) with the text in brackets directly behind it, if any.
void for_each_launcher(std::string_view script,
                       const std::function<void(const Token&, std::optional<std::string_view>)>& use) {
  for (auto token = find_token(script); token; token = find_token(script, token->end)) {
    if (token->name != "LAUNCHER") continue;
    const std::size_t end = script.find_first_of("]\n", token->end);
    const bool bracket =
        script.substr(token->end, 1) == "[" && end != std::string_view::npos && script[end] == ']';
    use(*token, bracket ? std::optional(script.substr(token->end + 1, end - token->end - 1)) : std::nullopt);
  }
}

}  // namespace

std::string put_launchers(std::string_view script, const Study& study, const LauncherKeys& keys,
                          const Resources& resources) {
  std::string result;
  std::size_t done = 0;
  for_each_launcher(script, [&](const Token& token, std::optional<std::string_view> bracket) {
    const auto part = bracket ? allocation_of(*bracket) : std::nullopt;
    Resources reduced = resources;
    if (part && part->nodes > 0) reduced.nodes = part->nodes;
    if (part && part->procs > 0) reduced.procs = part->procs;
    result += script.substr(done, token.begin - done);
    result += study.merlin || !part
                  ? launcher(study, keys, reduced)
                  : own_command(keys, fmt::format(" -N {} -n {}", reduced.nodes, reduced.procs));
    done = part ? token.end + bracket->size() + 2 : token.end;
  });
  return result += script.substr(done);
}

std::vector<LauncherProblem> check_launchers(std::string_view script, const Step& step) {
  std::vector<LauncherProblem> problems;
  for_each_launcher(script, [&](const Token&, std::optional<std::string_view> bracket) {
    if (!bracket || find_token(*bracket)) return;  // the value of a parameter is not known yet
    const auto part = allocation_of(*bracket);
    const auto exceeds = [&](int wanted, const char* name, int there) {
      const auto written = step.launcher_keys.find(name);
      const bool known = written == step.launcher_keys.end() || !find_token(written->second);
      if (wanted <= there || !known) return;
      problems.push_back({fmt::format("[{}]", *bracket),
                          fmt::format("'$(LAUNCHER)[{}]' asks for {} {}, and the step '{}' has {}", *bracket,
                                      wanted, name, step.name, there)});
    };
    if (!part) {
      problems.push_back({fmt::format("[{}]", *bracket),
                          fmt::format("'$(LAUNCHER)[{}]' does not read; numbers of nodes and processes are "
                                      "expected: [2n, 4p]",
                                      *bracket)});
    } else {
      exceeds(part->nodes, "nodes", step.resources.nodes);
      exceeds(part->procs, "procs", step.resources.procs);
    }
  });
  return problems;
}

std::string variable_launcher(const Study& study, const LauncherKeys& keys, const Resources& resources) {
  if (!study.merlin) return own_command(keys, " -N ${MERLIN_NODES} -n ${MERLIN_PROCS}");
  if (batch_type(study, keys) == "local") return {};
  return command(study, keys,
                 {"${MERLIN_NODES}", "${MERLIN_PROCS}", "$((MERLIN_PROCS / MERLIN_NODES))", "${MERLIN_CORES}",
                  resources.gpus > 0 ? "${MERLIN_GPUS}" : ""});
}

std::string launcher_defaults(const Resources& resources, const std::string& script) {
  if (!mentions(script, "VLAUNCHER")) return {};
  const std::array<std::pair<const char*, int>, 4> defaults = {{{"MERLIN_NODES", resources.nodes},
                                                                {"MERLIN_PROCS", resources.procs},
                                                                {"MERLIN_CORES", resources.cores},
                                                                {"MERLIN_GPUS", resources.gpus}}};
  std::string lines;
  for (const auto& [name, value] : defaults) {
    if (script.find(std::string(name) + "=") == std::string::npos)
      lines += fmt::format("{}={}\n", name, value);
  }
  return lines;
}

}  // namespace wflow::specs
