// SPDX-License-Identifier: Apache-2.0
#include "engine/update/aside.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "converters/data_set_files.h"
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
  Gathering(const specs::Plan& from, const specs::Plan& to, const Changes& changes, bool with_removed,
            const IsDone& done)
      : from_(from), to_(to), changes_(changes), with_removed_(with_removed), done_(done) {}

  std::vector<AsidePart> gather() {
    for (ArrayId array = 0; array < to_.array_count(); ++array) look_at(array, changes_.arrays[array]);
    // A removed combination of a step that still exists: a program that reads all of the step would find it.
    std::set<std::string> names;
    for (const PlannedStep& step : to_.steps()) names.insert(step.name);
    for (const ArrayId array : changes_.removed) {
      const PlannedStep& step = from_.steps()[from_.step_of(array)];
      if (!with_removed_ && !names.contains(step.name)) continue;
      // Another combination, such as another learning rate, takes its place.
      const bool waits = names.contains(step.name) && is_good(array);
      add_all(from_.task_template(array), waits ? Successor{whole_of(from_, array).step, {}} : Successor{});
    }
    return std::move(parts_);
  }

 private:
  struct Successor {
    std::string step, array;
  };

  // A data set is whole with its manifest.
  struct Whole {
    std::string step;
    ArrayId array;
  };
  static Whole whole_of(const specs::Plan& plan, ArrayId array) {
    const std::size_t index = plan.step_of(array);
    const PlannedStep& step = plan.steps()[index];
    if (step.kind != StepKind::convert || step.block_samples == 0) return {step.name, array};
    const PlannedStep& manifest = plan.steps()[index + 1];
    return {manifest.name, manifest.first_array + (array - step.first_array)};
  }

  // Outputs of samples are many, and not kept: a simulation is repeated, a model may not be.
  bool is_good(ArrayId from) const {
    return !from_.steps()[from_.step_of(from)].sample_dependent && done_ &&
           done_(whole_of(from_, from).array);
  }

  Successor successor_of(ArrayId from, ArrayId to) const {
    if (!is_good(from)) return {};
    const Whole whole = whole_of(to_, to);
    return {whole.step, to_.array_name(whole.array)};
  }

  // Such a training reads what lies there when its data have changed (trainer/training/recovery.cc).
  bool begins_with_last_model(const PlannedStep& step) const {
    if (step.kind != StepKind::train) return false;
    const yaml::Node* init = to_.study().steps[step.study_step].settings.find("init_from");
    return init != nullptr && init->text == "last";
  }

  // Such a training continues from its own checkpoints, which are complete, if its data are unchanged, and
  // starts from the beginning if not (trainer/training/recovery.cc). A search compares trainings, and each
  // must run.
  bool checks_its_data(const PlannedStep& step) const {
    // After a change of the study, the checkpoints may belong to another network.
    if (step.kind != StepKind::train || &from_ != &to_) return false;
    const yaml::Node& settings = to_.study().steps[step.study_step].settings;
    return settings.find("output") == nullptr && settings.find("search") == nullptr;
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
      const Successor successor = successor_of(*change.from, array);
      if (!change.own && checks_its_data(is)) return add_whole(task.workspace, successor, true);
      if (change.stale + gone == was.elements && !(task.kind == StepKind::convert && task.block_samples == 0))
        return add_all(task, successor);
      add_some(task, change, is.elements, was.elements, successor);
    } else {
      // A step of this name may have been in the study before, and what it left may be good.
      const TaskTemplate task = to_.task_template(array);
      const Whole whole = whole_of(to_, array);
      std::error_code none;
      if (fs::exists(task.workspace, none))
        add_all(task, is.sample_dependent ? Successor{} : Successor{whole.step, to_.array_name(whole.array)});
    }
  }

  void add(AsidePart part) {
    const fs::path path(part.path);
    const fs::path below = path.lexically_relative(to_.campaign());
    if (!below.empty() && *below.begin() != "..") part.path = below.string();
    if (part.samples.empty() && !whole_.insert(part.path).second) return;
    parts_.push_back(std::move(part));
  }

  void add_whole(const std::string& path, const Successor& successor = {}, bool linked = false) {
    add({path, {}, 0, 25, 0, successor.step, successor.array, linked});
  }

  void add_all(const TaskTemplate& task, const Successor& successor) {
    add_whole(task.workspace, successor);
    const auto* training = std::get_if<trainer::TrainConfig>(&task.settings);
    if (training != nullptr && training->output != task.workspace) add_whole(training->output, successor);
  }

  void add_some(const TaskTemplate& task, const ArrayChange& change, std::uint64_t is, std::uint64_t was,
                const Successor& successor) {
    if (task.kind == StepKind::convert) {
      if (!successor.step.empty()) add_whole(task.workspace, successor, true);
      // Blocks that are converted again replace their own files; until then there is no manifest.
      add_whole(task.workspace + "/" + converters::kManifestFile);
      for (std::uint64_t block = is; task.block_samples > 0 && block < was; ++block) {
        add_whole(task.workspace + "/" + converters::block_record_file(block));
        for (const std::string_view split : converters::kSplitNames)
          add_whole(task.workspace + "/" + converters::shard_file(split, block));
      }
      return;
    }
    if (!task.sample_dependent) return add_all(task, successor);
    AsidePart part{task.workspace, {}, layout_of(task), task.level_max_dirs, task.bundle, {}, {}, false};
    IntervalSet samples;
    change.open.for_each([&](Range range) {
      if (range.first < std::min(is, was))
        samples.add(Range{range.first, std::min({range.last, is - 1, was - 1})});
    });
    // A bundle's directory stays if some of its samples stay.
    if (was > is)
      samples.add(Range{task.bundle > 0 ? (is + task.bundle - 1) / task.bundle * task.bundle : is, was - 1});
    samples.for_each([&](Range range) { part.samples.push_back(range); });
    if (!part.samples.empty()) add(std::move(part));
  }

  const specs::Plan& from_;
  const specs::Plan& to_;
  const Changes& changes_;
  bool with_removed_;
  const IsDone& done_;
  std::set<std::string> whole_;
  std::vector<AsidePart> parts_;
};

