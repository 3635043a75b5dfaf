// SPDX-License-Identifier: Apache-2.0
#include "engine/update/aside.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "specs/plan/template.h"

namespace wflow::engine {

namespace {

namespace fs = std::filesystem;
using specs::PlannedStep;
using specs::StepKind;
using specs::TaskTemplate;

fs::path list_file(const fs::path& campaign) {
  return campaign / ".wflow" / "aside.json";
}

fs::path old_folder(const fs::path& campaign) {
  return campaign / ".wflow" / "old";
}

class Gathering {
 public:
  Gathering(const specs::Plan& from, const specs::Plan& to, const Changes& changes, bool with_removed)
      : from_(from), to_(to), changes_(changes), with_removed_(with_removed) {}

  std::vector<AsidePart> gather() {
    for (ArrayId array = 0; array < to_.array_count(); ++array) look_at(array, changes_.arrays[array]);
    // Of a step that is still there, a combination that is not: who reads all of the step would find it.
    std::set<std::string> names;
    for (const PlannedStep& step : to_.steps()) names.insert(step.name);
    for (const ArrayId array : changes_.removed) {
      if (with_removed_ || names.contains(from_.steps()[from_.step_of(array)].name))
        add_all(from_.task_template(array));
    }
    return std::move(parts_);
  }

 private:
  // Such a training reads what lies there when its data have changed (trainer/training/trainer.cc).
  bool begins_with_last_model(const PlannedStep& step) const {
    if (step.kind != StepKind::train) return false;
    const yaml::Node* init = to_.study().steps[step.study_step].settings.find("init_from");
    return init != nullptr && init->text == "last";
  }

  // The manifest of a data set stays true of its blocks while others are added.
  bool blocks_only_grew(ArrayId array, const PlannedStep& step) const {
    if (step.kind != StepKind::convert || step.block_samples > 0) return false;
    const auto edges = to_.edges(array);
    return std::all_of(edges.begin(), edges.end(), [&](const specs::Edge& edge) {
      const ArrayChange& blocks = changes_.arrays[edge.parent];
      if (!blocks.from || blocks.stale > 0) return false;
      return from_.steps()[from_.step_of(*blocks.from)].elements <=
             to_.steps()[to_.step_of(edge.parent)].elements;
    });
  }

  void look_at(ArrayId array, const ArrayChange& change) {
    const PlannedStep& is = to_.steps()[to_.step_of(array)];
    if (change.from) {
      const PlannedStep& was = from_.steps()[from_.step_of(*change.from)];
      const std::uint64_t gone = was.elements > is.elements ? was.elements - is.elements : 0;
      if (change.stale + gone == 0) return;
      if (!change.own && (begins_with_last_model(is) || blocks_only_grew(array, is))) return;
      const TaskTemplate task = from_.task_template(*change.from);
      if (change.stale + gone == was.elements && !(task.kind == StepKind::convert && task.block_samples == 0))
        return add_all(task);
      add_some(task, change, is.elements, was.elements);
    } else {
      // A step of this name may have been in the study before.
      const TaskTemplate task = to_.task_template(array);
      std::error_code none;
      if (fs::exists(task.workspace, none)) add_all(task);
    }
  }

  void add(AsidePart part) {
    const fs::path path(part.path);
    const fs::path below = path.lexically_relative(to_.campaign());
    if (!below.empty() && *below.begin() != "..") part.path = below.string();
    if (part.samples.empty() && !whole_.insert(part.path).second) return;
    parts_.push_back(std::move(part));
  }

  void add_all(const TaskTemplate& task) {
    add({task.workspace, {}, 0, 25, 0});
    if (task.kind != StepKind::train) return;
    yaml::Diagnostics ignored("");
    const yaml::Node settings = yaml::parse(task.settings, ignored);
    const yaml::Node* output = settings.find("output");
    if (output != nullptr && output->text != task.workspace) add({output->text, {}, 0, 25, 0});
  }

  void add_some(const TaskTemplate& task, const ArrayChange& change, std::uint64_t is, std::uint64_t was) {
    if (task.kind == StepKind::convert) {
      // Blocks that are converted again replace their own files; until then no manifest vouches for them.
      add({task.workspace + "/manifest.json", {}, 0, 25, 0});
      for (std::uint64_t block = is; task.block_samples > 0 && block < was; ++block) {
        add({fmt::format("{}/blocks/{:05}.json", task.workspace, block), {}, 0, 25, 0});
        constexpr std::array kSplits = {"train", "validation", "test"};
        for (const char* split : kSplits)
          add({fmt::format("{}/{}/shard-{:05}.h5", task.workspace, split, block), {}, 0, 25, 0});
      }
      return;
    }
    if (!task.sample_dependent) return add_all(task);
    AsidePart part{task.workspace, {}, layout_of(task), task.level_max_dirs, task.bundle};
    IntervalSet samples;
    change.open.for_each([&](Range range) {
      if (range.first < std::min(is, was))
        samples.add(Range{range.first, std::min({range.last, is - 1, was - 1})});
    });
    // Of a bundle of which some stay, the directory stays.
    if (was > is)
      samples.add(Range{task.bundle > 0 ? (is + task.bundle - 1) / task.bundle * task.bundle : is, was - 1});
    samples.for_each([&](Range range) { part.samples.push_back(range); });
    if (!part.samples.empty()) add(std::move(part));
  }

