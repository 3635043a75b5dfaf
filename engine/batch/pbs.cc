// SPDX-License-Identifier: Apache-2.0
// OpenPBS and PBS Professional. Not tried on a real one: tests use recorded answers and fake commands.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/batch/adapters.h"
#include "engine/batch/command.h"
#include "engine/batch/script.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

CommandCall pbs_call(std::vector<std::string> argv, const std::string& directory = {}) {
  return {"pbs", std::move(argv), directory, {}, {}};
}

std::string selection(const JobRequest& request) {
  // Without a number of processors PBS gives one; where nodes are shared out by cgroups, a worker would be
  // confined.
  std::string text =
      fmt::format("-l select={}:ncpus={}:mpiprocs=1", request.nodes, std::max(1, request.cores));
  if (!request.memory.empty()) text += ":mem=" + request.memory;
  if (request.gpus > 0) text += fmt::format(":ngpus={}", request.gpus);
  if (!request.constraint.empty()) text += ":" + request.constraint;
  return text;
}

Directives pbs_directives(const JobRequest& request) {
  Directives options("#PBS");
  options.add("-N ", request.token);
  options.add(selection(request));
  options.add(request.exclusive ? "-l place=scatter:excl" : "-l place=scatter");
  if (request.walltime_s > 0) options.add("-l walltime=" + clock_time(request.walltime_s));
  options.add("-A ", request.account);
  options.add("-q ", request.reservation.empty() ? request.partition : request.reservation);
  options.add("-l qos=", request.qos);
  options.add("-j oe");
  options.add("-o ", output_file(request));
  options.add("-r n");
  options.add(request.args);
  return options;
}

