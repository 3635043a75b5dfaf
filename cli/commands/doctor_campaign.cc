// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/campaign/campaigns.h"
#include "cli/campaign/selection.h"
#include "cli/view/terminal.h"
#include "converters/data_set_files.h"
#include "engine/followups/followups.h"
#include "engine/query/client.h"
#include "engine/store/campaign_lock.h"
#include "engine/store/store.h"
#include "engine/wire/worker_journal.h"
#include "specs/plan/versions.h"
#include "specs/plan/workspace.h"
#include "steps/files.h"
#include "steps/packed_output.h"

namespace wflow::cli {

namespace {

namespace fs = std::filesystem;
namespace wire = engine::wire;

constexpr std::size_t kNamed = 5;  // files of one kind that a sentence names

struct Finding {
  std::string what;            // one sentence
  std::string remedy;          // the repair, in words
  std::function<void()> mend;  // empty: wflow can't
};

// "a, b and 3 more"
std::string some_of(const std::vector<fs::path>& paths, const fs::path& below) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(paths.size(), kNamed); ++i)
    names.push_back(paths[i].lexically_relative(below).string());
  const std::string more =
      paths.size() > kNamed ? fmt::format(" and {} more", text::format_count(paths.size() - kNamed)) : "";
  return text::join(names, ", ") + more;
}

void remove_all(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw system_error(error.value(), "cannot remove " + path.string());
  }
}

class Examination {
 public:
  explicit Examination(fs::path campaign) : campaign_(std::move(campaign)) {}

  std::vector<Finding> run() {
    look_at_database();
    look_at_journals();
    look_at_leftovers();
    look_at_studies();
    try {
      look_at_steps(read_plan(campaign_));
    } catch (const Error& error) {
      add(error.what(), "what its steps have written was not looked at: begin with this file");
    }
    return std::move(findings_);
  }

  // Number of files whose bytes are exactly as written.
  std::uint64_t whole_files() const { return whole_files_; }

 private:
  void add(std::string what, std::string remedy, std::function<void()> mend = {}) {
    findings_.push_back({std::move(what), std::move(remedy), std::move(mend)});
  }

  void look_at_database() {
    const engine::store::DatabaseReport report = engine::store::examine_database(campaign_);
    database_is_sound_ = report.sound();
    const std::string file = ".wflow/campaign.db";
    for (const std::string& line : report.damage) {
      add(fmt::format("{} is damaged: {}", file, line),
          "nothing in it explains what is missing: put a copy that `wflow snapshot` made in its place");
    }
    const auto mend = [campaign = campaign_] { engine::store::mend_database(campaign); };
    if (!report.indexes.empty()) {
      add(fmt::format("{}: {} entries of its indexes are wrong ({})", file, report.indexes.size(),
                      report.indexes.front()),
          "make the indexes anew from their tables", mend);
    }
    if (!report.counts.empty()) {
      add(fmt::format("{}: its counts are wrong: {}", file, text::join(report.counts, "; ")),
          "count anew from the record of each task", mend);
    }
    if (report.lost_commits > 0) {
      add(fmt::format(
              "{} lacks the last {} commits: its write-ahead log was removed or cut, or it is an older copy",
              file, report.lost_commits),
          fmt::format(
              "put the newer files back, or `wflow resume --accept-loss {}`: what they recorded runs again",
              campaign_.string()));
    }
  }

  // Whole records wait for the next resume. Damaged bytes among them are set aside, so that they are reported
  // once.
  void look_at_journals() {
    std::vector<fs::path> empty;
    for (const fs::path& path : journals()) {
      std::string bytes;
      try {
        bytes = read_file(path);
      } catch (const Error& error) {
        add(error.what(), "mend the disk: results that are recorded nowhere else may be in it");
        continue;
      }
      wire::Records records = wire::parse_records(bytes);
      wire::compare(records, wire::noted_results(path));
      const std::string name = path.lexically_relative(campaign_).string();
      results_wait_ = results_wait_ || !records.results.empty();
      if (records.damaged.newer) {
        add(fmt::format("{}: {}", name, records.damaged.sentence()), "resume with that version");
      } else if (records.damaged) {
        add(fmt::format("{}: {}", name, records.damaged.sentence()),
            fmt::format("keep the {} whole records, and the file as it is as {}.damaged",
                        records.results.size(), name),
            [path, bytes, records] { rewrite(path, bytes, records); });
      } else if (records.results.empty()) {
        empty.push_back(path);
      }
    }
    if (empty.empty()) return;
    add(fmt::format("{} journals of workers that have ended hold no result: {}", empty.size(),
                    some_of(empty, campaign_)),
        "remove them", [empty] {
          remove_all(empty);
          std::error_code ignored;
          for (const fs::path& journal : empty) fs::remove(wire::count_file(journal), ignored);
        });
  }

