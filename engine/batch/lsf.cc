// SPDX-License-Identifier: Apache-2.0
// IBM Spectrum LSF 10.1. Not tried on a real one: tests use recorded answers and fake commands.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"
#include "engine/batch/command.h"
#include "engine/batch/script.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

CommandCall lsf_call(std::vector<std::string> argv) {
  return {"lsf", std::move(argv), {}, {}, {}};
}

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

void add_nodes(Directives& options, const JobRequest& request) {
  const std::string select = host_selection(request);
  if (!select.empty()) options.add("-R \"select[" + select + "]\"");
  if (has_jsrun()) {
    options.add(fmt::format("-nnodes {}", request.nodes));
    return;
  }
  const int slots = request.exclusive ? 1 : std::max(1, request.cores);
  options.add(fmt::format("-n {}", request.nodes * slots));
  options.add(fmt::format("-R \"span[ptile={}]\"", slots));
  if (request.exclusive) options.add("-x");
  if (!request.memory.empty()) options.add("-R \"rusage[mem=" + request.memory + "]\"");
  if (request.gpus > 0) options.add(fmt::format("-gpu \"num={}\"", request.gpus));
}

Directives lsf_directives(const JobRequest& request) {
  Directives options("#BSUB");
  options.add("-J ", name_with_token(request));
  add_nodes(options, request);
  if (request.walltime_s > 0) options.add(fmt::format("-W {}", minutes(request.walltime_s)));
  options.add("-P ", request.account);
  options.add("-q ", request.partition);
  options.add("-sla ", request.qos);
  options.add("-U ", request.reservation);
  options.add("-cwd ", request.directory);
  options.add("-o ", output_file(request));
  options.add("-rn");
  options.add(request.args);
  return options;
}

std::string lsf_word(const Json& job, const char* key) {
  const auto at = job.find(key);
  if (at == job.end() || !at->is_string()) return {};
  const std::string text = at->get<std::string>();
  return text == "-" ? "" : text;
}

// "n01:n02*4" -> n01, n02: a host may stand with the number of its slots before or behind it.
std::vector<std::string> lsf_hosts_of(const std::string& text) {
  std::vector<std::string> names;
  for (const std::string& part : text::split(text, ':')) {
    for (const std::string& name : text::split(part, '*')) {
      if (name.empty() || text::to_integer(name) ||
          std::find(names.begin(), names.end(), name) != names.end())
        continue;
      names.push_back(name);
    }
  }
  return names;
}

// "1:59 L": hours and minutes.
std::optional<double> left_of(const std::string& text) {
  const std::vector<std::string> parts = text::split(text.substr(0, text.find(' ')), ':');
  if (parts.size() != 2) return std::nullopt;
  const auto hours = text::to_integer(parts[0]);
  const auto rest = text::to_integer(parts[1]);
  if (!hours || !rest) return std::nullopt;
  return static_cast<double>(*hours * 3600 + *rest * 60);
}

JobEnd end_of(const std::string& reason) {
  if (mentions_any(reason, {"TERM_RUNLIMIT", "TERM_DEADLINE", "TERM_CPULIMIT", "run time limit"}))
    return JobEnd::walltime;
  if (mentions_any(reason, {"TERM_MEMLIMIT", "TERM_SWAP"})) return JobEnd::memory;
  if (mentions_any(reason, {"TERM_PREEMPT"})) return JobEnd::preempted;
  if (mentions_any(reason, {"TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"}))
    return JobEnd::cancelled;
  if (mentions_any(reason, {"TERM_ZOMBIE", "TERM_LSF_HOST", "host unavailable", "exec host"}))
    return JobEnd::node;
  return JobEnd::exit;
}

JobStatus job_of(const Json& from, double now_unix_s) {
  JobStatus job;
  job.id = lsf_word(from, "JOBID");
  job.token = token_in(lsf_word(from, "JOB_NAME"));
  job.raw = lsf_word(from, "STAT");
  job.reason = job.raw == "EXIT" ? lsf_word(from, "EXIT_REASON") : lsf_word(from, "PEND_REASON");
  job.nodes = lsf_hosts_of(lsf_word(from, "EXEC_HOST"));
  if (const auto left = left_of(lsf_word(from, "TIME_LEFT"))) job.ends_unix_s = now_unix_s + *left;
  if (job.raw == "PEND" || job.raw == "WAIT" || job.raw == "PROV") job.state = JobState::queued;
  if (job.raw == "PSUSP") job.state = JobState::held;
  if (job.raw == "RUN" || job.raw == "USUSP" || job.raw == "SSUSP") job.state = JobState::running;
  if (job.raw == "DONE") job.state = JobState::done;
  if (job.raw == "EXIT") {
    job.state = JobState::failed;
    job.end = end_of(job.reason);
  }
  if (job.state == JobState::queued &&
      mentions_any(job.reason,
                   {"never be satisfied", "Job's requirements for resource reservation not satisfied: never",
                    "invalid or never satisfied"})) {
    job.never_clears =
        job.reason + ": a dependency or a resource that will never be there (args, constraint)";
  }
  return job;  // UNKWN, ZOMBI: no end
}

