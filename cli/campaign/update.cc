// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/update.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "converters/data_set_files.h"
#include "engine/query/client.h"
#include "engine/store/store.h"
#include "engine/update/aside.h"
#include "engine/update/changes.h"
#include "specs/plan/versions.h"
#include "specs/plan/workspace.h"
#include "specs/study/changes.h"

namespace wflow::cli {

namespace fs = std::filesystem;

namespace {

// Time that a command waits for another process that holds the record.
constexpr double kRecordWait_s = 10;

bool declares_sources(const specs::Study& study) {
  return std::any_of(study.steps.begin(), study.steps.end(),
                     [&](const auto& step) { return engine::has_sources(study, step); });
}

// A conversion deletes files once the record of their block is on disk (converters/convert/block.cc).
engine::InputsDeleted inputs_deleted(const specs::Plan& plan) {
  return [&plan, known = std::optional<engine::ArrayId>(), data_set = fs::path()](
             engine::ArrayId array, engine::Element block) mutable {
    if (known != array) data_set = plan.task_template(array).workspace;
    known = array;
    std::error_code error;
    return fs::exists(data_set / converters::block_record_file(block), error) || error;
  };
}

// True if the user has removed the outputs of a step (wflow rm --keep, rm -r). Tasks with packed output may
// leave none.
bool outputs_gone(const specs::Plan& plan, engine::ArrayId array) {
  const specs::TaskTemplate task = plan.task_template(array);
  const bool leaves_something =
      task.kind == specs::StepKind::convert || task.kind == specs::StepKind::train ||
      (task.kind == specs::StepKind::shell && task.output != specs::OutputMode::packed);
  std::error_code error;
  return leaves_something && !fs::exists(task.workspace, error) && !error;
}

engine::OutputsGone outputs_gone(const specs::Plan& plan) {
  return [&plan](engine::ArrayId array) { return outputs_gone(plan, array); };
}

// Reads facts from the database that a coordinator does not answer; while one lives, from a copy that it
// makes.
class ReadableRecord {
 public:
  explicit ReadableRecord(const specs::Plan& plan, engine::Waiting waiting = {}) {
    {
      engine::Client client(plan.campaign(), waiting);  // at rest it locks the record during its lifetime
      client.status();
      if (client.live()) {
        copy_.emplace(plan.campaign() / ".wflow", ".record");
        make_directories(copy_->path() / ".wflow");
        client.snapshot(engine::store::database_path(copy_->path()));
      }
    }
    store_.emplace(copy_ ? copy_->path() : plan.campaign());
  }
  ReadableRecord(const ReadableRecord&) = delete;
  ReadableRecord& operator=(const ReadableRecord&) = delete;

  engine::store::Store& store() { return *store_; }

