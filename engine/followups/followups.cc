// SPDX-License-Identifier: Apache-2.0
#include "engine/followups/followups.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/wire/keys.h"
#include "specs/plan/workspace.h"

namespace wflow::engine {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kEvent = "submit";

// A line for each request: equal ones are one request that was received twice.
std::string unique_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}-{}", host_name(), ::getpid(),
                     std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Its options, as begin() reads them.
std::string options_text(const specs::ReadOptions& options, const fs::path& copy) {
  Json json = specs::options_to_json(options);
  json["copy"] = copy.string();
  return json.dump();
}

// One table of legal moves: engine/wire/campaign_state.h.
void move(store::Followup& followup, FollowupState to) {
  WFLOW_CHECK(may_follow(followup.state, to));
  followup.state = to;
  followup.handed_to.clear();
}

fs::path lock_file(const fs::path& top) {
  return top / ".wflow" / "run.lock";
}

// A lock of the open file, not of the process: every process that opens the file sees it.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool has_database(const fs::path& campaign) {
  std::error_code ignored;
  return fs::exists(store::database_path(campaign), ignored);
}

// The time in the name of a campaign's directory.
std::string time_in(const fs::path& directory) {
  const std::string name = directory.filename().string();
  return name.size() > 15 ? name.substr(name.size() - 15) : name;
}

std::string time_text(std::time_t time) {
  return fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(time));
}

fs::path submission_file(const fs::path& campaign, const std::string& id, const char* suffix) {
  return campaign / ".wflow" / "submitted" / (id + suffix);
}

// The inputs from which a following study is read.
struct Asked {
  fs::path copy, spec;
  specs::ReadOptions options;

  Asked(const std::string& spec_file, const std::string& options_json, const fs::path& campaign)
      : spec(spec_file) {
    const Json json = Json::parse(options_json, nullptr, false);
    options =
        specs::options_from_json(json, fmt::format("the record of a campaign after {}", campaign.string()));
    copy = json.value("copy", "");
  }
  specs::Study read() const { return specs::read_study_copy(copy, spec, options).study; }
};

// Where a campaign goes, as `wflow run` would have it: OUTPUT_PATH/<name>_<time>.
fs::path free_directory(const specs::Study& study) {
  for (std::time_t now = std::time(nullptr);; ++now) {
    fs::path directory = specs::campaign_directory(study, time_text(now));
    std::error_code ignored;
    if (!fs::exists(directory, ignored)) return directory;
  }
}

// Chosen once for each submission, durably.
fs::path directory_of(const fs::path& campaign, const std::string& id, const Asked& asked) {
  if (const auto chosen = submitted_directory(campaign, id)) return *chosen;
  const fs::path directory = free_directory(asked.read());
  make_directories(submission_file(campaign, id, "").parent_path());
  write_file_durably(submission_file(campaign, id, ".directory"), directory.string() + "\n");
  return directory;
}

specs::Plan make_campaign(Asked asked, const fs::path& directory, const std::string& timestamp) {
  asked.options.campaign = directory;
  asked.options.timestamp = timestamp;
  make_directories(directory);
  std::error_code ignored;  // make a partial copy again
  fs::remove(directory / ".wflow" / "spec" / "options.json", ignored);
  specs::Plan plan = specs::create_campaign(specs::Plan(asked.read(), directory));
  wire::create_keys(directory);
  store::Store::create(directory, plan);
  return plan;
}

// "[<campaign>:]<array>/<element>/<attempt>/<id>", as submission.h and take_submitted() write it: whose
// submission it is, and its id.
std::pair<fs::path, std::string> submission_of(const store::Followup& followup, const fs::path& top) {
  const std::string& source = followup.source;
  const fs::path campaign = source.starts_with('/') ? fs::path(source.substr(0, source.rfind(':'))) : top;
  return {campaign, source.substr(source.rfind('/') + 1)};
}

}  // namespace

