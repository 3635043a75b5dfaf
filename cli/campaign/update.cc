// SPDX-License-Identifier: Apache-2.0
#include "cli/campaign/update.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "engine/query/client.h"
#include "engine/store/store.h"
#include "engine/update/aside.h"
#include "engine/update/sources.h"
#include "specs/plan/versions.h"
#include "specs/plan/workspace.h"
#include "specs/study/growth.h"

namespace wflow::cli {

namespace fs = std::filesystem;

namespace {

// How long a command waits for another one that takes a study in.
constexpr double kPatience_s = 10;

bool declares_sources(const specs::Study& study) {
  return std::any_of(study.steps.begin(), study.steps.end(),
                     [](const auto& step) { return !step.sources.empty(); });
}

// A conversion deletes files once the record of their block is on disk (converters/convert/block.cc).
engine::InputsDeleted inputs_deleted(const specs::Plan& plan) {
  return [&plan, known = std::optional<engine::ArrayId>(), folder = fs::path()](
             engine::ArrayId array, engine::Element block) mutable {
    if (known != array) folder = fs::path(plan.task_template(array).workspace) / "blocks";
    known = array;
    std::error_code error;
    return fs::exists(folder / fmt::format("{:05}.json", block), error) || error;
  };
}

// What the database says beyond the answers of a coordinator: while one lives, of a copy that it makes.
class ReadableRecord {
 public:
  explicit ReadableRecord(const specs::Plan& plan) {
    {
      engine::Client client(plan);  // at rest it holds the record as long as it lives
      client.status();
      if (client.live()) {
        copy_ = plan.campaign() / ".wflow" / fmt::format(".record.tmp-{}", ::getpid());
        make_directories(copy_ / ".wflow");
        client.snapshot(engine::store::database_path(copy_));
      }
    }
    store_.emplace(copy_.empty() ? plan.campaign() : copy_);
  }
  ~ReadableRecord() {
    store_.reset();
    std::error_code none;
    if (!copy_.empty()) fs::remove_all(copy_, none);
  }
  ReadableRecord(const ReadableRecord&) = delete;
  ReadableRecord& operator=(const ReadableRecord&) = delete;

  engine::store::Store& store() { return *store_; }

 private:
  fs::path copy_;
  std::optional<engine::store::Store> store_;
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

// Of trainings, those of `parts` that are to be kept.
std::vector<std::string> trainings(const specs::Plan& plan) {
  std::vector<std::string> paths;
  for (engine::ArrayId array = 0; array < plan.array_count(); ++array) {
    if (plan.steps()[plan.step_of(array)].kind != specs::StepKind::train) continue;
    paths.push_back(
        fs::path(plan.task_template(array).workspace).lexically_relative(plan.campaign()).string());
  }
  return paths;
}

engine::Aside aside_of(const specs::Plan& from, const specs::Plan& to, const engine::Changes& changes,
                       const UpdateOptions& options, std::string name) {
  engine::Aside aside;
  aside.name = std::move(name);
  aside.keep = options.keep_old;
  if (options.keep_trainings) aside.kept = trainings(from);
  aside.parts = engine::aside_parts(from, to, changes, options.keep_old);
  return aside;
}

std::string history_text(const UpdateOptions& options, std::uint64_t version,
                         const std::vector<std::string>& lines) {
  const std::string why = options.why.empty() ? "" : fmt::format(" ({})", options.why);
  const std::string what = lines.empty() ? "no task runs again" : text::join(lines, "; ");
  return version == 0 ? fmt::format("{}{}: {}", options.command, why, what)
                      : fmt::format("version {} of the study, {}{}: {}", version, options.command, why, what);
}

// The campaign's record and its files say the same.
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
  return specs::read_study(path, specs::update_options(campaign));
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
  // More samples behind those that there are: what was made of these stays.
  if (auto grown = specs::as_grown(from.study(), study)) study = std::move(*grown);
  std::vector<specs::KeyChange> keys = specs::differences(from.study(), study);
  specs::Plan to(std::move(study), campaign);
  engine::ArrayParts sources;
  if (declares_sources(from.study())) {
    ReadableRecord record(from);
    sources = engine::made_with_others(from, to.study(), record.store());
  }
  engine::Changes changes = engine::compare(from, to, sources, inputs_deleted(from));
  return {std::move(from), std::move(to), std::move(changes), std::move(keys), generates};
}

fs::path take(const Update& update, const UpdateOptions& options) {
  const fs::path& campaign = update.from.campaign();
  engine::store::Store store(campaign);
  require_same_version(campaign, store);
  const std::uint64_t version = store.study() + 1;
  const std::vector<std::string> lines = engine::lines_of(update.changes, options.keep_old);
  specs::VersionInfo info;
  info.number = version;
  info.why = options.why;
  info.command = options.command;
  info.changes = lines;
  specs::write_version(update.to.study(), campaign, info, true);
  // As every command reads it from now on.
  const specs::Plan to(specs::read_version(campaign, version), campaign);
  if (to.array_count() != update.to.array_count() || to.element_count() != update.to.element_count()) {
    specs::remove_version(campaign, version);
    throw Error(ExitCode::busy, "the study or its samples have changed meanwhile; try again");
  }
  const engine::Aside aside =
      aside_of(update.from, update.to, update.changes, options, next_aside(campaign, store));
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
  redo.changes = engine::again(plan, parts, inputs_deleted(plan));
  for (const auto& [array, range] : parts) redo.count += range.size();
  return redo;
}

fs::path take(const specs::Plan& plan, const Redo& redo, const UpdateOptions& options) {
  const fs::path& campaign = plan.campaign();
  engine::store::Store store(campaign);
  require_same_version(campaign, store);
  const engine::Aside aside = aside_of(plan, plan, redo.changes, options, next_aside(campaign, store));
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

void finish_update(const fs::path& campaign) {
  std::error_code none;
  if (!fs::is_symlink(campaign / ".wflow" / "spec", none)) return;
  const auto under_way = [&] {
    return fs::exists(campaign / ".wflow" / "aside.json", none) ||
           specs::has_version(campaign, specs::current_version(campaign) + 1);
  };
  for (const double until_s = steady_now_s() + kPatience_s; under_way();) {
    try {
      engine::store::Store store(campaign);
      const std::uint64_t next = specs::current_version(campaign) + 1;
      if (specs::has_version(campaign, next)) {
        store.study() == next ? specs::make_current(campaign, next) : specs::remove_version(campaign, next);
      }
      if (const auto aside = engine::read_aside(campaign))
        store.aside() == aside->name ? engine::carry_out(campaign, *aside) : engine::remove_aside(campaign);
      return;
    } catch (const Error& error) {
      if (error.code() != ExitCode::busy || steady_now_s() > until_s) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string notice_of_changes(const specs::Plan& plan) {
  const fs::path file = specs::study_file(plan.campaign());
  std::error_code none;
  std::string what;
  if (fs::exists(file, none) && read_file(file) != plan.study().text)
    what = fmt::format("{} differs from the campaign's copy, which is used", file.string());
  if (what.empty() && declares_sources(plan.study())) {
    try {
      ReadableRecord record(plan);
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