// The device of the file that a path leads to; empty if there is none.
std::optional<dev_t> device_of(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? std::optional(status.st_dev) : std::nullopt;
}

// A directory that stays in its place: a link to one elsewhere, or a mount point.
bool stays(const fs::path& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return false;
  return fs::is_symlink(path, none) || device_of(path) != device_of(path.parent_path());
}

std::string hidden_name(const std::string& aside) {
  return ".wflow-old-" + aside;
}

// Also of file systems that say no more than that they are two (btrfs: its subvolumes).
void rename_or_copy(const fs::path& from, const fs::path& to, std::error_code& error) {
  fs::rename(from, to, error);
  if (error != std::errc::cross_device_link) return;
  fs::copy(
      from, to,
      fs::copy_options::recursive | fs::copy_options::copy_symlinks | fs::copy_options::overwrite_existing,
      error);
  if (!error) fs::remove_all(from, error);
}

// Moves what lies below the campaign into a folder of .wflow/old, under the same path.
class Mover {
 public:
  Mover(const fs::path& campaign, const std::string& name)
      : campaign_(campaign), folder_(aside_directory(campaign, name)), hidden_(hidden_name(name)) {}

  // Empty if it does not exist: it never ran, or has been moved.
  void move(const fs::path& path) {
    const fs::path from = campaign_ / path;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(from, error))) return;
    if (stays(from)) {
      make_place(path);
      for (const std::string& name : entries(from)) move(path / name);
      return;
    }
    make_place(path.parent_path());
    const fs::path to = folder_ / path;
    // rename() removes neither of two links to the same file.
    if (fs::equivalent(from, to, error) && !fs::is_symlink(fs::symlink_status(from, error))) {
      fs::remove(from, error);
    } else {
      rename_or_copy(from, to, error);
      if (error == std::errc::directory_not_empty || error == std::errc::file_exists) {
        fs::remove_all(to, error);
        rename_or_copy(from, to, error);
      }
    }
    if (error)
      throw system_error(error.value(), fmt::format("cannot move {} to {}", from.string(), to.string()));
  }

  // Links to all files of a directory; copies where the file system has no links.
  void link(const fs::path& path) {
    const fs::path from = campaign_ / path;
    std::error_code error;
    if (!fs::is_directory(from, error)) return;
    make_place(path);
    for (const std::string& name : entries(from)) {
      const fs::path source = from / name;
      const fs::path target = folder_ / path / name;
      const fs::file_status status = fs::symlink_status(source, error);
      if (fs::is_directory(status)) {
        link(path / name);
      } else if (!fs::exists(fs::symlink_status(target, error))) {
        if (fs::is_symlink(status)) {
          fs::copy_symlink(source, target, error);
        } else {
          fs::create_hard_link(source, target, error);
          if (error) fs::copy_file(source, target, fs::copy_options::overwrite_existing, error);
        }
        if (error)
          throw system_error(error.value(),
                             fmt::format("cannot keep {} as {}", source.string(), target.string()));
      }
    }
  }

 private:
  // The directory in the folder that has this path, on the file system of the one in the campaign.
  void make_place(const fs::path& path) {
    if (path == placed_) return;
    make_directories(folder_);
    fs::path from = campaign_;
    fs::path to = folder_;
    std::error_code error;
    for (const fs::path& name : path) {
      from /= name;
      const bool same = device_of(from) == device_of(to);
      to /= name;
      if (fs::is_directory(to, error)) continue;
      if (same || !fs::is_directory(from, error)) {
        make_directories(to);
        continue;
      }
      const fs::path place = fs::canonical(from, error) / hidden_;
      if (error) throw system_error(error.value(), "cannot look at " + from.string());
      make_directories(place);
      fs::create_directory_symlink(place, to, error);
      if (error) throw system_error(error.value(), "cannot make the link " + to.string());
    }
    placed_ = path;
  }

  // Read at once: a directory from which entries go is not read on.
  std::vector<std::string> entries(const fs::path& directory) const {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with(hidden_name(""))) names.push_back(name);
    }
    if (error) throw system_error(error.value(), "cannot read the directory " + directory.string());
    return names;
  }

  fs::path campaign_, folder_;
  std::string hidden_;
  std::optional<fs::path> placed_;
};

