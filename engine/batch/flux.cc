// SPDX-License-Identifier: Apache-2.0
// Flux 0.48 and later. Not tried on a real one: tests use recorded answers and a fake command.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "engine/batch/adapters.h"
#include "engine/batch/command.h"
#include "engine/batch/script.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

CommandCall flux_call(std::vector<std::string> argv, const std::string& directory = {}) {
  argv.insert(argv.begin(), "flux");
  return {"flux", std::move(argv), directory, {}, {}};
}

// --requires has one expression: the user's, and not on these nodes.
std::string requirement(const JobRequest& request) {
  std::string text = request.constraint;
  if (request.exclude.empty()) return text;
  if (!text.empty()) text = "(" + text + ") ";
  return text + "-host:" + text::join(request.exclude, ",");
}

Directives flux_directives(const JobRequest& request) {
  Directives options("#FLUX:");
  options.add("--job-name=", name_with_token(request));
  options.add(fmt::format("--nodes={}", request.nodes));
  options.add(fmt::format("--nslots={}", request.nodes));
  if (request.exclusive) options.add("--exclusive");
  if (!request.exclusive) options.add(fmt::format("--cores-per-slot={}", std::max(1, request.cores)));
  if (request.gpus > 0) options.add(fmt::format("--gpus-per-slot={}", request.gpus));
  if (request.walltime_s > 0) options.add(fmt::format("--time-limit={}m", minutes(request.walltime_s)));
  options.add("--bank=", request.account);
  options.add("--queue=", request.partition);
  options.add("--setattr=system.qos=", request.qos);
  const std::string requires_ = requirement(request);
  if (!requires_.empty()) options.add("--requires=" + text::shell_quote(requires_));
  options.add("--cwd=", request.directory);
  options.add("--output=", output_file(request));
  options.add("--setopt=exit-timeout=none");
  options.add(request.args);
  return options;
}

// Ids have a decimal form that all commands take, and a short one that begins with a letter outside ASCII.
std::string id_of(const Json& job) {
  const auto at = job.find("id");
  if (at == job.end()) return {};
  return at->is_number() ? std::to_string(at->get<std::uint64_t>()) : at->get<std::string>();
}

