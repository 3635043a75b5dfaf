// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/batch.h"

#include <algorithm>

#include "tests/simulation/coordinator.h"

namespace wflow::simulation {

namespace {

using engine::batch::JobEnd;
using engine::batch::JobState;

constexpr double kQueued_s = 4;                                // at most, before a job starts
constexpr double kAgain_s = 3;                                 // until it is looked for free hosts again
constexpr double kNoticeAtLeast_s = 0.3, kNoticeAtMost_s = 3;  // a node that has failed
constexpr double kKillWait_s = 4;                              // between the two signals of an end
constexpr double kLongQueued_s = 60;                           // at most, for a part of the jobs
constexpr double kUnreachable_s = 40;  // at most, that processes of a requeued job run on
// Probabilities of faults of a call, an answer and a job.
constexpr double kTimesOut = 0.1, kNotCancelled = 0.1, kHidden = 0.15;
constexpr double kWaitsLong = 0.2, kHasWalltime = 0.3, kIsPreempted = 0.3;

}  // namespace

std::vector<engine::batch::PoolSpec> Batch::pools() const {
  std::vector<engine::batch::PoolSpec> pools;
  for (const engine::LocalGroup& group : around_.study.groups) {
    engine::batch::PoolSpec pool;
    pool.name = group.name;
    pool.scheduler = "simulated";
    pool.slots = group.slots;
    pool.max = 2;
    pool.idle_timeout_s = 10;
    pool.job.nodes = 2;
    pool.job.cores = group.slots;
    pool.job.command = {group.name};
    pools.push_back(std::move(pool));
  }
  return pools;
}

engine::batch::PoolTiming Batch::timing() {
  engine::batch::PoolTiming timing;
  timing.query_s = 6;
  timing.quiet_query_s = 12;
  timing.silent_query_s = 2;
  timing.late_s = 20;
  timing.unmanned_s = 40;
  timing.drain_s = 6;
  timing.first_failure_s = 2;
  timing.first_refusal_s = 2;
  return timing;
}

engine::batch::Submission Batch::submit(const engine::batch::JobRequest& request) {
  const bool times_out = fails(kTimesOut);
  const engine::batch::Submission no_answer{"", engine::batch::Submission::Refusal::wait, "it timed out"};
  if (times_out) {
    around_.faults.count(Fault::submission_unanswered);
    if (draw_.chance(0.5)) return no_answer;
  }
  const std::string id = std::to_string(jobs_.size() + 1);
  Job& job = jobs_[id];
  job.status.id = id;
  job.status.token = request.token;
  job.status.state = JobState::queued;
  job.group = request.command.front();
  job.slots = request.cores;
  job.nodes = static_cast<std::size_t>(request.nodes);
  around_.trace.line("batch", "job {} ({}) of {} nodes is queued", id, request.token, request.nodes);
  queue(id);
  return times_out ? no_answer : engine::batch::Submission{id, engine::batch::Submission::Refusal::none, ""};
}

void Batch::queue(const std::string& id) {
  const bool waits_long = fails(kWaitsLong);
  if (waits_long) around_.faults.count(Fault::job_pending);
  const double wait_s =
      waits_long ? draw_.logarithmic(kQueued_s, kLongQueued_s) : draw_.logarithmic(0.05, kQueued_s);
  around_.timeline.after(wait_s, [this, id] { start(id); });
}

void Batch::start(const std::string& id) {
  Job& job = jobs_.at(id);
  if (closed_ || job.status.state != JobState::queued) return;
  std::vector<Host*> hosts;
  for (std::size_t i = 0; i < around_.hosts.size(); ++i) {
    Host& host = around_.hosts[i];
    if (host.up && !host.frozen) hosts.push_back(&host);
  }
  if (hosts.size() < job.nodes) {
    around_.timeline.after(kAgain_s, [this, id] { start(id); });
    return;
  }
  job.status.state = JobState::running;
  for (std::size_t i = 0; i < job.nodes; ++i) {
    const std::size_t at = draw_.below(hosts.size());
    job.status.nodes.push_back(hosts[at]->name);
    job.workers.push_back(&workers_.start(*hosts[at], job.group, job.slots, 0, linger_s_,
                                          {job.status.token, job.status.restarts}));
    hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(at));
    if (job.cancel_asked) around_.history.job_is_cancelled(job.workers.back()->number());
  }
  draw_end(id);
}

