// SPDX-License-Identifier: Apache-2.0
// OpenPBS and PBS Professional. Not tried on a real one: tests use recorded answers and fake commands.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

const SchedulerTable kPbs = {
    .name = "pbs",
    .title = "PBS",
    .mark = "#PBS",
    .directives = R"(
        -N {token}
        -l select={selection}
        {?exclusive}-l place=scatter:excl
        {?shared}-l place=scatter
        -l walltime={clock}
        -A {account}
        -q {queue}
        -l qos={qos}
        -j oe
        -o {output}
        -r n
        {args})",
    .submit = {"qsub"},
    .cancel = {"qdel"},
    .check = {"qstat", "-B"},
    .passes = {"would exceed", "exceeds queue", "Maximum number of jobs", "cannot connect to server",
               "timed out", "Connection refused", "too many", "Server shutting down",
               "Resource temporarily unavailable", "Premature end of message"},
    .gone = {"Unknown Job Id", "has finished"},
    .states = {{JobState::queued, JobEnd::none, {"Q", "W", "T", "M"}},
               {JobState::held, JobEnd::none, {"H"}},
               {JobState::running, JobEnd::none, {"R", "B", "S", "U"}},
               {JobState::ending, JobEnd::none, {"E"}}},
    .never = {{{"can never run"}, "no node has what the allocation asks for, or a limit forbids it"}},
};

std::string selection(const JobRequest& request) {
  // Without a number of processors PBS gives one; where nodes are shared out by cgroups, a worker would be
  // confined.
  std::string text = fmt::format("{}:ncpus={}:mpiprocs=1", request.nodes, std::max(1, request.cores));
  if (!request.memory.empty()) text += ":mem=" + request.memory;
  if (request.gpus > 0) text += fmt::format(":ngpus={}", request.gpus);
  if (!request.constraint.empty()) text += ":" + request.constraint;
  return text;
}

// "Wed Apr 14 23:34:19 2021", local time.
std::optional<double> pbs_time_of(const std::string& text) {
  std::tm parts{};
  if (text.empty() || ::strptime(text.c_str(), "%a %b %d %H:%M:%S %Y", &parts) == nullptr)
    return std::nullopt;
  parts.tm_isdst = -1;
  return static_cast<double>(std::mktime(&parts));
}

// PBS' own reasons are below zero, signals above 256.
JobEnd end_of_status(int status, bool used_its_time) {
  constexpr int kKilledForMemory = -27, kKilledForVirtualMemory = -26, kKilledForWalltime = -29;
  constexpr int kSignals = 256;
  if (status == kKilledForWalltime) return JobEnd::walltime;
  if (status == kKilledForMemory || status == kKilledForVirtualMemory) return JobEnd::memory;
  if (status > kSignals) return used_its_time ? JobEnd::walltime : JobEnd::cancelled;
  return JobEnd::exit;
}

void pbs_set_end(JobStatus& job, const Json& from) {
  const auto status = text::to_integer(json_word(from, "Exit_status"));
  if (!status) return;  // F without a status: deleted before it ran, or not reported yet; see below
  if (*status == 0) {
    job.state = JobState::done;
    return;
  }
  const auto limit = duration_of(json_word(from.value("Resource_List", Json::object()), "walltime"));
  const auto used = duration_of(json_word(from.value("resources_used", Json::object()), "walltime"));
  job.state = JobState::failed;
  job.end = end_of_status(static_cast<int>(*status), limit && used && *used >= *limit);
}

JobStatus job_of(const std::string& id, const Json& from) {
  JobStatus job;
  job.id = id;
  job.token = json_word(from, "Job_Name");
  job.raw = json_word(from, "job_state");
  job.reason = json_word(from, "comment");
  job.nodes = hosts_in(json_word(from, "exec_host"), '+');
  job.restarts = static_cast<int>(
      std::max<std::int64_t>(0, text::to_integer(json_word(from, "run_count")).value_or(1) - 1));
  job.starts_unix_s = pbs_time_of(json_word(from, "stime"));
  if (!job.starts_unix_s) job.starts_unix_s = pbs_time_of(json_word(from, "estimated_start_time"));
  const auto limit = duration_of(json_word(from.value("Resource_List", Json::object()), "walltime"));
  if (job.starts_unix_s && limit) job.ends_unix_s = *job.starts_unix_s + *limit;
  set_state(job, kPbs);
  if (job.raw == "F" || job.raw == "X") pbs_set_end(job, from);
  if (job.state == JobState::queued) job.never_clears = why_never(kPbs, job.reason);
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

class Pbs : public Adapter {
 public:
  Pbs() : Adapter(kPbs) {}

  // qstat -f takes no user: the ids come first, all of them then go into one call.
  JobList query(const std::string& prefix) override {
    const std::string user = user_name();
    CommandAnswer ids = ask({"qselect", "-x", "-u", user});
    if (!ids.ok() && ids.started && !ids.timed_out) ids = ask({"qselect", "-u", user});  // keeps no history
    if (!ids.ok()) return {false, ids.problem(), {}};
    const auto lines = lines_of(ids.out);
    if (lines.empty()) return {true, {}, {}};
    const CommandAnswer answer = ask({"qstat", "-x", "-f", "-F", "json"}, {lines.begin(), lines.end()});
    // One id of many that has gone makes a code other than 0: what was answered counts.
    constexpr int kUnknownJob = 153, kFinishedJob = 35;
    const bool partly = answer.started && !answer.timed_out && !answer.out.empty() &&
                        (answer.status == kUnknownJob || answer.status == kFinishedJob);
    if (!answer.ok() && !partly) return {false, answer.problem(), {}};
    return parse_pbs_jobs(answer.out, prefix);
  }

  std::optional<double> ends_unix_s() override {
    const char* id = std::getenv("PBS_JOBID");
    if (id == nullptr) return std::nullopt;
    const CommandAnswer answer = ask({"qstat", "-f", "-F", "json", id});
    const JobList list = parse_pbs_jobs(answer.out, "");
    return answer.ok() && !list.jobs.empty() ? list.jobs.front().ends_unix_s : std::nullopt;
  }

 private:
  Values values(const JobRequest& request) const override {
    return {{"selection", selection(request)},
            {"queue", request.reservation.empty() ? request.partition : request.reservation}};
  }

  std::string body(const JobRequest& request) const override {
    return self_calling_body(request, "pbsdsh" + launch_arguments(request) + " -- \"$@\"");
  }
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
    if (from.is_object() && json_word(from, "Job_Name").starts_with(prefix))
      list.jobs.push_back(job_of(id, from));
  }
  return list;
}

}  // namespace wflow::engine::batch
