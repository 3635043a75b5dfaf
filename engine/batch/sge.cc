// SPDX-License-Identifier: Apache-2.0
// Sun Grid Engine 8.1 (Son of Grid Engine, as packaged by Debian).
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

namespace {

const SchedulerTable kSge = {
    .name = "sge",
    .title = "SGE",
    .mark = "#$",
    .directives = R"(
        -N {name}
        -S /bin/bash
        -l h_rt={seconds}
        -P {account}
        -q {partition}
        -l {qos}
        -l {constraint}
        -ar {reservation}
        -l h_vmem={memory}
        -l gpu={gpus}
        -l h=!({excluded})
        -wd {directory}
        -j y
        -o {output}
        -r n
        {args})",
    .submit = {"qsub", "-terse"},
    .cancel = {"qdel"},
    .check = {"qstat"},
    .passes = {"unable to contact qmaster", "unable to send message", "more jobs than", "try again",
               "max_u_jobs", "commlib", "got no response", "timed out"},
    .gone = {"does not exist", "already in deletion"},
    .states = {},  // of letters: sge_set_state
};

// A job without a parallel environment has one node and no file of hosts.
constexpr std::string_view kSpread =
    "[ -n \"$PE_HOSTFILE\" ] || exec \"$@\"\n"
    "  for host in $(awk '{print $1}' \"$PE_HOSTFILE\" | sort -u); do qrsh -inherit -nostdin \"$host\" "
    "\"$@\" & done\n"
    "  wait";

bool has_parallel_environment(const JobRequest& request) {
  return std::any_of(request.args.begin(), request.args.end(),
                     [](const std::string& argument) { return argument.starts_with("-pe"); });
}

// The text between <tag> (or <tag ...>) and </tag> in `xml`; empty without them.
std::string_view inside(std::string_view xml, std::string_view tag) {
  const std::string open = fmt::format("<{}", tag);
  std::size_t at = xml.find(open);
  while (at != std::string_view::npos && xml.substr(at + open.size(), 1) != ">" &&
         xml.substr(at + open.size(), 1) != " ")
    at = xml.find(open, at + 1);
  const std::size_t begin = at == std::string_view::npos ? at : xml.find('>', at);
  const std::size_t end =
      begin == std::string_view::npos ? begin : xml.find(fmt::format("</{}>", tag), begin);
  return end == std::string_view::npos ? std::string_view() : xml.substr(begin + 1, end - begin - 1);
}

// Letters of the state, such as hqw, Eqw, dr.
void sge_set_state(JobStatus& job) {
  const auto has = [&](char letter) { return job.raw.find(letter) != std::string::npos; };
  if (has('E')) {
    job.state = JobState::held;
    job.never_clears = job.raw + ": the scheduler could not start it and keeps it; `qstat -j " + job.id +
                       "` says why, `qmod -cj` clears it";
  } else if (has('d')) {
    job.state = JobState::ending;
  } else if (has('w')) {
    job.state = has('h') ? JobState::held : JobState::queued;
  } else if (has('r') || has('t') || has('s') || has('S') || has('T')) {
    job.state = JobState::running;
  }
}

JobStatus job_of(std::string_view xml) {
  JobStatus job;
  job.id = inside(xml, "JB_job_number");
  job.token = token_in(std::string(inside(xml, "JB_name")));
  job.raw = inside(xml, "state");
  const std::string_view queue = inside(xml, "queue_name");  // all.q@host
  if (const std::size_t at = queue.find('@'); at != std::string_view::npos)
    job.nodes = {std::string(queue.substr(at + 1))};
  sge_set_state(job);
  return job;
}

// The value of a key in one block of qacct. Each line has key, blanks and value.
std::string value_of(const std::vector<std::string_view>& block, std::string_view key) {
  for (const std::string_view line : block) {
    if (line.starts_with(key) && line.substr(key.size(), 1) == " ")
      return std::string(text::trim(line.substr(key.size())));
  }
  return {};
}

// Of "100 : assumedly after job", "137                  (Killed)".
std::optional<std::int64_t> first_number(const std::string& text) {
  return text::to_integer(text.substr(0, text.find(' ')));
}