// With what lies on other file systems (hidden_name).
void remove_moved(const fs::path& path, const std::string& hidden) {
  std::error_code none;
  const fs::file_status status = fs::symlink_status(path, none);
  if (fs::is_symlink(status)) {
    const fs::path place = fs::read_symlink(path, none);
    if (!none && place.filename() == hidden) fs::remove_all(place, none);
  } else if (fs::is_directory(status)) {
    for (fs::directory_iterator at(path, none), end; !none && at != end; at.increment(none)) {
      std::error_code gone;
      if (at->is_directory(gone)) remove_moved(at->path(), hidden);
    }
    fs::remove_all(path, none);
    return;
  }
  fs::remove(path, none);
}

// Not in the campaign: beside it, and never deleted.
void move_beside(const fs::path& path, const std::string& name) {
  std::error_code error;
  if (!fs::exists(path, error)) return;
  const bool linked = fs::is_symlink(path, error);
  const fs::path from = linked ? fs::canonical(path, error) : path;
  fs::path to = from;
  to += ".old-" + name;
  rename_or_copy(from, to, error);
  if (error)
    throw system_error(error.value(), fmt::format("cannot move {} to {}", from.string(), to.string()));
  if (linked) make_directories(from);
}

// Calls visit() with the paths of the samples' directories in a part.
template <typename Visit>
void each_path(const AsidePart& part, Visit&& visit) {
  if (part.samples.empty()) {
    visit(fs::path(part.path));
    return;
  }
  const std::uint64_t each = std::max<std::uint64_t>(part.bundle, 1);
  for (const Range& range : part.samples) {
    for (std::uint64_t at = range.first / each; at <= range.last / each; ++at) {
      const std::string path = specs::sample_path(at, (part.layout + each - 1) / each, part.level_max_dirs);
      visit(path.empty() ? fs::path(part.path) : fs::path(part.path) / path);
    }
  }
}