 private:
  std::optional<StagingFolder> copy_;
  std::optional<engine::store::Store> store_;  // closed before the copy goes
};

bool judges_others(const specs::PlannedStep& from, const specs::PlannedStep& to) {
  return from.continue_on != to.continue_on;
}

engine::store::Takeover takeover_of(const specs::Plan& from, const specs::Plan& to,
                                    const engine::Changes& changes) {
  engine::store::Takeover takeover;
  takeover.arrays.resize(changes.arrays.size());
  for (engine::ArrayId array = 0; array < changes.arrays.size(); ++array) {
    const engine::ArrayChange& change = changes.arrays[array];
    engine::store::TakenArray& taken = takeover.arrays[array];
    taken.from = change.from;
    change.open.for_each([&](engine::Range range) { taken.open.push_back(range); });
    if (change.from)
      taken.judge_skipped =
          judges_others(from.steps()[from.step_of(*change.from)], to.steps()[to.step_of(array)]);
  }
  return takeover;
}

std::string next_aside(const fs::path& campaign, engine::store::Store& store) {
  const auto last = text::to_integer(store.aside()).value_or(0);
  const auto there = text::to_integer(engine::new_aside_name(campaign)).value_or(1);
  return std::to_string(std::max(last + 1, there));
}

// True if the step does not run once a sample: a data set's last task, a training, a single task.
bool is_single(const specs::PlannedStep& step) {
  return !step.sample_dependent && step.elements == 1;
}

// The arrays of these steps whose elements are all done.
template <typename Chosen>
std::set<engine::ArrayId> done_arrays(const specs::Plan& plan, const Chosen& chosen) {
  std::vector<Stretch> stretches = tasks_named(plan, {});
  std::erase_if(stretches,
                [&](const Stretch& of_step) { return !chosen(plan.steps()[plan.step_of(of_step.first)]); });
  std::set<engine::ArrayId> done;
  if (stretches.empty()) return done;
  std::map<engine::ArrayId, std::uint64_t> counts;
  engine::Client client(plan);
  for (const auto& [array, range] : done_parts(client, stretches)) counts[array] += range.size();
  for (const auto& [array, count] : counts) {
    if (count == plan.steps()[plan.step_of(array)].elements) done.insert(array);
  }
  return done;
}

std::vector<engine::AsidePart> parts_of(const specs::Plan& from, const specs::Plan& to,
                                        const engine::Changes& changes, bool keep_old,
                                        const std::set<engine::ArrayId>& done) {
  return engine::aside_parts(from, to, changes, keep_old,
                             [&](engine::ArrayId array) { return done.contains(array); });
}

engine::Aside aside_of(const specs::Plan& from, const specs::Plan& to, const engine::Changes& changes,
                       const UpdateOptions& options, const std::set<engine::ArrayId>& done,
                       std::string name) {
  engine::Aside aside;
  aside.name = std::move(name);
  aside.keep = options.keep_old;
  aside.parts = parts_of(from, to, changes, options.keep_old, done);
  return aside;
}

// A part of the outputs, described for the user.
struct ReplacedPart {
  std::string what;
  engine::AsideSize size;
  const engine::AsidePart* part = nullptr;
};

// Leaves out parts that do not exist and parts inside another one.
std::vector<ReplacedPart> replaced_parts(const fs::path& campaign,
                                         const std::vector<engine::AsidePart>& parts) {
  std::vector<ReplacedPart> list;
  for (const engine::AsidePart& part : parts) {
    const bool belongs = std::any_of(parts.begin(), parts.end(), [&](const engine::AsidePart& other) {
      return other.samples.empty() && part.path.starts_with(other.path + "/");
    });
    std::error_code none;
    if (belongs || !fs::exists(campaign / part.path, none)) continue;
    std::string what = part.path;
    if (!part.samples.empty()) {
      std::uint64_t count = 0;
      for (const engine::Range& range : part.samples) count += range.size();
      what =
          fmt::format("{} {} of {}", text::format_count(count), count == 1 ? "output" : "outputs", part.path);
    }
    list.push_back({std::move(what), engine::size_of(campaign, part), &part});
  }
  return list;
}

std::string size_text(const engine::AsideSize& size) {
  return fmt::format("{}{}", size.whole ? "" : "more than ", text::format_bytes(size.bytes));
}

std::string listed(const std::vector<const ReplacedPart*>& parts) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  engine::AsideSize rest;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i < kNamed) {
      names.push_back(fmt::format("{} ({})", parts[i]->what, size_text(parts[i]->size)));
    } else {
      rest.bytes += parts[i]->size.bytes;
      rest.whole = rest.whole && parts[i]->size.whole;
    }
  }
  if (parts.size() > kNamed)
    names.push_back(fmt::format("{} more ({})", text::format_count(parts.size() - kNamed), size_text(rest)));
  return text::join(names, ", ");
}