Json submit_study(const fs::path& campaign, const specs::Study& study) {
  const fs::path copy = campaign / ".wflow" / "submitted" / (hash_bytes(study.text) + ".yaml");
  make_directories(copy.parent_path());
  write_file_durably(copy, study.text);
  Json event = {{"type", kEvent},
                {"kind", kSubmitted},
                {"id", unique_id()},
                {"spec", study.file.string()},
                {"options", options_text(study.options, copy)}};
  const char* task = std::getenv("WFLOW_TASK");
  Json file = event;
  file["task"] = task == nullptr ? "" : task;
  write_file_durably(submission_file(campaign, event["id"], ".json"), file.dump() + "\n");
  return event;
}

std::vector<Submitted> submitted_studies(const fs::path& campaign) {
  std::vector<Submitted> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(campaign / ".wflow" / "submitted", none)) {
    if (entry.path().extension() != ".json") continue;
    const Json json = Json::parse(read_file(entry.path()), nullptr, false);
    if (json.is_object())
      found.push_back({entry.path().stem().string(), json.value("task", ""), json.value("spec", "")});
  }
  const auto time = [](const Submitted& one) { return one.id.substr(one.id.rfind('-') + 1); };
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return time(a) < time(b); });
  return found;
}

std::optional<fs::path> submitted_directory(const fs::path& campaign, const std::string& id) {
  const fs::path file = submission_file(campaign, id, ".directory");
  std::error_code none;
  if (!fs::exists(file, none)) return std::nullopt;
  return std::string(text::trim(read_file(file)));
}

specs::Plan begin_submitted(const fs::path& campaign, const std::string& id) {
  const fs::path file = submission_file(campaign, id, ".json");
  const Json json = Json::parse(read_file(file), nullptr, false);
  if (!json.is_object()) throw Error(ExitCode::data, fmt::format("{} does not read", file.string()));
  const Asked asked(json.value("spec", ""), json.value("options", ""), campaign);
  const fs::path directory = directory_of(campaign, id, asked);
  if (has_database(directory)) return {specs::read_campaign(directory), directory};
  return make_campaign(asked, directory, time_in(directory));
}

Json submit_restart(const fs::path& campaign) {
  return {{"type", kEvent}, {"kind", kRestarted}, {"id", unique_id()}, {"directory", campaign.string()}};
}

void write_merlin_shim(const fs::path& campaign) {
  const fs::path path = campaign / ".wflow" / "bin" / "merlin";
  const std::string text =
      fmt::format("#!/bin/sh\nexec {} merlin \"$@\"\n", text::shell_quote(sibling_program("wflow")));
  std::error_code ignored;
  if (fs::exists(path, ignored) && read_file(path) == text) return;
  make_directories(path.parent_path());
  write_file_durably(path, text, 0755);
}