void move_part(const fs::path& campaign, const std::string& name, const AsidePart& part) {
  if (fs::path(part.path).is_absolute()) return move_beside(part.path, name);
  Mover mover(campaign, name);
  if (part.linked) return mover.link(part.path);
  std::error_code none;
  if (!part.samples.empty() && !fs::exists(campaign / part.path, none)) return;
  each_path(part, [&](const fs::path& path) { mover.move(path); });
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

fs::path waiting_file(const fs::path& folder) {
  return folder / "replaced.json";
}

// In the order of their numbers; other names last.
std::vector<fs::path> old_folders(const fs::path& campaign) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator at(old_folder(campaign), error), end; !error && at != end; at.increment(error))
    folders.push_back(at->path());
  const auto number = [](const fs::path& path) {
    return text::to_integer(path.filename().string()).value_or(std::numeric_limits<std::int64_t>::max());
  };
  std::sort(folders.begin(), folders.end(),
            [&](const fs::path& a, const fs::path& b) { return number(a) < number(b); });
  return folders;
}

// Directories in which nothing is left.
void remove_empty(const fs::path& folder, const std::string& hidden) {
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    std::error_code gone;
    if (at->is_directory(gone)) remove_empty(at->path(), hidden);
  }
  if (const fs::path place = fs::read_symlink(folder, none); !none) {
    if (place.filename() == hidden && fs::remove(place, none)) fs::remove(folder, none);
    return;
  }
  fs::remove(folder, none);
}

struct Waiting {
  std::string path, step, array;
};

std::vector<Waiting> read_waiting(const fs::path& folder) {
  std::vector<Waiting> waiting;
  std::error_code none;
  if (!fs::exists(waiting_file(folder), none)) return waiting;
  try {
    for (const auto& entry : nlohmann::json::parse(read_file(waiting_file(folder))))
      waiting.push_back({entry.at("path").get<std::string>(), entry.at("step").get<std::string>(),
                         entry.at("array").get<std::string>()});
  } catch (const nlohmann::json::exception&) {
    // Then it is not known what waits, and everything stays.
  }
  return waiting;
}

void write_waiting(const fs::path& folder, const std::vector<Waiting>& waiting) {
  nlohmann::json json = nlohmann::json::array();
  for (const Waiting& one : waiting)
    json.push_back({{"path", one.path}, {"step", one.step}, {"array", one.array}});
  write_file_durably(waiting_file(folder), json.dump(1) + "\n");
}

}  // namespace

std::vector<AsidePart> aside_parts(const specs::Plan& from, const specs::Plan& to, const Changes& changes,
                                   bool with_removed, const IsDone& done) {
  return Gathering(from, to, changes, with_removed, done).gather();
}