std::vector<std::string> lines_of_parts(const fs::path& campaign, const std::vector<engine::AsidePart>& parts,
                                        bool keep_old) {
  const std::vector<ReplacedPart> all = replaced_parts(campaign, parts);
  std::vector<const ReplacedPart*> kept, wait, go;
  for (const ReplacedPart& one : all) {
    const bool beside = fs::path(one.part->path).is_absolute();  // a training's output:, never deleted
    (keep_old || beside ? kept : one.part->waits() ? wait : go).push_back(&one);
  }
  std::vector<std::string> lines;
  if (!kept.empty()) lines.push_back(fmt::format("kept: {}", listed(kept)));
  if (!wait.empty())
    lines.push_back(fmt::format("replaced, and kept in .wflow/old until {}: {}",
                                wait.size() == 1 ? "the new one is done" : "the new ones are done",
                                listed(wait)));
  if (!go.empty()) lines.push_back(fmt::format("deleted: {}", listed(go)));
  return lines;
}

std::string history_text(const UpdateOptions& options, std::uint64_t version,
                         const std::vector<std::string>& lines) {
  const std::string why = options.why.empty() ? "" : fmt::format(" ({})", options.why);
  const std::string what = lines.empty() ? "no task runs again" : text::join(lines, "; ");
  return version == 0 ? fmt::format("{}{}: {}", options.command, why, what)
                      : fmt::format("version {} of the study, {}{}: {}", version, options.command, why, what);
}

// Throws Error{busy} if the campaign's record and its files have different versions of the study.
void require_same_version(const fs::path& campaign, engine::store::Store& store) {
  if (store.study() == specs::current_version(campaign)) return;
  throw Error(ExitCode::busy, fmt::format("another command is changing {}; try again", campaign.string()));
}

}  // namespace

specs::StudyAndWarnings read_changed_study(const fs::path& campaign, const std::string& file) {
  const fs::path path = file.empty() ? specs::study_file(campaign) : absolute_path(file);
  std::error_code none;
  if (!fs::exists(path, none)) {
    throw Error(
        ExitCode::usage,
        fmt::format(
            "{} is not there{}", path.string(),
            file.empty() ? ", which the campaign was made of; name the changed study: --study FILE" : ""));
  }
  return specs::read_study(path, specs::update_options(campaign, recorded_version(campaign)));
}

Update propose(const fs::path& campaign, specs::Study study) {
  specs::Plan from = read_plan(campaign);
  const bool generates = specs::generates_samples(from.study(), study);
  if (study.samples && study.samples->design.count == 0) {
    throw Error(
        ExitCode::usage,
        fmt::format(
            "the samples {} are not there{}", study.samples->design.file.string(),
            generates ? "; wflow resume --update generates them while the campaign does not run" : ""));
  }
  // More samples after the existing ones: the results of the existing ones stay.
  if (auto grown = specs::as_grown(from.study(), study)) study = std::move(*grown);
  std::vector<specs::KeyChange> keys = specs::differences(from.study(), study);
  specs::Plan to(std::move(study), campaign);
  engine::ArrayParts sources;
  if (declares_sources(from.study())) {
    ReadableRecord record(from);
    sources = engine::made_with_others(from, to.study(), record.store());
  }
  engine::Changes changes = engine::compare(from, to, sources, inputs_deleted(from), outputs_gone(from));
  std::set<engine::ArrayId> done = done_arrays(from, is_single);
  return {std::move(from), std::move(to), std::move(changes), std::move(keys), generates, std::move(done)};
}

Update propose_growth(const specs::Plan& plan, const specs::Growth& growth) {
  specs::ReadOptions read = specs::update_options(plan.campaign());
  read.fresh_samples = false;  // the campaign's own copies, except for the new table
  return propose(plan.campaign(), specs::grown_study(plan.study(), read, growth));
}

