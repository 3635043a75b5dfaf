// SPDX-License-Identifier: Apache-2.0
// IBM Spectrum LSF 10.1. Not tried on a real one: tests use recorded answers and fake commands.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

const SchedulerTable kLsf = {
    .name = "lsf",
    .title = "LSF",
    .mark = "#BSUB",
    .directives = R"(
        -J {name}
        -R "select[{hosts}]"
        {?jsrun}-nnodes {nodes}
        -n {slots}
        -R "span[ptile={ptile}]"
        {?slots}{?exclusive}-x
        {?slots}-R "rusage[mem={memory}]"
        {?slots}-gpu "num={gpus}"
        -W {minutes}
        -P {account}
        -q {partition}
        -sla {qos}
        -U {reservation}
        -cwd {directory}
        -o {output}
        -rn
        {args})",
    .submit = {"bsub"},
    .cancel = {"bkill"},
    .check = {"lsid"},
    .script_on_stdin = true,
    .passes = {"Pending job threshold reached", "User's job limit", "batch daemon", "not responding",
               "timed out", "LSF is down", "try again", "Too many", "Communication time out",
               "Job not accepted: limit"},
    .gone = {"already finished", "No matching job", "not found"},
    // UNKWN and ZOMBI are no end.
    .states = {{JobState::queued, JobEnd::none, {"PEND", "WAIT", "PROV"}},
               {JobState::held, JobEnd::none, {"PSUSP"}},
               {JobState::running, JobEnd::none, {"RUN", "USUSP", "SSUSP"}},
               {JobState::done, JobEnd::none, {"DONE"}},
               {JobState::failed, JobEnd::exit, {"EXIT"}}},
    .ends = {{JobEnd::walltime, {"TERM_RUNLIMIT", "TERM_DEADLINE", "TERM_CPULIMIT", "run time limit"}},
             {JobEnd::memory, {"TERM_MEMLIMIT", "TERM_SWAP"}},
             {JobEnd::preempted, {"TERM_PREEMPT"}},
             {JobEnd::cancelled, {"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"}},
             {JobEnd::node, {"TERM_ZOMBIE", "TERM_LSF_HOST", "host unavailable", "exec host"}}},
    .never = {{{"never be satisfied", "Job's requirements for resource reservation not satisfied: never",
                "invalid or never satisfied"},
               "a dependency or a resource that will never be there (args, constraint)"}},
};

// Machines with jsrun count nodes; others count slots, and one a node of a whole node is as much.
bool has_jsrun() {
  return find_program("jsrun").has_value();
}

std::string host_selection(const JobRequest& request) {
  std::string text = request.constraint;
  for (const std::string& host : request.exclude)
    text += (text.empty() ? "" : " && ") + ("hname!='" + host + "'");
  return text;
}

JobStatus job_of(const Json& from, double now_unix_s) {
  JobStatus job;
  job.id = json_word(from, "JOBID");
  job.token = token_in(json_word(from, "JOB_NAME"));
  job.raw = json_word(from, "STAT");
  job.reason = job.raw == "EXIT" ? json_word(from, "EXIT_REASON") : json_word(from, "PEND_REASON");
  job.nodes = hosts_in(json_word(from, "EXEC_HOST"), ':');
  const std::string left = json_word(from, "TIME_LEFT");  // "1:59 L": hours and minutes
  if (const auto minutes = duration_of(left.substr(0, left.find(' '))))
    job.ends_unix_s = now_unix_s + *minutes * 60;
  set_state(job, kLsf);
  if (job.state == JobState::failed) job.end = end_of(kLsf, job.reason, job.end);
  if (job.state == JobState::queued) job.never_clears = why_never(kLsf, job.reason);
  return job;
}

class Lsf : public Adapter {
 public:
  explicit Lsf(LsfLauncher launcher) : Adapter(kLsf), launcher_(launcher) {}

  JobList query(const std::string& prefix) override {
    const CommandAnswer answer = ask(
        {"bjobs", "-a", "-json", "-J"},
        {prefix + "*", "-o", "jobid job_name stat exit_code exit_reason pend_reason exec_host time_left"});
    if (!answer.started || answer.timed_out) return {false, answer.problem(), {}};
    // Its exit code is meaningless (sites set it): an answer is JSON, or the sentence that there is no such
    // job.
    if (answer.out.find('{') != std::string::npos) return parse_lsf_jobs(answer.out, prefix, unix_now_s());
    if (mentions_any(answer.err + answer.out, {"is not found", "No job found", "No matching job"}))
      return {true, {}, {}};
    return {false, answer.problem(), {}};
  }

  std::optional<double> ends_unix_s() override {
    const char* id = std::getenv("LSB_JOBID");
    if (id == nullptr) return std::nullopt;
    const CommandAnswer answer = ask({"bjobs", "-json", "-o", "jobid job_name stat time_left", id});
    const JobList list = parse_lsf_jobs(answer.out, "", unix_now_s());
    return list.jobs.empty() ? std::nullopt : list.jobs.front().ends_unix_s;
  }

 private:
  Values values(const JobRequest& request) const override {
    const bool jsrun = has_jsrun();
    const int slots = request.exclusive ? 1 : std::max(1, request.cores);
    return {{"hosts", host_selection(request)},
            {"jsrun", jsrun ? "1" : ""},
            {"slots", jsrun ? "" : std::to_string(request.nodes * slots)},
            {"ptile", jsrun ? "" : std::to_string(slots)}};
  }

  std::string body(const JobRequest& request) const override {
    if (launcher_ == LsfLauncher::srun) {
      return script_setup(request) +
             launch_line(request, fmt::format("srun --nodes={0} --ntasks={0} --wait=0 --kill-on-bad-exit=0 "
                                              "--cpu-bind=none --mpi=none",
                                              request.nodes));
    }
    if (has_jsrun()) {
      return script_setup(request) +
             launch_line(request,
                         fmt::format("jsrun --nrs {} --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS "
                                     "--gpu_per_rs ALL_GPUS --bind none --exit_on_error 0",
                                     request.nodes));
    }
    return self_calling_body(request, "blaunch" + launch_arguments(request) +
                                          " -z \"$(sort -u \"$LSB_DJOB_HOSTFILE\" | tr '\\n' ' ')\" \"$@\"");
  }

  // "Job <123> is submitted to queue <q>.", behind whatever the site prints.
  std::optional<std::string> id_in(const std::string& out) const override {
    const std::size_t at = out.rfind("Job <");
    const std::size_t end = at == std::string::npos ? at : out.find('>', at);
    return end == std::string::npos ? std::nullopt : std::optional(out.substr(at + 5, end - at - 5));
  }

  LsfLauncher launcher_;
};

}  // namespace

std::unique_ptr<BatchSystem> make_lsf(LsfLauncher launcher) {
  return std::make_unique<Lsf>(launcher);
}

JobList parse_lsf_jobs(const std::string& json, const std::string& prefix, double now_unix_s) {
  const std::size_t begin = std::min(json.find('{'), json.size());  // sites print before it
  const Json document = Json::parse(json.substr(begin), nullptr, false);
  if (!document.is_object() || !document.contains("RECORDS"))
    return {false, "bjobs: the answer does not read: " + one_line(json), {}};
  JobList list{true, {}, {}};
  for (const Json& from : document["RECORDS"]) {  // a job that it does not know has ERROR there
    if (from.is_object() && !from.contains("ERROR") && json_word(from, "JOB_NAME").starts_with(prefix))
      list.jobs.push_back(job_of(from, now_unix_s));
  }
  return list;
}

}  // namespace wflow::engine::batch