// A job may have a walltime, which its workers and the lists know, or be preempted.
void Batch::draw_end(const std::string& id) {
  Job& job = jobs_.at(id);
  const int restarts = job.status.restarts;
  job.status.ends_unix_s.reset();
  if (fails(kHasWalltime)) {
    const double in_s = draw_.logarithmic(5, 100);
    job.status.ends_unix_s = around_.timeline.now_s() + in_s;
    for (Worker* const worker : job.workers) worker->end_at(in_s);
    around_.timeline.after(in_s, [this, id, restarts] { reach_walltime(id, restarts); });
  } else if (fails(kIsPreempted)) {
    around_.timeline.after(draw_.logarithmic(1, 60), [this, id, restarts] { preempt(id, restarts); });
  }
}

void Batch::reach_walltime(const std::string& id, int restarts) {
  Job& job = jobs_.at(id);
  if (job.status.state != JobState::running || job.status.restarts != restarts) return;
  around_.faults.count(Fault::job_at_walltime);
  kill(job.workers);
  end(job, JobEnd::walltime);
}

// Its processes get SIGTERM, and SIGKILL later. Then it ends, or is queued again.
void Batch::preempt(const std::string& id, int restarts) {
  Job& job = jobs_.at(id);
  if (healed_ || job.status.state != JobState::running || job.status.restarts != restarts || job.cancelled)
    return;
  around_.faults.count(Fault::job_preempted);
  around_.trace.line("batch", "job {} is preempted", id);
  job.ending = true;
  for (Worker* const worker : job.workers) {
    around_.history.job_is_cancelled(worker->number());
    if (!worker->gone()) worker->guardian().terminate();
  }
  around_.timeline.after(kKillWait_s, [this, id, requeued = draw_.chance(0.5)] {
    Job& ended = jobs_.at(id);
    if (ended.status.state != JobState::running) return;
    kill(ended.workers);
    requeued ? requeue(id) : end(ended, JobEnd::preempted);
  });
}

// The same job starts again, elsewhere. Its node may be one that the scheduler does not reach, and on which
// processes run on.
void Batch::requeue(const std::string& id) {
  Job& job = jobs_.at(id);
  around_.faults.count(Fault::job_requeued);
  around_.trace.line("batch", "job {} is queued again", id);
  ++job.status.restarts;
  job.status.state = JobState::queued;
  job.status.nodes.clear();
  job.status.ends_unix_s.reset();
  job.ending = false;
  job.earlier.insert(job.earlier.end(), job.workers.begin(), job.workers.end());
  job.workers.clear();
  queue(id);
}

void Batch::kill(const std::vector<Worker*>& workers) {
  for (Worker* const worker : workers) {
    if (!worker->gone()) worker->kill();
  }
}

engine::batch::JobList Batch::list() {
  engine::batch::JobList list;
  list.answered = true;
  for (auto& [id, job] : jobs_) {
    job.is_hidden = !job.is_hidden && fails(kHidden);
    if (job.is_hidden) around_.faults.count(Fault::job_left_out);
    if (job.is_hidden && draw_.chance(0.5)) continue;
    list.jobs.push_back(job.status);
    engine::batch::JobStatus& status = list.jobs.back();
    if (job.is_hidden) status.state = JobState::unknown;
    if (status.state != JobState::running) continue;
    const bool ended = std::ranges::all_of(job.workers, [](const Worker* worker) { return worker->gone(); });
    if (ended) {
      status.state = JobState::failed;
      status.end = job.cancelled ? JobEnd::cancelled : JobEnd::exit;
    } else if (job.cancelled || job.ending) {
      status.state = JobState::ending;
    }
  }
  return list;
}

