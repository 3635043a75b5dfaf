// SPDX-License-Identifier: Apache-2.0
#include "trainer/training/pass_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace wflow::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int kPassTimesFormat = 1;
constexpr std::size_t kMostPassTimes = 4096;  // the oldest go first

std::optional<fs::path> folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value != '/') return std::nullopt;  // relative ones are invalid
  return fs::path(value);
}

bool is_time(const nlohmann::json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
}

}  // namespace

nlohmann::json to_json(const PassSeconds& pass) {
  return {{"forward", pass.forward},
          {"backward", pass.backward},
          {"update", pass.update},
          {"ready", pass.ready},
          {"samples", pass.samples}};
}

std::optional<PassSeconds> pass_from_json(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  for (const char* key : {"forward", "backward", "update", "samples"})
    if (!json.contains(key) || !is_time(json[key])) return std::nullopt;
  const nlohmann::json ready = json.value("ready", nlohmann::json());
  if (!ready.is_array() || !std::ranges::all_of(ready, is_time)) return std::nullopt;
  return PassSeconds{json["forward"].get<double>(), json["backward"].get<double>(),
                     json["update"].get<double>(), ready.get<std::vector<double>>(),
                     json["samples"].get<double>()};
}

std::string shape_text(const ModelGraph& graph) {
  std::string text = graph.recomputes ? "recomputes\n" : "";
  for (const ModelGraph::Tiled& chain : graph.tiled)
    text += fmt::format("{} tiles of {} from {}\n", chain.tiles, chain.count, chain.first);
  for (const NamedShape& input : graph.inputs) text += fmt::format("input {}\n", text_of(input.shape));
  for (const Layer& layer : graph.layers) {
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", name_of(layer.kind),
                        layer.inputs, text_of(layer.input), text_of(layer.output), layer.kernel, layer.stride,
                        layer.dilation, layer.pad_low, layer.pad_high, layer.value, layer.groups, layer.axis,
                        layer.first, layer.channels, layer.bidirectional, layer.every_step, layer.time_axis,
                        layer.frozen, layer.is_repeated, layer.parameters.size());
    if (layer.module) text += hash_bytes(*layer.module);
  }
  for (const ModelGraph::Output& output : graph.outputs) text += fmt::format("output {}\n", output.value);
  return text;
}

std::string machine_text() {
  std::string text;
  std::ifstream processors("/proc/cpuinfo");
  // The lines of the first processor, without those that change, such as its clock.
  for (std::string line; std::getline(processors, line) && !line.empty();)
    for (const char* name : {"model name", "flags", "CPU implementer", "CPU part", "Features", "cpu\t"})
      if (line.starts_with(name)) text += line + "\n";
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) text += fmt::format("{} cores\n", CPU_COUNT(&cores));
  for (const char* variable : {"WFLOW_KERNELS", "ONEDNN_MAX_CPU_ISA"})
    if (const char* value = std::getenv(variable)) text += fmt::format("{}={}\n", variable, value);
  return text;
}

fs::path pass_times_file() {
  if (const char* wish = std::getenv("WFLOW_PASS_TIMES"); wish != nullptr && std::string(wish) == "off")
    return {};
  if (const auto cache = folder_in("XDG_CACHE_HOME")) return *cache / "wflow" / "passes.json";
  if (const auto home = folder_in("HOME")) return *home / ".cache" / "wflow" / "passes.json";
  return {};
}

PassTimes::PassTimes(fs::path file) : file_(std::move(file)), found_(read(&complaint_)) {}

PassTimes::Entries PassTimes::read(std::string* complaint) const {
  std::error_code none;
  if (file_.empty() || !fs::exists(file_, none)) return {};
  try {
    const nlohmann::json json = nlohmann::json::parse(read_file(file_), nullptr, false);
    if (json.is_object() && json.value("wflow_format", nlohmann::json()) == kPassTimesFormat &&
        json.contains("passes") && json["passes"].is_object()) {
      Entries entries;
      for (const auto& [key, value] : json["passes"].items()) {
        const auto pass = pass_from_json(value);
        if (pass && value.contains("time") && value["time"].is_number_integer())
          entries[key] = {*pass, value["time"].get<std::int64_t>()};
      }
      return entries;
    }
    *complaint = fmt::format(
        "{} does not have times that this wflow can read: the plan measures all passes, and replaces the "
        "file",
        file_.string());
  } catch (const Error& error) {
    *complaint = fmt::format("{}: the plan measures all passes", error.what());
  }
  return {};
}

std::optional<PassSeconds> PassTimes::find(const std::string& key) const {
  const auto at = found_.find(key);
  return at == found_.end() ? std::nullopt : std::optional(at->second.pass);
}

void PassTimes::add(const std::string& key, const PassSeconds& pass) {
  added_[key] = {pass, static_cast<std::int64_t>(std::time(nullptr))};
}

void PassTimes::write() {
  if (file_.empty() || added_.empty()) return;
  std::string ignored;
  Entries all = read(&ignored);
  for (const auto& [key, entry] : added_) all[key] = entry;
  while (all.size() > kMostPassTimes)
    all.erase(std::ranges::min_element(all, {}, [](const auto& each) { return each.second.time; }));
  nlohmann::json passes = nlohmann::json::object();
  for (const auto& [key, entry] : all) {
    passes[key] = to_json(entry.pass);
    passes[key]["time"] = entry.time;
  }
  try {
    make_directories(file_.parent_path());
    write_file_durably(file_,
                       nlohmann::json{{"wflow_format", kPassTimesFormat}, {"passes", passes}}.dump(1) + "\n");
  } catch (const Error&) {
    // A home that is full or read-only: the next plan measures again.
  }
}

}  // namespace wflow::trainer