  static void rewrite(const fs::path& path, const std::string& bytes, const wire::Records& records) {
    write_file_durably(path.string() + ".damaged", bytes, 0600);
    std::string whole;
    if (records.header) whole += wire::frame_record(*records.header);
    for (const wire::Results& results : records.results) whole += wire::frame_record(results);
    write_file_durably(path, whole, 0600);
    std::error_code ignored;
    fs::remove(wire::count_file(path), ignored);  // it is reported once
  }

  // The journals of workers that have ended: no process holds their lock.
  std::vector<fs::path> journals() const {
    std::vector<fs::path> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(campaign_ / ".wflow" / "workers", error)) {
      if (entry.path().extension() == ".journal" && !is_locked(entry.path())) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  static bool is_locked(const fs::path& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }

  // Unfinished files of killed processes, folders of workers, the address of a coordinator that is gone.
  void look_at_leftovers() {
    std::vector<fs::path> temporaries, folders;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(campaign_ / ".wflow" / "workers", error)) {
      const fs::path journal = entry.path().string() + ".journal";
      if (entry.is_directory(error) && !fs::exists(journal, error)) folders.push_back(entry.path());
    }
    for (auto at = fs::recursive_directory_iterator(campaign_, fs::directory_options::skip_permission_denied,
                                                    error);
         !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (is_temporary(at->path().filename().string()) && at->is_regular_file(error))
        temporaries.push_back(at->path());
    }
    if (!temporaries.empty()) {
      add(fmt::format("{} files were being written when their program was killed: {}", temporaries.size(),
                      some_of(temporaries, campaign_)),
          "remove them", [temporaries] { remove_all(temporaries); });
    }
    if (!folders.empty()) {
      add(fmt::format("{} folders of workers that have ended: {}", folders.size(),
                      some_of(folders, campaign_)),
          "remove them", [folders] { remove_all(folders); });
    }
    const fs::path endpoint = campaign_ / ".wflow" / "endpoint.json";
    if (fs::exists(endpoint, error)) {
      add(".wflow/endpoint.json names a coordinator that does not live", "remove it",
          [endpoint] { remove_all({endpoint}); });
    }
  }

  // True for names of temporary files as base/file.h and steps/files.h make them.
  static bool is_temporary(const std::string& name) {
    return (name.starts_with(".") && name.find(".tmp-") != std::string::npos) ||
           name.find(".tmp.") != std::string::npos;
  }

  // The copies, options and sample tables of all versions of the study.
  void look_at_studies() {
    std::set<std::uint64_t> numbers;
    std::error_code none;
    for (fs::directory_iterator at(campaign_ / ".wflow" / "studies", none), end; !none && at != end;
         at.increment(none)) {
      if (const auto number = text::to_integer(at->path().filename().string()))
        numbers.insert(static_cast<std::uint64_t>(*number));
    }
    for (const std::uint64_t number : numbers) {
      const std::vector<std::string> damage = specs::version_damage(campaign_, number);
      whole_files_ += damage.empty() ? 2 : 0;  // the study and its options
      for (const std::string& line : damage)
        add(line, fmt::format("put a copy of it back: version {} of the study is read from it", number));
    }
  }

  void look_at_steps(const specs::Plan& plan) {
    // One client for all questions: the first question reads the state of every task.
    std::optional<engine::Client> record;
    if (database_is_sound_) look_at_markers(plan, record.emplace(plan));
    const auto is_done = [&](engine::ArrayId array) {
      return record && !done_parts(*record, {{array, array, {0, 0}}}).empty();
    };
    std::set<fs::path> packed;
    for (engine::ArrayId array = 0; array < plan.array_count(); ++array) {
      const specs::PlannedStep& step = plan.steps()[plan.step_of(array)];
      const std::string& name = plan.study().steps[step.study_step].name;
      const specs::TaskTemplate task = plan.task_template(array);
      if (step.kind == specs::StepKind::convert && step.block_samples == 0) {
        const bool done = is_done(array);
        look_at_blocks(task.workspace, name, !done);
        if (done) look_at_data_set(task.workspace, name);
      }
      if (step.kind == specs::StepKind::train) {
        look_at_training(task.workspace, name, is_done(array));
        look_at_checkpoints(task.workspace);
      }
      if (step.kind == specs::StepKind::shell && task.output == specs::OutputMode::packed &&
          packed.insert(steps::packed_directory(task.workspace)).second)
        look_at_packed(steps::packed_directory(task.workspace), name);
    }
  }