std::vector<std::string> Batch::gone() const {
  std::vector<std::string> gone;
  for (const auto& [id, job] : jobs_) {
    if (job.is_hidden) continue;
    const bool left = std::ranges::all_of(job.workers, [](const Worker* worker) { return worker->gone(); });
    const bool whole =
        job.status.state == JobState::failed || (left && job.status.state == JobState::running);
    for (const Worker* worker : job.workers) {
      const bool out = std::ranges::find(job.status.nodes, worker->host().name) == job.status.nodes.end();
      if (whole || out) gone.push_back(worker->id());
    }
  }
  return gone;
}

void Batch::asked_to_cancel(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const auto at = jobs_.find(id);
    if (at == jobs_.end()) continue;
    Job& job = at->second;
    job.cancel_asked = true;
    // The coordinator counts workers of an earlier start of the job, which may run on, as its own, too.
    for (const auto* const workers : {&job.workers, &job.earlier}) {
      for (const Worker* const worker : *workers) around_.history.job_is_cancelled(worker->number());
    }
  }
}

std::optional<std::string> Batch::cancel(const std::vector<std::string>& ids) {
  if (fails(kNotCancelled)) {
    around_.faults.count(Fault::cancel_failed);
    return "it timed out";
  }
  for (const std::string& id : ids) {
    const auto at = jobs_.find(id);
    if (at == jobs_.end()) continue;
    Job& job = at->second;
    if (job.status.state == JobState::queued) end(job, JobEnd::cancelled);
    if (job.status.state != JobState::running || std::exchange(job.cancelled, true)) continue;
    around_.trace.line("batch", "job {} is cancelled", id);
    for (Worker* const worker : job.workers) {
      if (worker->gone()) continue;
      worker->guardian().terminate();
      around_.timeline.after(kKillWait_s, [worker] {
        if (!worker->gone()) worker->kill();
      });
    }
  }
  return std::nullopt;
}

void Batch::end(Job& job, JobEnd end) {
  job.status.state = JobState::failed;
  job.status.end = end;
  around_.trace.line("batch", "job {} has ended", job.status.id);
}

void Batch::host_crashes(const Host& host) {
  for (const auto& entry : jobs_) {
    const Job& job = entry.second;
    if (job.status.state != JobState::running ||
        std::ranges::find(job.status.nodes, host.name) == job.status.nodes.end())
      continue;
    around_.timeline.after(draw_.logarithmic(kNoticeAtLeast_s, kNoticeAtMost_s),
                           [this, id = entry.first, name = host.name] { node_failed(id, name); });
  }
}

// A job of several nodes goes on with the others, or is ended with all of them, or starts again as a whole.
void Batch::node_failed(const std::string& id, const std::string& host) {
  Job& job = jobs_.at(id);
  const auto at = std::ranges::find(job.status.nodes, host);
  if (job.status.state != JobState::running || at == job.status.nodes.end()) return;
  if (job.status.nodes.size() > 1 && !job.cancelled && draw_.chance(0.5)) {
    around_.faults.count(Fault::node_taken_out);
    around_.trace.line("batch", "node {} is taken out of job {}", host, id);
    job.status.nodes.erase(at);
    return;
  }
  if (!healed_ && !job.cancelled && draw_.chance(0.5)) {
    around_.timeline.after(draw_.logarithmic(0.01, kUnreachable_s),
                           [workers = job.workers] { kill(workers); });
    return requeue(id);
  }
  around_.faults.count(Fault::job_lost);
  kill(job.workers);
  end(job, JobEnd::node);
}

Host* Batch::used_host() {
  std::vector<Host*> hosts;
  for (const auto& [id, job] : jobs_) {
    for (Worker* const worker : job.workers) {
      if (job.status.state == JobState::running && !worker->gone() && worker->host().up)
        hosts.push_back(&worker->host());
    }
  }
  return hosts.empty() ? nullptr : hosts[draw_.below(hosts.size())];
}

}  // namespace wflow::simulation