fs::path take(const Update& update, const UpdateOptions& options) {
  const fs::path& campaign = update.from.campaign();
  engine::store::Store store(campaign);
  require_same_version(campaign, store);
  const engine::Aside aside =
      aside_of(update.from, update.to, update.changes, options, update.done, next_aside(campaign, store));
  engine::require_movable(campaign, aside);
  const std::uint64_t version = store.study() + 1;
  const std::vector<std::string> lines = engine::lines_of(update.changes, options.keep_old);
  specs::VersionInfo info;
  info.number = version;
  info.why = options.why;
  info.command = options.command;
  info.changes = lines;
  specs::write_version(update.to.study(), campaign, info, true);
  // Read it back as every later command does.
  const specs::Plan to(specs::read_version(campaign, version), campaign);
  if (to.array_count() != update.to.array_count() || to.element_count() != update.to.element_count()) {
    specs::remove_version(campaign, version);
    throw Error(ExitCode::busy, "the study or its samples have changed meanwhile; try again");
  }
  engine::write_aside(campaign, aside);
  engine::store::Takeover takeover = takeover_of(update.from, to, update.changes);
  takeover.study = version;
  takeover.aside = aside.name;
  takeover.forget_made = true;
  takeover.sources = engine::rows_of_sources(to.study(), store, version);
  takeover.history.push_back({unix_now_s(), "update", history_text(options, version, lines)});
  store.take(to, takeover);
  specs::make_current(campaign, version);
  specs::write_copies(to.study(), campaign);
  engine::carry_out(campaign, aside);
  return engine::aside_directory(campaign, aside.name);
}

Redo propose_redo(const specs::Plan& plan, const engine::ArrayParts& parts) {
  Redo redo;
  redo.changes = engine::again(plan, parts, inputs_deleted(plan), outputs_gone(plan));
  for (const auto& [array, range] : parts) redo.count += range.size();
  redo.done = done_arrays(plan, is_single);
  return redo;
}

fs::path take(const specs::Plan& plan, const Redo& redo, const UpdateOptions& options) {
  const fs::path& campaign = plan.campaign();
  engine::store::Store store(campaign);
  require_same_version(campaign, store);
  const engine::Aside aside =
      aside_of(plan, plan, redo.changes, options, redo.done, next_aside(campaign, store));
  engine::require_movable(campaign, aside);
  engine::write_aside(campaign, aside);
  engine::store::Takeover takeover = takeover_of(plan, plan, redo.changes);
  takeover.study = store.study();
  takeover.aside = aside.name;
  std::vector<std::string> lines;
  for (const engine::StepChange& step : redo.changes.steps)
    lines.push_back(fmt::format("{}: {} of {}", step.step, text::format_count(step.stale),
                                text::format_count(step.elements)));
  takeover.history.push_back({unix_now_s(), "redo", history_text(options, 0, lines)});
  store.take(plan, takeover);
  engine::carry_out(campaign, aside);
  return engine::aside_directory(campaign, aside.name);
}

std::vector<std::string> lines_of_replaced(const Update& update, bool keep_old) {
  return lines_of_parts(update.from.campaign(),
                        parts_of(update.from, update.to, update.changes, keep_old, update.done), keep_old);
}

std::vector<std::string> lines_of_replaced(const specs::Plan& plan, const Redo& redo, bool keep_old) {
  return lines_of_parts(plan.campaign(), parts_of(plan, plan, redo.changes, keep_old, redo.done), keep_old);
}

nlohmann::ordered_json json_of_replaced(const Update& update) {
  const auto parts = parts_of(update.from, update.to, update.changes, false, update.done);
  nlohmann::ordered_json list = nlohmann::json::array();
  for (const ReplacedPart& one : replaced_parts(update.from.campaign(), parts)) {
    list.push_back({{"what", one.what},
                    {"path", one.part->path},
                    {"bytes", one.size.bytes},
                    {"files", one.size.files},
                    {"all_counted", one.size.whole},
                    {"kept_until_done", one.part->waits() ? nlohmann::ordered_json(one.part->until_step)
                                                          : nlohmann::ordered_json(nullptr)}});
  }
  return list;
}