FollowupQueue::FollowupQueue(fs::path top)
    : top_(std::move(top)), lock_(open_file(lock_file(top_), O_RDWR | O_CREAT)) {
  struct flock lock = whole_file();
  if (::fcntl(lock_.get(), F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
    const fs::path at = running_campaign(top_).value_or(top_);
    const std::string now = at == top_ ? "" : fmt::format("; it is at {}", at.string());
    throw Error(ExitCode::busy,
                fmt::format("{}: another coordinator runs this campaign{}", top_.string(), now));
  }
  // A file system without locks: the campaigns' databases are held exclusively all the same.
  announce(top_);
}

void FollowupQueue::announce(const fs::path& campaign) {
  // The first line counts: a reader sees the old one or the new one.
  const std::string line = campaign.string() + "\n";
  [[maybe_unused]] const ssize_t put = ::pwrite(lock_.get(), line.data(), line.size(), 0);
}

std::optional<fs::path> running_campaign(const fs::path& top) {
  std::error_code ignored;
  if (!fs::exists(lock_file(top), ignored)) return std::nullopt;
  const FileDescriptor file = open_file(lock_file(top), O_RDONLY);
  struct flock lock = whole_file();
  if (::fcntl(file.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  const std::string line = text::split(read_file(lock_file(top)), '\n').front();
  return line.empty() ? top : fs::path(line);
}

std::vector<store::Followup> FollowupQueue::all() {
  return store::Store(top_).followups();
}

std::optional<store::Followup> FollowupQueue::next() {
  for (store::Followup& followup : all()) {
    if (is_open(followup.state)) return std::move(followup);
  }
  return std::nullopt;
}

specs::Plan FollowupQueue::begin(store::Followup& followup) {
  move(followup, FollowupState::running);
  if (followup.started_s <= 0) followup.started_s = unix_now_s();
  std::optional<Asked> asked;
  if (followup.kind != kRestarted) asked.emplace(followup.spec, followup.options, top_);
  if (asked && followup.directory.empty()) {
    const auto& [campaign, id] = submission_of(followup, top_);
    followup.directory = directory_of(campaign, id, *asked).string();
  }
  store::Store(top_).update_followup(followup);
  const fs::path directory = followup.directory;
  announce(directory);
  if (!asked || has_database(directory)) return {specs::read_campaign(directory), directory};
  const bool iteration = followup.kind == kIteration;
  return make_campaign(*asked, directory, iteration ? time_text(std::time(nullptr)) : time_in(directory));
}

void FollowupQueue::end(store::Followup& followup, FollowupState state, ExitCode code) {
  move(followup, state);
  followup.exit_code = static_cast<int>(code);
  followup.ended_s = unix_now_s();
  store::Store(top_).update_followup(followup);
}

void FollowupQueue::reopen(store::Followup& followup) {
  move(followup, FollowupState::pending);
  followup.exit_code = 0;
  followup.ended_s = 0;
  store::Store(top_).update_followup(followup);
}

void FollowupQueue::take_from(const specs::Plan& campaign, const CampaignStatus& status, bool keep_going) {
  if (status.ended() < status.elements()) return;
  if (campaign.campaign() != top_) take_submitted(campaign.campaign());
  if (campaign.study().iterate) take_iteration(campaign, status, keep_going);
}

// First out of its own queue, then into this one: a kill in between loses nothing, because it is done again,
// and whoever resumes that campaign alone meanwhile does not run them too.
void FollowupQueue::take_submitted(const fs::path& campaign) {
  store::Batch batch;
  {
    store::Store from(campaign);
    for (store::Followup& followup : from.followups()) {
      store::Followup ours = followup;
      if (!followup.source.starts_with('/')) ours.source = campaign.string() + ":" + followup.source;
      if (is_open(followup.state)) {
        move(followup, FollowupState::handed_over);
        followup.handed_to = top_.string();
        from.update_followup(followup);
      } else if (followup.state == FollowupState::handed_over) {
        if (followup.handed_to != top_.string()) continue;  // another's
        move(ours, FollowupState::pending);
      }
      batch.followups.push_back(std::move(ours));
    }
  }
  store::Store(top_).commit(batch);
}

void FollowupQueue::take_iteration(const specs::Plan& campaign, const CampaignStatus& status,
                                   bool keep_going) {
  const specs::Study& study = campaign.study();
  const specs::Iteration& at = study.options.iteration;
  // If an iteration runs alone, only the run of the first iteration begins the next one.
  if (status.cancelled() > 0 || (campaign.campaign() == top_ && at.number > 1)) return;
  const fs::path first = at.number > 1 ? at.first : campaign.campaign();
  const int number = at.number + 1;
  const fs::path directory = first / specs::kIterationsDirectory / fmt::format("{:03}", number);
  const auto followups = all();
  if (std::any_of(followups.begin(), followups.end(), [&](const auto& f) { return f.source == directory; }))
    return;  // decided before
  std::string why;
  if (store::Store(campaign.campaign()).has_event(study.iterate->until)) {
    why = fmt::format("{} in iteration {}", study.iterate->until, at.number);
  } else if (status.failed() > 0 && !keep_going) {
    why = fmt::format("stopped, because tasks of iteration {} failed", at.number);
  } else if (at.number >= study.iterate->max) {
    why = fmt::format("ended with iteration {}, the last (max), and not {}", at.number, study.iterate->until);
  }
  store::Store(first).set_iterations(why);
  if (!why.empty()) return;
  specs::ReadOptions options = study.options;
  options.iteration = {number, campaign.campaign(), first};
  store::Followup next;
  next.kind = kIteration;
  next.iteration = number;
  next.spec = study.file.string();
  next.options = options_text(options, specs::study_copy(first));
  next.directory = directory.string();
  next.source = next.directory;
  next.created_s = unix_now_s();
  store::Batch batch;
  batch.followups.push_back(std::move(next));
  store::Store(top_).commit(batch);
}

}  // namespace wflow::engine