std::string pbs_word(const Json& job, const char* key) {
  const auto at = job.find(key);
  if (at == job.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  return at->is_number_integer() ? std::to_string(at->get<std::int64_t>()) : std::string();
}

// "Wed Apr 14 23:34:19 2021", local time.
std::optional<double> pbs_time_of(const std::string& text) {
  std::tm parts{};
  if (text.empty() || ::strptime(text.c_str(), "%a %b %d %H:%M:%S %Y", &parts) == nullptr)
    return std::nullopt;
  parts.tm_isdst = -1;
  return static_cast<double>(std::mktime(&parts));
}

// "26:03:10" -> seconds.
std::optional<double> duration_of(const std::string& text) {
  double seconds = 0;
  if (text.empty()) return std::nullopt;
  for (const std::string& part : text::split(text, ':')) {
    const auto number = text::to_real(part);
    if (!number) return std::nullopt;
    seconds = seconds * 60 + *number;
  }
  return seconds;
}

// "a/0*2+b/0*2" -> a, b.
std::vector<std::string> pbs_hosts_of(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& part : text::split(text, '+')) {
    const std::string name = part.substr(0, part.find('/'));
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// PBS' own reasons are below zero, signals above 256.
JobEnd end_of(int status, bool used_its_time) {
  constexpr int kKilledForMemory = -27, kKilledForVirtualMemory = -26, kKilledForWalltime = -29;
  constexpr int kSignals = 256;
  if (status == kKilledForWalltime) return JobEnd::walltime;
  if (status == kKilledForMemory || status == kKilledForVirtualMemory) return JobEnd::memory;
  if (status > kSignals) return used_its_time ? JobEnd::walltime : JobEnd::cancelled;
  return JobEnd::exit;
}

void pbs_set_end(JobStatus& job, const Json& from) {
  const auto status = text::to_integer(pbs_word(from, "Exit_status"));
  if (!status) return;  // F without a status: deleted before it ran, or not reported yet; see below
  if (*status == 0) {
    job.state = JobState::done;
    return;
  }
  const auto limit = duration_of(pbs_word(from.value("Resource_List", Json::object()), "walltime"));
  const auto used = duration_of(pbs_word(from.value("resources_used", Json::object()), "walltime"));
  job.state = JobState::failed;
  job.end = end_of(static_cast<int>(*status), limit && used && *used >= *limit);
}

JobStatus job_of(const std::string& id, const Json& from) {
  JobStatus job;
  job.id = id;
  job.token = pbs_word(from, "Job_Name");
  job.raw = pbs_word(from, "job_state");
  job.reason = pbs_word(from, "comment");
  job.nodes = pbs_hosts_of(pbs_word(from, "exec_host"));
  job.restarts = static_cast<int>(
      std::max<std::int64_t>(0, text::to_integer(pbs_word(from, "run_count")).value_or(1) - 1));
  job.starts_unix_s = pbs_time_of(pbs_word(from, "stime"));
  if (!job.starts_unix_s) job.starts_unix_s = pbs_time_of(pbs_word(from, "estimated_start_time"));
  const auto limit = duration_of(pbs_word(from.value("Resource_List", Json::object()), "walltime"));
  if (job.starts_unix_s && limit) job.ends_unix_s = *job.starts_unix_s + *limit;
  const char state = job.raw.empty() ? '?' : job.raw.front();
  if (state == 'Q' || state == 'W' || state == 'T' || state == 'M') job.state = JobState::queued;
  if (state == 'H') job.state = JobState::held;
  if (state == 'R' || state == 'B' || state == 'S' || state == 'U') job.state = JobState::running;
  if (state == 'E') job.state = JobState::ending;
  if (state == 'F' || state == 'X') pbs_set_end(job, from);
  if (job.state == JobState::queued && mentions_any(job.reason, {"can never run", "Can Never Run"})) {
    job.never_clears = job.reason + ": no node has what the allocation asks for, or a limit forbids it";
  }
  return job;
}

// Variables of users may hold characters that older versions write unescaped.
std::string without_variables(const std::string& json) {
  std::string result;
  bool inside = false;
  for (const std::string& line : text::split(json, '\n')) {
    if (line.find("\"Variable_List\"") != std::string::npos && line.find('{') != std::string::npos)
      inside = true;
    if (!inside) result += line + "\n";
    if (inside && text::trim(line).starts_with('}')) inside = false;
  }
  return result;
}

class Pbs : public BatchSystem {
 public:
  std::string_view name() const override { return "pbs"; }

  std::string script(const JobRequest& request) const override {
    return script_head("PBS", pbs_directives(request)) +
           self_calling_body(request, "pbsdsh" + launch_arguments(request) + " -- \"$@\"");
  }

  Submission submit(const JobRequest& request) override {
    write_script(request, script(request));
    const CommandAnswer answer = call(pbs_call({"qsub", script_file(request)}, request.directory));
    if (!answer.ok()) {
      return refused(answer,
                     {"would exceed", "exceeds queue", "Maximum number of jobs", "cannot connect to server",
                      "timed out", "Connection refused", "too many", "Server shutting down",
                      "Resource temporarily unavailable", "Premature end of message"});
    }
    const auto lines = lines_of(answer.out);
    if (lines.empty()) return {{}, Submission::Refusal::wait, "qsub gave no job id"};
    return {std::string(lines.back()), Submission::Refusal::none, {}};
  }

  // qstat -f takes no user: the ids come first, all of them then go into one call.
  JobList query(const std::string& prefix) override {
    const std::string user = user_name();
    CommandAnswer ids = call(pbs_call({"qselect", "-x", "-u", user}));
    if (!ids.ok() && ids.started && !ids.timed_out)
      ids = call(pbs_call({"qselect", "-u", user}));  // keeps no history
    if (!ids.ok()) return {false, ids.problem(), {}};
    std::vector<std::string> argv = {"qstat", "-x", "-f", "-F", "json"};
    for (const std::string_view id : lines_of(ids.out)) argv.emplace_back(id);
    if (argv.size() == 5) return {true, {}, {}};
    const CommandAnswer answer = call(pbs_call(std::move(argv)));
    // One id of many that has gone makes a code other than 0: what was answered counts.
    constexpr int kUnknownJob = 153, kFinishedJob = 35;
    const bool partly = answer.started && !answer.timed_out && !answer.out.empty() &&
                        (answer.status == kUnknownJob || answer.status == kFinishedJob);
    if (!answer.ok() && !partly) return {false, answer.problem(), {}};
    return parse_pbs_jobs(answer.out, prefix);
  }

  std::optional<std::string> cancel(const std::vector<std::string>& ids) override {
    if (ids.empty()) return std::nullopt;
    std::vector<std::string> argv = {"qdel"};
    argv.insert(argv.end(), ids.begin(), ids.end());
    const CommandAnswer answer = call(pbs_call(std::move(argv)));
    if (answer.ok() || mentions_any(answer.err, {"Unknown Job Id", "has finished"})) return std::nullopt;
    return answer.problem();
  }

  std::vector<std::string> launcher(int nodes, int procs) const override {
    return {"mpiexec", "-n", std::to_string(procs), "-ppn",
            std::to_string((procs + nodes - 1) / std::max(1, nodes))};
  }

  std::optional<double> ends_unix_s() override {
    const char* id = std::getenv("PBS_JOBID");
    if (id == nullptr) return std::nullopt;
    const CommandAnswer answer = call(pbs_call({"qstat", "-f", "-F", "json", id}));
    const JobList list = parse_pbs_jobs(answer.out, "");
    return answer.ok() && !list.jobs.empty() ? list.jobs.front().ends_unix_s : std::nullopt;
  }

  std::optional<std::string> check() override { return check_answer("pbs", call(pbs_call({"qstat", "-B"}))); }
};

}  // namespace

std::unique_ptr<BatchSystem> make_pbs() {
  return std::make_unique<Pbs>();
}

JobList parse_pbs_jobs(const std::string& json, const std::string& prefix) {
  Json document = Json::parse(json, nullptr, false);
  if (document.is_discarded()) document = Json::parse(without_variables(json), nullptr, false);
  if (!document.is_object()) return {false, "qstat: the answer does not read: " + one_line(json), {}};
  JobList list{true, {}, {}};
  const Json none = Json::object();
  const auto jobs = document.find("Jobs");
  for (const auto& [id, from] : (jobs == document.end() ? none : *jobs).items()) {
    if (from.is_object() && pbs_word(from, "Job_Name").starts_with(prefix))
      list.jobs.push_back(job_of(id, from));
  }
  return list;
}

}  // namespace wflow::engine::batch