class Lsf : public BatchSystem {
 public:
  explicit Lsf(LsfLauncher launcher) : launcher_(launcher) {}

  std::string_view name() const override { return "lsf"; }

  std::string script(const JobRequest& request) const override {
    const std::string head = script_head("LSF", lsf_directives(request));
    if (launcher_ == LsfLauncher::srun) {
      return head + script_setup(request) +
             launch_line(request, fmt::format("srun --nodes={0} --ntasks={0} --wait=0 --kill-on-bad-exit=0 "
                                              "--cpu-bind=none --mpi=none",
                                              request.nodes));
    }
    if (has_jsrun()) {
      return head + script_setup(request) +
             launch_line(request,
                         fmt::format("jsrun --nrs {} --rs_per_host 1 --tasks_per_rs 1 --cpu_per_rs ALL_CPUS "
                                     "--gpu_per_rs ALL_GPUS --bind none --exit_on_error 0",
                                     request.nodes));
    }
    return head +
           self_calling_body(request, "blaunch" + launch_arguments(request) +
                                          " -z \"$(sort -u \"$LSB_DJOB_HOSTFILE\" | tr '\\n' ' ')\" \"$@\"");
  }

  Submission submit(const JobRequest& request) override {
    write_script(request, script(request));
    CommandCall command{"lsf", {"bsub"}, request.directory, script_file(request), {}};
    const CommandAnswer answer = call(command);
    if (!answer.ok()) {
      return refused(answer, {"Pending job threshold reached", "User's job limit", "batch daemon",
                              "not responding", "timed out", "LSF is down", "try again", "Too many",
                              "Communication time out", "Job not accepted: limit"});
    }
    // "Job <123> is submitted to queue <q>.", behind whatever the site prints.
    const std::size_t at = answer.out.rfind("Job <");
    const std::size_t end = at == std::string::npos ? at : answer.out.find('>', at);
    if (end == std::string::npos)
      return {{}, Submission::Refusal::wait, "bsub gave no job id: " + one_line(answer.out)};
    return {answer.out.substr(at + 5, end - at - 5), Submission::Refusal::none, {}};
  }

  JobList query(const std::string& prefix) override {
    const std::vector<std::string> argv = {
        "bjobs",
        "-a",
        "-json",
        "-J",
        prefix + "*",
        "-o",
        "jobid job_name stat exit_code exit_reason pend_reason exec_host time_left"};
    const CommandAnswer answer = call(lsf_call(argv));
    if (!answer.started || answer.timed_out) return {false, answer.problem(), {}};
    // Its exit code is meaningless (sites set it): an answer is JSON, or the sentence that there is no such
    // job.
    if (answer.out.find('{') != std::string::npos) return parse_lsf_jobs(answer.out, prefix, unix_now_s());
    if (mentions_any(answer.err + answer.out, {"is not found", "No job found", "No matching job"}))
      return {true, {}, {}};
    return {false, answer.problem(), {}};
  }

  std::optional<std::string> cancel(const std::vector<std::string>& ids) override {
    if (ids.empty()) return std::nullopt;
    std::vector<std::string> argv = {"bkill"};
    argv.insert(argv.end(), ids.begin(), ids.end());
    const CommandAnswer answer = call(lsf_call(std::move(argv)));
    if (answer.ok() ||
        mentions_any(answer.err + answer.out, {"already finished", "No matching job", "not found"}))
      return std::nullopt;
    return answer.problem();
  }

  std::vector<std::string> launcher(int nodes, int procs) const override {
    const int on_each = (procs + nodes - 1) / std::max(1, nodes);
    if (launcher_ == LsfLauncher::srun)
      return {"srun", fmt::format("-N{}", nodes), fmt::format("-n{}", procs), "-K1"};
    if (has_jsrun()) {
      return {"jsrun",
              "--np",
              std::to_string(procs),
              "--nrs",
              std::to_string(nodes),
              "--rs_per_host",
              "1",
              "--tasks_per_rs",
              std::to_string(on_each),
              "--exit_on_error",
              "1"};
    }
    return {"mpirun", "-n", std::to_string(procs)};
  }

  std::optional<double> ends_unix_s() override {
    const char* id = std::getenv("LSB_JOBID");
    if (id == nullptr) return std::nullopt;
    const CommandAnswer answer =
        call(lsf_call({"bjobs", "-json", "-o", "jobid job_name stat time_left", id}));
    const JobList list = parse_lsf_jobs(answer.out, "", unix_now_s());
    return list.jobs.empty() ? std::nullopt : list.jobs.front().ends_unix_s;
  }

  std::optional<std::string> check() override { return check_answer("lsf", call(lsf_call({"lsid"}))); }

 private:
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
    if (from.is_object() && !from.contains("ERROR") && lsf_word(from, "JOB_NAME").starts_with(prefix))
      list.jobs.push_back(job_of(from, now_unix_s));
  }
  return list;
}

}  // namespace wflow::engine::batch