  // Compares every text with its checksum.
  void look_at_packed(const fs::path& directory, const std::string& step) {
    const std::vector<std::string> damage = steps::packed_damage(directory, true);
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory, none))
      whole_files_ += damage.empty() && entry.is_regular_file(none) ? 1 : 0;
    for (const std::string& line : damage)
      add(line, fmt::format("nothing depends on it; to have it printed again: wflow redo {} {}",
                            campaign_.string(), step));
  }

  // `with_shards`: no manifest lists the shards yet, so the records of the blocks do.
  void look_at_blocks(const fs::path& data, const std::string& step, bool with_shards) {
    const std::string remedy =
        fmt::format("the next conversion makes it again: wflow resume {0}, or wflow redo {0} {1}",
                    campaign_.string(), step);
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(data / converters::kBlocksFolder, none)) {
      if (entry.path().extension() != converters::kBlockRecordEnding) continue;
      const CheckedJson read = take_checksum(read_file(entry.path()));
      const nlohmann::json record = nlohmann::json::parse(read.text, nullptr, false);
      if (!read.whole || !record.is_object()) {
        add(entry.path().lexically_relative(campaign_).string() + " is damaged", remedy);
        continue;
      }
      ++whole_files_;
      if (!with_shards) continue;
      for (const nlohmann::json& shard : record.value("shards", nlohmann::json::array()))
        look_at_file(data / shard.value("file", ""), shard.value("xxh3_128", ""), remedy);
    }
  }

  void look_at_file(const fs::path& path, const std::string& checksum, const std::string& remedy) {
    const std::string name = path.lexically_relative(campaign_).string();
    std::error_code none;
    if (!fs::is_regular_file(path, none)) {
      add(name + " is missing", remedy);
    } else if (hash_file(path) != checksum) {
      add(name + " is not as it was written", remedy);
    } else {
      ++whole_files_;
    }
  }

  // Checkpoints end with their checksum: docs/formats/checkpoints.md.
  void look_at_checkpoints(const fs::path& training) {
    std::error_code none;
    for (fs::recursive_directory_iterator at(training, none);
         !none && at != fs::recursive_directory_iterator(); at.increment(none)) {
      if (at->path().extension() != ".wfck") continue;
      if (ends_with_its_hash(at->path())) {
        ++whole_files_;
      } else {
        add(at->path().lexically_relative(campaign_).string() + " is damaged",
            "remove it: a training that goes on takes the one before it");
      }
    }
  }

  // Reads every byte.
  void look_at_data_set(const fs::path& data, const std::string& step) {
    const std::string folder = data.lexically_relative(campaign_).string();
    const std::string remedy = fmt::format("make it again: wflow redo {} {}", campaign_.string(), step);
    SpawnRequest request;
    request.argv = {sibling_program("wflow-convert"), "verify", data.string()};
    const CommandResult result = run_command(request);
    std::vector<std::string> lines = text::split(text::trim(result.out), '\n');
    if (result.status == 0) {
      whole_files_ +=
          static_cast<std::uint64_t>(text::to_integer(text::split(lines.front(), ' ').front()).value_or(0));
      return;
    }
    if (text::trim(result.out).empty()) lines = {std::string(text::trim(result.err))};
    for (const std::string& line : lines) add(fmt::format("{}: {}", folder, line), remedy);
  }

  // Checks the result files of a training: trainer/training/report.h.
  void look_at_training(const fs::path& training, const std::string& step, bool done) {
    const fs::path file = training / "result.json";
    const std::string name = file.lexically_relative(campaign_).string();
    const std::string remedy = fmt::format("train again: wflow redo {} {}", campaign_.string(), step);
    std::error_code none;
    if (!fs::exists(file, none)) {
      if (done && fs::exists(training / "model.pt", none))
        add(name + " is missing, with the checksums of what stands beside it", remedy);
      return;
    }
    const CheckedJson read = take_checksum(read_file(file));
    const nlohmann::json result = nlohmann::json::parse(read.text, nullptr, false);
    if (!read.whole || !result.is_object()) return add(name + " is damaged", remedy);
    ++whole_files_;
    const nlohmann::json checksums = result.value("checksums", nlohmann::json::object());
    for (const auto& [other, checksum] : checksums.items()) {
      const fs::path path = training / other;
      // A user may remove any file but the model.
      if (other == "model.pt" || fs::exists(path, none))
        look_at_file(path, checksum.is_string() ? checksum.get<std::string>() : "", remedy);
    }
  }

  // Reports missing markers. The record counts, unless a step trusts its markers.
  void look_at_markers(const specs::Plan& plan, engine::Client& client) {
    const auto lost = lost_markers(plan, client);
    std::uint64_t count = 0;
    for (const auto& [array, range] : lost) count += range.size();
    if (count > 0) {
      add(fmt::format("{} tasks that are done have no MERLIN_FINISHED", text::format_count(count)),
          "make it again (to run them again instead: wflow resume --trust-markers)",
          [campaign = campaign_, lost] {
            const specs::Plan again = read_plan(campaign);
            for (const auto& [array, range] : lost) {
              const specs::TaskTemplate task = again.task_template(array);
              for (engine::Element element = range.first; element <= range.last; ++element) {
                const fs::path marker = steps::finished_marker(task, element);
                make_directories(marker.parent_path());
                steps::mark_finished(marker.string());
              }
            }
          });
    }
    if (!results_wait_) look_at_early_markers(plan, client);
  }

  void look_at_early_markers(const specs::Plan& plan, engine::Client& client) {
    std::vector<fs::path> early;
    wire::TasksRequest request;
    if (plan.array_count() == 0) return;
    request.last_array = plan.array_count() - 1;
    request.last = std::numeric_limits<engine::Element>::max();
    request.states =
        ~(1U << static_cast<unsigned>(engine::ElementState::done)) & ((1U << engine::kElementStates) - 1);
    while (true) {
      const wire::TasksAnswer page = client.tasks(request);
      for (const auto& run : page.runs) {
        const specs::TaskTemplate task = plan.task_template(run.array);
        if (!steps::leaves_marker(task) || task.trust_markers) continue;
        for (engine::Element element = run.first; element <= run.last; ++element) {
          const fs::path marker = steps::finished_marker(task, element);
          std::error_code ignored;
          if (fs::exists(marker, ignored)) early.push_back(marker);
        }
      }
      if (!page.next) break;
      request.from = *page.next;
    }
    if (early.empty()) return;
    add(fmt::format("{} tasks have a MERLIN_FINISHED and are not done by the record: {}",
                    text::format_count(early.size()), some_of(early, campaign_)),
        "remove it; they run again with the next resume (a step with `trust_markers: true` would keep them)",
        [early] { remove_all(early); });
  }

  fs::path campaign_;
  bool database_is_sound_ = false;
  bool results_wait_ = false;  // journals hold results: the next resume takes them
  std::uint64_t whole_files_ = 0;
  std::vector<Finding> findings_;
};