  const specs::Plan& from_;
  const specs::Plan& to_;
  const Changes& changes_;
  bool with_removed_;
  std::set<std::string> whole_;
  std::vector<AsidePart> parts_;
};

// Nothing where it is not there: it never ran, or has been moved.
void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(from, error);
  if (!fs::exists(status)) return;
  make_directories(to.parent_path());
  fs::rename(from, to, error);
  if (error == std::errc::directory_not_empty || error == std::errc::file_exists) {
    fs::remove_all(to, error);
    fs::rename(from, to, error);
  }
  if (error)
    throw system_error(error.value(), fmt::format("cannot move {} to {}", from.string(), to.string()));
}

void move_part(const fs::path& campaign, const fs::path& folder, const AsidePart& part) {
  const fs::path from = campaign / part.path;  // an absolute path stays as it is
  if (fs::path(part.path).is_absolute()) {
    // Not in the campaign: beside it, and never deleted.
    fs::path beside = from;
    beside += ".old-" + folder.filename().string();
    return move(from, beside);
  }
  if (part.samples.empty()) return move(from, folder / part.path);
  std::error_code none;
  if (!fs::exists(from, none)) return;
  const std::uint64_t each = std::max<std::uint64_t>(part.bundle, 1);
  for (const Range& range : part.samples) {
    for (std::uint64_t at = range.first / each; at <= range.last / each; ++at) {
      const std::string path = specs::sample_path(at, (part.layout + each - 1) / each, part.level_max_dirs);
      move(path.empty() ? from : from / path, folder / part.path / path);
    }
  }
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

}  // namespace

std::vector<AsidePart> aside_parts(const specs::Plan& from, const specs::Plan& to, const Changes& changes,
                                   bool with_removed) {
  return Gathering(from, to, changes, with_removed).gather();
}

std::string new_aside_name(const fs::path& campaign) {
  for (int number = 1;; ++number) {
    std::error_code none;
    if (!fs::exists(old_folder(campaign) / std::to_string(number), none)) return std::to_string(number);
  }
}

fs::path aside_directory(const fs::path& campaign, const std::string& name) {
  return old_folder(campaign) / name;
}

void write_aside(const fs::path& campaign, const Aside& aside) {
  nlohmann::json parts = nlohmann::json::array();
  for (const AsidePart& part : aside.parts) {
    nlohmann::json json = {{"path", part.path}};
    if (!part.samples.empty()) {
      nlohmann::json samples = nlohmann::json::array();
      for (const Range& range : part.samples) samples.push_back({range.first, range.last});
      json["samples"] = std::move(samples);
      json["layout"] = part.layout;
      json["level_max_dirs"] = part.level_max_dirs;
      json["bundle"] = part.bundle;
    }
    parts.push_back(std::move(json));
  }
  const nlohmann::json json = {
      {"name", aside.name}, {"keep", aside.keep}, {"kept", aside.kept}, {"parts", parts}};
  write_file_durably(list_file(campaign), json.dump(1) + "\n");
}

std::optional<Aside> read_aside(const fs::path& campaign) {
  std::error_code none;
  if (!fs::exists(list_file(campaign), none)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(list_file(campaign)));
    Aside aside;
    aside.name = json.at("name").get<std::string>();
    aside.keep = json.at("keep").get<bool>();
    aside.kept = json.at("kept").get<std::vector<std::string>>();
    for (const auto& entry : json.at("parts")) {
      AsidePart part;
      part.path = entry.at("path").get<std::string>();
      for (const auto& range : entry.value("samples", nlohmann::json::array()))
        part.samples.push_back({range.at(0).get<Element>(), range.at(1).get<Element>()});
      part.layout = entry.value("layout", std::uint64_t{0});
      part.level_max_dirs = entry.value("level_max_dirs", 25U);
      part.bundle = entry.value("bundle", std::uint64_t{0});
      aside.parts.push_back(std::move(part));
    }
    return aside;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ExitCode::data,
                fmt::format("{} does not read: {}", list_file(campaign).string(), error.what()));
  }
}

void remove_aside(const fs::path& campaign) {
  std::error_code none;
  fs::remove(list_file(campaign), none);
  sync_directory(campaign / ".wflow");
}

void carry_out(const fs::path& campaign, const Aside& aside) {
  const fs::path folder = aside_directory(campaign, aside.name);
  for (const AsidePart& part : aside.parts) move_part(campaign, folder, part);
  std::error_code none;
  if (!aside.keep && aside.kept.empty()) {
    fs::remove_all(folder, none);
  } else if (!aside.keep) {
    for (const AsidePart& part : aside.parts) {
      const bool kept = std::any_of(aside.kept.begin(), aside.kept.end(),
                                    [&](const std::string& path) { return is_below(part.path, path); });
      if (!kept) fs::remove_all(folder / part.path, none);
    }
  }
  remove_aside(campaign);
}

}  // namespace wflow::engine