JobStatus ended_job(const std::vector<std::string_view>& block) {
  constexpr std::int64_t kLimit = 37, kKilled = 100;
  JobStatus job;
  job.id = value_of(block, "jobnumber");
  job.token = token_in(value_of(block, "jobname"));
  job.nodes = {value_of(block, "hostname")};
  const std::string failed = value_of(block, "failed");
  job.raw = "failed " + failed + ", exit status " + value_of(block, "exit_status");
  const auto why = first_number(failed);
  const auto status = first_number(value_of(block, "exit_status"));
  if (!why || !status) return job;
  job.state = *why == 0 && *status == 0 ? JobState::done : JobState::failed;
  if (job.state == JobState::done) return job;
  job.end = *why == kLimit ? JobEnd::walltime : *why == kKilled ? JobEnd::cancelled : JobEnd::exit;
  return job;
}

class Sge : public Adapter {
 public:
  Sge() : Adapter(kSge) {}

  Submission submit(const JobRequest& request) override {
    if (request.nodes > 1 && !has_parallel_environment(request)) {
      return {{},
              Submission::Refusal::fix,
              fmt::format(
                  "SGE gives {} nodes only through a parallel environment of the site; add one to 'args', "
                  "such as \"-pe mpi {}\" (`qconf -spl` lists them)",
                  request.nodes, request.nodes)};
    }
    JobRequest whole = request;
    if (request.nodes == 1 && request.cores > 1 && !has_parallel_environment(request)) {
      if (const std::string name = environment_of_one_node(); !name.empty())
        whole.args.push_back(fmt::format("-pe {} {}", name, request.cores));
    }
    return Adapter::submit(whole);
  }

  // qstat lists what lives, qacct what has ended; both know names.
  JobList query(const std::string& prefix) override {
    const CommandAnswer answer = ask({"qstat", "-xml", "-u", user_name()});
    if (!answer.ok()) return {false, answer.problem(), {}};
    JobList list = parse_sge_jobs(answer.out, prefix);
    const CommandAnswer ended = ask({"qacct", "-d", "2", "-o"}, {user_name(), "-j", prefix + "*"});
    if (!ended.ok()) return list;  // no accounting, or none has ended
    for (JobStatus& job : parse_sge_accounting(ended.out, prefix).jobs) {
      const bool lives = std::any_of(list.jobs.begin(), list.jobs.end(),
                                     [&](const auto& other) { return other.id == job.id; });
      if (!lives) list.jobs.push_back(std::move(job));
    }
    return list;
  }

  // SGE does not tell a job its end time: the worker's command line has it.
  std::optional<double> ends_unix_s() override { return std::nullopt; }

 private:
  Values values(const JobRequest& request) const override {
    return {{"excluded", text::join(request.exclude, "|")}};
  }

  std::string body(const JobRequest& request) const override { return self_calling_body(request, kSpread); }

  // A parallel environment of the site that gives several slots on one node. Without it a job has one slot.
  std::string environment_of_one_node() const {
    const CommandAnswer names = ask({"qconf", "-spl"});
    if (!names.ok()) return {};
    for (const std::string_view name : lines_of(names.out)) {
      const CommandAnswer environment = ask({"qconf", "-sp", name});
      for (const std::string_view line : lines_of(environment.out)) {
        if (line.starts_with("allocation_rule") && line.ends_with("$pe_slots")) return std::string(name);
      }
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<BatchSystem> make_sge() {
  return std::make_unique<Sge>();
}

JobList parse_sge_jobs(std::string_view xml, const std::string& prefix) {
  if (xml.find("<job_info") == std::string_view::npos) return {false, "qstat: the answer does not read", {}};
  JobList list{true, {}, {}};
  constexpr std::string_view kEnd = "</job_list>";
  for (std::size_t at = xml.find("<job_list"); at != std::string_view::npos;
       at = xml.find("<job_list", at + 1)) {
    const std::size_t end = xml.find(kEnd, at);
    if (end == std::string_view::npos) break;
    JobStatus job = job_of(xml.substr(at, end - at));
    if (job.token.starts_with(prefix)) list.jobs.push_back(std::move(job));
  }
  return list;
}

JobList parse_sge_accounting(std::string_view text, const std::string& prefix) {
  JobList list{true, {}, {}};
  std::vector<std::string_view> block;
  const auto close = [&] {
    JobStatus job = ended_job(block);
    if (!job.id.empty() && job.token.starts_with(prefix)) list.jobs.push_back(std::move(job));
    block.clear();
  };
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with("====")) close();
    block.push_back(line);
  }
  close();
  return list;
}

}  // namespace wflow::engine::batch