bool says_yes() {
  fmt::print("\nmend what can be mended? [y/N] ");
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return text::lower(answer) == "y" || text::lower(answer) == "yes";
}

nlohmann::json json_of(const std::vector<Finding>& findings, const std::vector<bool>& mended) {
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t i = 0; i < findings.size(); ++i) {
    rows.push_back({{"found", findings[i].what},
                    {"remedy", findings[i].remedy},
                    {"can_be_mended", static_cast<bool>(findings[i].mend)},
                    {"mended", static_cast<bool>(mended[i])}});
  }
  return rows;
}

}  // namespace

int examine_campaign(const DoctorOptions& options) {
  const fs::path campaign = find_campaign(options.campaign);
  engine::store::refuse_if_held(campaign);
  Examination examination(campaign);
  const std::vector<Finding> findings = examination.run();
  std::vector<bool> mended(findings.size(), false);
  const auto can =
      std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.mend != nullptr; });
  if (!options.json) {
    if (findings.empty())
      fmt::print("{}: nothing is wrong; {} files that have checksums are as they were written\n",
                 campaign.string(), text::format_count(examination.whole_files()));
    for (const Finding& finding : findings)
      fmt::print("{}\n  {}: {}\n", finding.what, finding.mend ? "would" : "you can", finding.remedy);
  }
  const bool asks = can > 0 && !options.yes && !options.json && ::isatty(STDIN_FILENO) != 0;
  if (can > 0 && (options.yes || (asks && says_yes()))) {
    engine::store::refuse_if_held(campaign);  // a coordinator may have begun before the user answered
    for (std::size_t i = 0; i < findings.size(); ++i) {
      if (!findings[i].mend) continue;
      findings[i].mend();
      mended[i] = true;
    }
    if (!options.json) fmt::print("\n{} of {} mended\n", can, findings.size());
  } else if (can > 0 && !options.json) {
    fmt::print("\nnothing was changed; `wflow doctor --yes {}` does it\n", campaign.string());
  }
  if (options.json) fmt::print("{}\n", json_of(findings, mended).dump(2));
  const bool all = std::all_of(mended.begin(), mended.end(), [](bool one) { return one; });
  return static_cast<int>(all ? ExitCode::ok : ExitCode::data);
}

}  // namespace wflow::cli