std::vector<std::string> drop_replaced(const specs::Plan& plan) {
  const fs::path& campaign = plan.campaign();
  std::set<std::string> steps;
  for (const engine::KeptVersion& version : engine::kept_versions(campaign)) steps.insert(version.step);
  if (steps.empty()) return {};
  std::set<engine::ArrayId> done;
  try {
    done = done_arrays(plan, [&](const specs::PlannedStep& step) { return steps.contains(step.name); });
  } catch (const Error& error) {
    if (error.code() != ExitCode::busy) throw;
    return {};
  }
  const auto has_successor = [&](const engine::KeptVersion& version) {
    for (const specs::PlannedStep& step : plan.steps()) {
      if (step.name != version.step) continue;
      bool all = true;
      for (engine::ArrayId array = step.first_array; array < step.first_array + step.arrays; ++array) {
        if (!version.array.empty() && plan.array_name(array) == version.array) return done.contains(array);
        all = all && done.contains(array);
      }
      return all;  // the study no longer has the combination: all others are its successor
    }
    return false;
  };
  std::vector<std::string> lines;
  for (const engine::KeptVersion& version : engine::drop_replaced(campaign, has_successor))
    lines.push_back(fmt::format("{} is not done; its last good version is in {}",
                                version.array.empty() ? version.step : version.array, version.path.string()));
  return lines;
}

namespace {

// Calls `action` with the record if `under_way` returns true, and waits while another process holds the
// record.
template <class UnderWay, class Action>
void with_record(const fs::path& campaign, const UnderWay& under_way, const Action& action) {
  for (const double until_s = steady_now_s() + kRecordWait_s; under_way();) {
    try {
      engine::store::Store store(campaign);
      action(store);
      return;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy || steady_now_s() > until_s) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

std::uint64_t recorded_version(const fs::path& campaign) {
  std::optional<std::uint64_t> found;
  const auto has_next = [&] { return specs::has_version(campaign, specs::current_version(campaign) + 1); };
  with_record(campaign, has_next, [&](engine::store::Store& store) {
    const std::uint64_t next = specs::current_version(campaign) + 1;
    if (specs::has_version(campaign, next) && store.study() == next) found = next;
  });
  return found ? *found : specs::current_version(campaign);
}

void finish_update(const fs::path& campaign) {
  std::error_code none;
  if (!fs::is_symlink(campaign / ".wflow" / "spec", none)) return;
  const auto under_way = [&] {
    return fs::exists(campaign / ".wflow" / "aside.json", none) ||
           specs::has_version(campaign, specs::current_version(campaign) + 1);
  };
  with_record(campaign, under_way, [&](engine::store::Store& store) {
    const std::uint64_t next = specs::current_version(campaign) + 1;
    if (specs::has_version(campaign, next)) {
      store.study() == next ? specs::make_current(campaign, next) : specs::remove_version(campaign, next);
    }
    if (const auto aside = engine::read_aside(campaign))
      store.aside() == aside->name ? engine::carry_out(campaign, *aside) : engine::remove_aside(campaign);
  });
}

std::string notice_of_changes(const specs::Plan& plan) {
  const fs::path file = specs::study_file(plan.campaign());
  std::error_code none;
  std::string what;
  if (fs::exists(file, none) && read_file(file) != plan.study().text)
    what = fmt::format("{} differs from the campaign's copy, which is used", file.string());
  if (what.empty() && declares_sources(plan.study())) {
    try {
      // A notice does not wait long for a coordinator that does not answer: the command itself does.
      ReadableRecord record(plan, {.change_s = 2, .answer_s = 5});
      const auto changed = engine::changed_sources(plan.study(), record.store());
      if (!changed.empty())
        what = fmt::format("{} {} changed since tasks ran with {}", text::join(changed, ", "),
                           changed.size() == 1 ? "has" : "have", changed.size() == 1 ? "it" : "them");
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy) throw;
    }
  }
  if (what.empty()) return {};
  return fmt::format("{}; wflow diff shows what follows, wflow resume --update {} takes it over", what,
                     plan.campaign().string());
}

}  // namespace wflow::cli
