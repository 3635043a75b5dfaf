// SPDX-License-Identifier: Apache-2.0
// Flux 0.48 and later. Not tried on a real one: tests use recorded answers and a fake command.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

namespace {

using Json = nlohmann::json;

const SchedulerTable kFlux = {
    .name = "flux",
    .title = "Flux",
    .mark = "#FLUX:",
    .directives = R"(
        --job-name={name}
        --nodes={nodes}
        --nslots={nodes}
        {?exclusive}--exclusive
        {?shared}--cores-per-slot={cores}
        --gpus-per-slot={gpus}
        --time-limit={minutes}m
        --bank={account}
        --queue={partition}
        --setattr=system.qos={qos}
        --requires={requirement}
        --cwd={directory}
        --output={output}
        --setopt=exit-timeout=none
        {args})",
    .submit = {"flux", "batch"},
    .cancel = {"flux", "cancel"},
    .check = {"flux", "getattr", "size"},
    .passes = {"max_active_jobs", "max-active-jobs", "max_running", "Resource temporarily unavailable",
               "timed out", "Connection", "submission is disabled", "Host is down"},
    .gone = {"inactive", "unknown job", "unknown id", "No such"},
    .states = {{JobState::queued, JobEnd::none, {"DEPEND", "PRIORITY", "SCHED"}},
               {JobState::running, JobEnd::none, {"RUN"}},
               {JobState::ending, JobEnd::none, {"CLEANUP"}},
               {JobState::done, JobEnd::none, {"COMPLETED"}},
               {JobState::failed, JobEnd::walltime, {"TIMEOUT"}},
               {JobState::failed, JobEnd::cancelled, {"CANCELED"}},
               {JobState::failed, JobEnd::exit, {"FAILED"}}},
    // Types of exceptions.
    .ends = {{JobEnd::preempted, {"preempt"}}, {JobEnd::node, {"node-failure", "lost-shell"}}},
};

// --requires has one expression: the user's, and not on these nodes.
std::string requirement(const JobRequest& request) {
  std::string text = request.constraint;
  if (request.exclude.empty()) return text;
  if (!text.empty()) text = "(" + text + ") ";
  return text + "-host:" + text::join(request.exclude, ",");
}

std::optional<double> number(const Json& job, const char* key) {
  const auto at = job.find(key);
  if (at == job.end() || !at->is_number() || at->get<double>() <= 0) return std::nullopt;
  return at->get<double>();
}

JobStatus job_of(const Json& from) {
  const Json exception = from.value("exception", Json::object());
  JobStatus job;
  job.id = json_word(from, "id");  // the decimal form, which all commands take
  job.token = token_in(json_word(from, "name"));
  job.raw = json_word(from, "state");
  const bool ended = job.raw == "INACTIVE";
  if (ended) job.raw = json_word(from, "result");
  job.reason = json_word(from, "annotations_sched_reason_pending") + json_word(from, "exception_note") +
               json_word(exception, "note");
  job.nodes = expand_host_list(json_word(from, "nodelist"));
  job.starts_unix_s = number(from, "t_run");
  job.ends_unix_s = number(from, "expiration");
  if (const auto cleanup = number(from, "t_cleanup")) job.ends_unix_s = cleanup;
  set_state(job, kFlux);
  if (job.raw == "PRIORITY" && from.value("urgency", 16) == 0) job.state = JobState::held;
  if (!ended || job.state == JobState::done || job.end == JobEnd::walltime) return job;
  job.end = end_of(kFlux, json_word(from, "exception_type") + json_word(exception, "type"), job.end);
  if (job.end != JobEnd::none) job.state = JobState::failed;
  return job;
}

class Flux : public Adapter {
 public:
  Flux() : Adapter(kFlux) {}

  JobList query(const std::string& prefix) override {
    const CommandAnswer answer = ask({"flux", "jobs", "-a", "--count=0", "--json"});
    if (!answer.ok()) return {false, answer.problem(), {}};
    return parse_flux_jobs(answer.out, prefix);
  }

  std::optional<std::string> cancel(const std::vector<std::string>& ids) override {
    std::optional<std::string> problem;
    for (const std::string& id : ids) {  // one by one: an ended job would make it skip the rest
      if (auto one = Adapter::cancel({id})) problem = std::move(one);
    }
    return problem;
  }

  std::optional<double> ends_unix_s() override {
    if (std::getenv("FLUX_URI") == nullptr) return std::nullopt;
    const CommandAnswer answer = ask({"flux", "job", "timeleft"});
    const auto lines = lines_of(answer.out);
    const auto left = answer.ok() && !lines.empty() ? text::to_real(lines.front()) : std::nullopt;
    if (!left || *left > 1e9) return std::nullopt;  // no limit
    return unix_now_s() + *left;
  }

 private:
  Values values(const JobRequest& request) const override {
    const std::string words = requirement(request);
    return {{"requirement", words.empty() ? "" : text::shell_quote(words)}};
  }

  // `flux exec` starts a worker beside each broker, and takes no resources: they are left to the tasks' `flux
  // run`.
  std::string body(const JobRequest& request) const override {
    return script_setup(request) + launch_line(request, "flux exec --noinput --rank=all");
  }

  // An id has a decimal form beside the short one of the answer, which begins with a letter outside ASCII.
  std::optional<std::string> id_in(const std::string& out) const override {
    const auto id = Adapter::id_in(out);
    if (!id) return id;
    const CommandAnswer decimal = ask({"flux", "job", "id", "--to=dec"}, {*id});
    const auto lines = lines_of(decimal.out);
    if (!decimal.ok() || lines.empty()) return id;
    return std::string(lines.front());
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
    if (!from.is_object() || !json_word(from, "name").starts_with(prefix)) continue;
    list.jobs.push_back(job_of(from));
  }
  return list;
}

}  // namespace wflow::engine::batch