AsideSize size_of(const fs::path& campaign, const AsidePart& part) {
  constexpr std::uint64_t kMostEntries = 20'000;
  AsideSize size;
  std::uint64_t entries = 0;
  const auto add = [&](const fs::directory_entry& entry) {
    std::error_code gone;
    if (!fs::is_regular_file(entry.symlink_status(gone))) return;
    ++size.files;
    size.bytes += entry.file_size(gone);
  };
  each_path(part, [&](const fs::path& path) {
    if (size.whole) size.whole = entries++ < kMostEntries;
    if (!size.whole) return;
    std::error_code error;
    const fs::path top = campaign / path;  // an absolute path stays as it is
    if (!fs::is_directory(top, error)) {
      if (const fs::directory_entry entry(top, error); !error) add(entry);
      return;
    }
    for (fs::recursive_directory_iterator at(top, fs::directory_options::skip_permission_denied, error), end;
         !error && at != end; at.increment(error)) {
      if (++entries > kMostEntries) {
        size.whole = false;
        return;
      }
      add(*at);
    }
  });
  return size;
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
    if (part.waits()) json["until"] = {part.until_step, part.until_array};
    if (part.linked) json["linked"] = true;
    parts.push_back(std::move(json));
  }
  const nlohmann::json json = {{"name", aside.name}, {"keep", aside.keep}, {"parts", parts}};
  remove_temporaries(campaign / ".wflow",
                     list_file(campaign).filename().string());  // left by a killed process
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
    for (const auto& entry : json.at("parts")) {
      AsidePart part;
      part.path = entry.at("path").get<std::string>();
      for (const auto& range : entry.value("samples", nlohmann::json::array()))
        part.samples.push_back({range.at(0).get<Element>(), range.at(1).get<Element>()});
      part.layout = entry.value("layout", std::uint64_t{0});
      part.level_max_dirs = entry.value("level_max_dirs", 25U);
      part.bundle = entry.value("bundle", std::uint64_t{0});
      if (entry.contains("until")) {
        part.until_step = entry.at("until").at(0).get<std::string>();
        part.until_array = entry.at("until").at(1).get<std::string>();
      }
      part.linked = entry.value("linked", false);
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

void require_movable(const fs::path& campaign, const Aside& aside) {
  for (const AsidePart& part : aside.parts) {
    const fs::path path = campaign / part.path;
    std::error_code none;
    if (!fs::exists(fs::symlink_status(path, none))) continue;
    const bool folder = fs::is_directory(path, none);
    // The entry ".." of a moved directory changes.
    for (const fs::path& written : {folder ? path : path.parent_path(), path.parent_path()}) {
      const bool needed = written == path || (part.samples.empty() && !part.linked && !stays(path));
      if (!needed || ::access(written.c_str(), W_OK | X_OK) == 0) continue;
      throw system_error(errno,
                         fmt::format("cannot move {} away, which is to be made again: {} cannot be written "
                                     "to; nothing was changed",
                                     path.string(), written.string()));
    }
  }
}

void carry_out(const fs::path& campaign, const Aside& aside) {
  const fs::path folder = aside_directory(campaign, aside.name);
  std::vector<Waiting> waiting;
  if (!aside.keep) {
    for (const AsidePart& part : aside.parts) {
      std::error_code none;
      const bool there = fs::exists(campaign / part.path, none) || fs::exists(folder / part.path, none);
      if (part.waits() && there && !fs::path(part.path).is_absolute())
        waiting.push_back({part.path, part.until_step, part.until_array});
    }
  }
  if (!waiting.empty()) {
    make_directories(folder);
    write_waiting(folder, waiting);
  }
  for (const AsidePart& part : aside.parts) move_part(campaign, aside.name, part);
  if (!aside.keep) {
    for (const AsidePart& part : aside.parts) {
      if (fs::path(part.path).is_absolute()) continue;  // it lies beside, not in the folder
      const bool waits = std::any_of(waiting.begin(), waiting.end(),
                                     [&](const Waiting& one) { return is_below(part.path, one.path); });
      if (!waits) remove_moved(folder / part.path, hidden_name(aside.name));
    }
    if (waiting.empty()) remove_moved(folder, hidden_name(aside.name));
  }
  remove_aside(campaign);
}

std::vector<KeptVersion> kept_versions(const fs::path& campaign) {
  return drop_replaced(campaign, [](const KeptVersion&) { return false; });
}

std::vector<KeptVersion> drop_replaced(const fs::path& campaign,
                                       const std::function<bool(const KeptVersion&)>& has_successor) {
  std::vector<KeptVersion> stay;
  for (const fs::path& folder : old_folders(campaign)) {
    const std::vector<Waiting> waiting = read_waiting(folder);
    std::vector<Waiting> still;
    for (const Waiting& one : waiting) {
      KeptVersion version{one.step, one.array, folder / one.path};
      if (has_successor(version)) {
        remove_moved(version.path, hidden_name(folder.filename().string()));
        continue;
      }
      still.push_back(one);
      stay.push_back(std::move(version));
    }
    if (still.size() == waiting.size()) continue;
    write_waiting(folder, still);
    if (!still.empty()) continue;
    std::error_code none;
    fs::remove(waiting_file(folder), none);
    remove_empty(folder, hidden_name(folder.filename().string()));
  }
  return stay;
}

}  // namespace wflow::engine