std::string flux_word(const Json& job, const char* key) {
  const auto at = job.find(key);
  return at != job.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::optional<double> number(const Json& job, const char* key) {
  const auto at = job.find(key);
  if (at == job.end() || !at->is_number() || at->get<double>() <= 0) return std::nullopt;
  return at->get<double>();
}

void flux_set_end(JobStatus& job, const Json& from) {
  const std::string result = flux_word(from, "result");
  const std::string exception =
      flux_word(from, "exception_type") + flux_word(from.value("exception", Json::object()), "type");
  job.raw = result;
  job.state = JobState::failed;
  if (result == "COMPLETED") {
    job.state = JobState::done;
  } else if (result == "TIMEOUT") {
    job.end = JobEnd::walltime;
  } else if (exception == "preempt") {
    job.end = JobEnd::preempted;
  } else if (exception == "node-failure" || exception == "lost-shell") {
    job.end = JobEnd::node;
  } else if (result == "CANCELED") {
    job.end = JobEnd::cancelled;
  } else if (result == "FAILED") {
    job.end = JobEnd::exit;
  } else {
    job.state = JobState::unknown;  // its end is not known yet
  }
}

JobStatus job_of(const Json& from) {
  JobStatus job;
  job.id = id_of(from);
  job.token = token_in(flux_word(from, "name"));
  job.raw = flux_word(from, "state");
  job.reason = flux_word(from, "annotations_sched_reason_pending") + flux_word(from, "exception_note") +
               flux_word(from.value("exception", Json::object()), "note");
  job.nodes = expand_host_list(flux_word(from, "nodelist"));
  job.starts_unix_s = number(from, "t_run");
  job.ends_unix_s = number(from, "expiration");
  if (const auto ended = number(from, "t_cleanup")) job.ends_unix_s = ended;
  if (job.raw == "DEPEND" || job.raw == "PRIORITY" || job.raw == "SCHED") job.state = JobState::queued;
  if (job.raw == "PRIORITY" && from.value("urgency", 16) == 0) job.state = JobState::held;
  if (job.raw == "RUN") job.state = JobState::running;
  if (job.raw == "CLEANUP") job.state = JobState::ending;
  if (job.raw == "INACTIVE") flux_set_end(job, from);
  return job;
}

class Flux : public BatchSystem {
 public:
  std::string_view name() const override { return "flux"; }

  // `flux exec` starts a worker beside each broker, and takes no resources: they are left to the tasks' `flux
  // run`.
  std::string script(const JobRequest& request) const override {
    return script_head("Flux", flux_directives(request)) + script_setup(request) +
           launch_line(request, "flux exec --noinput --rank=all");
  }

  Submission submit(const JobRequest& request) override {
    write_script(request, script(request));
    const CommandAnswer answer = call(flux_call({"batch", script_file(request)}, request.directory));
    if (!answer.ok()) {
      return refused(answer,
                     {"max_active_jobs", "max-active-jobs", "max_running", "Resource temporarily unavailable",
                      "timed out", "Connection", "submission is disabled", "Host is down"});
    }
    const auto lines = lines_of(answer.out);
    if (lines.empty()) return {{}, Submission::Refusal::wait, "flux batch gave no job id"};
    const CommandAnswer decimal = call(flux_call({"job", "id", "--to=dec", std::string(lines.back())}));
    const auto converted = lines_of(decimal.out);
    const bool known = decimal.ok() && !converted.empty();
    return {std::string(known ? converted.front() : lines.back()), Submission::Refusal::none, {}};
  }

  JobList query(const std::string& prefix) override {
    const CommandAnswer answer = call(flux_call({"jobs", "-a", "--count=0", "--json"}));
    if (!answer.ok()) return {false, answer.problem(), {}};
    return parse_flux_jobs(answer.out, prefix);
  }

  std::optional<std::string> cancel(const std::vector<std::string>& ids) override {
    std::optional<std::string> problem;
    for (const std::string& id : ids) {  // one by one: an ended job would make it skip the rest
      const CommandAnswer answer = call(flux_call({"cancel", id}));
      if (!answer.ok() && !mentions_any(answer.err, {"inactive", "unknown job", "unknown id", "No such"}))
        problem = answer.problem();
    }
    return problem;
  }

  std::vector<std::string> launcher(int nodes, int procs) const override {
    return {"flux", "run", fmt::format("--nodes={}", nodes), fmt::format("--ntasks={}", procs)};
  }

  std::optional<double> ends_unix_s() override {
    if (std::getenv("FLUX_URI") == nullptr) return std::nullopt;
    const CommandAnswer answer = call(flux_call({"job", "timeleft"}));
    const auto lines = lines_of(answer.out);
    const auto left = answer.ok() && !lines.empty() ? text::to_real(lines.front()) : std::nullopt;
    if (!left || *left > 1e9) return std::nullopt;  // no limit
    return unix_now_s() + *left;
  }

  std::optional<std::string> check() override {
    return check_answer("flux", call(flux_call({"getattr", "size"})));
  }
};

}  // namespace

std::unique_ptr<BatchSystem> make_flux() {
  return std::make_unique<Flux>();
}

// {"jobs": [{...}]}, or the job's own object if there is only one.
JobList parse_flux_jobs(const std::string& json, const std::string& prefix) {
  const Json document = Json::parse(json, nullptr, false);
  if (!document.is_object()) return {false, "flux jobs: the answer does not read: " + one_line(json), {}};
  JobList list{true, {}, {}};
  const auto at = document.find("jobs");
  const Json jobs = at != document.end() ? *at : Json::array({document});
  for (const Json& from : jobs) {
    if (!from.is_object() || !flux_word(from, "name").starts_with(prefix)) continue;
    list.jobs.push_back(job_of(from));
  }
  return list;
}

}  // namespace wflow::engine::batch
