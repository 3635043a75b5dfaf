// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/process.h"
#include "base/text.h"
#include "engine/batch/adapters.h"

namespace wflow::engine::batch {

namespace {

// Variables that srun would take as options of the workers' step: they come from the site's sbatch, from
// --export, and from the job's own cpus-per-task (22.05 does not pass it on, 23.11 does, and both together
// are an error).
constexpr std::string_view kUnset =
    "unset SLURM_EXPORT_ENV SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION\n"
    "unset ${!SLURM_CPU_BIND*} ${!SLURM_MEM_BIND*} ${!SBATCH_*}\n";

bool asks_for(const JobRequest& request, std::string_view option) {
  return std::any_of(request.args.begin(), request.args.end(),
                     [&](const std::string& argument) { return argument.starts_with(option); });
}

// Its three forms exclude each other.
std::string memory_option(const JobRequest& request) {
  constexpr std::string_view kPerCpu = "per_cpu ";
  if (asks_for(request, "--mem")) return {};
  if (request.memory.starts_with(kPerCpu)) return "--mem-per-cpu=" + request.memory.substr(kPerCpu.size());
  if (!request.memory.empty()) return "--mem=" + request.memory;
  // All of it: the default of a whole node is one processor's share at many sites.
  return request.exclusive ? "--mem=0" : "";
}

// Quotes a word for sbatch's directives.
std::string quoted(const std::string& text) {
  if (text.find_first_of(" \t'\"\\#") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "\"";
}

// Quotes the text after '=' of a single option as one value, unless the user has quoted it.
std::string quoted_value(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const bool option = argument.starts_with("--") && equals != std::string::npos &&
                      argument.substr(0, equals).find(' ') == std::string::npos;
  if (!option || argument.find_first_of("'\"", equals) != std::string::npos) return argument;
  return argument.substr(0, equals + 1) + quoted(argument.substr(equals + 1));
}

Values slurm_values(const JobRequest& request) {
  constexpr std::string_view kExclude = "--exclude=";
  std::vector<std::string> args;
  // Slurm takes the last such option alone: the study's nodes, and those that wflow leaves out.
  std::vector<std::string> excluded = request.exclude;
  for (const std::string& argument : request.args) {
    if (argument.starts_with(kExclude)) {
      excluded.push_back(argument.substr(kExclude.size()));
    } else {
      args.push_back(quoted_value(argument));
    }
  }
  const std::string& name = request.name.empty() ? request.token : request.name;
  return {// Slurm knows the jobs of a chain by their common name.
          {"job", request.chain.empty() ? name : request.chain},
          {"comment", quoted(request.token + (request.campaign.empty() ? "" : " " + request.campaign))},
          {"memory", memory_option(request)},
          {"excluded", text::join(excluded, ",")},
          {"chain", request.chain},
          {"args", text::join(args, "\n#SBATCH ")}};
}

// Slurm knows the end better than the script: once for all nodes, so that 1,000 workers do not ask.
constexpr std::string_view kAskEnd =
    "ends=$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs=\"$SLURM_JOB_ID\" --format=%e) && "
    "[ \"$ends\" -gt 0 ] && export WFLOW_ENDS_AT=$ends\n";

const SchedulerTable kSlurm = {
    .name = "slurm",
    .title = "Slurm",
    .mark = "#SBATCH",
    // Sites preset ntasks-per-node: both are stated. The coordinator submits again by itself (--no-requeue),
    // and a dead node must not end the workers on the others (--no-kill).
    .directives = R"(
        --job-name={job}
        --comment={comment}
        --nodes={nodes}
        --ntasks={nodes}
        --ntasks-per-node=1
        {?exclusive}--exclusive
        {?shared}--cpus-per-task={cores}
        {memory}
        --time={minutes}
        --account={account}
        --partition={partition}
        --qos={qos}
        --constraint={constraint}
        --reservation={reservation}
        --gpus-per-node={gpus}
        --exclude={excluded}
        {?chain}--dependency=singleton
        --chdir={directory}
        --output={output}
        --open-mode=append
        --no-requeue
        --no-kill
        {args})",
    .submit = {"sbatch", "--parsable"},
    .cancel = {"scancel", "--quiet"},
    .check = {"squeue", "--noheader"},
    .environment = "SLURM_TIME_FORMAT=%s",
    .passes = {"MaxSubmitJob", "violates accounting/QOS policy", "timed out",
               "Unable to contact slurm controller", "Resource temporarily unavailable", "temporarily unable",
               "try again", "not responding", "connection refused", "Communication connection failure",
               "Zero Bytes were transmitted", "slurmctld", "system maintenance", "Transport endpoint",
               "Requested partition configuration not available now", "in standby mode"},
    .gone = {"Invalid job id", "already completing or completed"},
    .states = {{JobState::queued, JobEnd::none, {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"}},
               {JobState::held, JobEnd::none, {"SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD"}},
               {JobState::running,
                JobEnd::none,
                {"RUNNING", "RESIZING", "SIGNALING", "STOPPED", "SUSPENDED"}},
               {JobState::ending, JobEnd::none, {"COMPLETING", "STAGE_OUT"}},
               {JobState::done, JobEnd::none, {"COMPLETED"}},
               {JobState::failed, JobEnd::exit, {"FAILED"}},
               {JobState::failed, JobEnd::walltime, {"TIMEOUT", "DEADLINE"}},
               {JobState::failed, JobEnd::node, {"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"}},
               {JobState::failed, JobEnd::memory, {"OUT_OF_MEMORY"}},
               {JobState::failed, JobEnd::preempted, {"PREEMPTED"}},
               {JobState::failed, JobEnd::cancelled, {"CANCELLED", "REVOKED"}}},
    .never =
        {{{"BadConstraints"}, "no node has what the allocation asks for (constraint, memory, gpus, nodes)"},
         {{"InvalidAccount"}, "the account is not known, or you may not charge it (account)"},
         {{"InvalidQOS"}, "the quality of service is not known, or the account may not use it (qos)"},
         {{"PartitionTimeLimit"}, "the walltime is longer than the partition allows (walltime, partition)"},
         {{"PartitionNodeLimit"}, "the partition never gives so many nodes to a job (nodes, partition)"},
         {{"PartitionInactive"}, "the partition does not start jobs (partition)"},
         {{"QOSTimeLimit", "QOSMaxWallDurationPerJobLimit"},
          "the walltime is longer than the quality of service allows (walltime, qos)"},
         {{"QOSMaxNodePerJobLimit"},
          "the quality of service never gives so many nodes to a job (nodes, qos)"},
         {{"QOSMaxCpuPerJobLimit"},
          "the quality of service never gives so many processors to a job (nodes, qos)"},
         {{"QOSMinCpuNotSatisfied"}, "the quality of service wants more processors a job (nodes, qos)"},
         {{"QOSUsageThreshold"}, "the quality of service has used up its share (qos)"},
         {{"AssocMaxNodePerJobLimit"}, "your account never gives so many nodes to a job (nodes, account)"},
         {{"AssocMaxCpuPerJobLimit"},
          "your account never gives so many processors to a job (nodes, account)"},
         {{"AssocMaxWallDurationPerJobLimit"},
          "the walltime is longer than your account allows (walltime, account)"},
         {{"AssociationTimeLimit"}, "your account has used up its time (account)"},
         {{"AssocGrpCPUMinutesLimit"}, "your account has used up its processor time (account)"},
         {{"AssocGrpBillingMinutes"}, "your account has used up its budget (account)"},
         {{"AccountNotAllowed"}, "the partition does not take this account (account, partition)"},
         {{"QOSNotAllowed"}, "the partition does not take this quality of service (qos, partition)"},
         {{"DependencyNeverSatisfied"}, "it depends on a job that ended in another way than asked (args)"},
         {{"JobHeldAdmin"}, "an administrator holds the job; ask the site"},
         {{"JobHeldUser"}, "the job is held; `scontrol release` lets it go"},
         {{"ReservationDeleted"}, "its reservation is gone (reservation)"},
         {{"launch failed requeued held"},
          "it could not be started on its node and is held; `scontrol release` tries again"}},
};

std::optional<double> time_of(std::string_view text) {
  const auto seconds = text::to_integer(text);
  if (!seconds || *seconds <= 0) return std::nullopt;  // N/A, Unknown, NONE
  return static_cast<double>(*seconds);
}

class Slurm : public Adapter {
 public:
  Slurm() : Adapter(kSlurm) {}

  JobList query(const std::string& prefix) override {
    const CommandAnswer answer = jobs();
    if (!answer.ok()) return {false, answer.problem(), {}};
    JobList list{true, {}, {}};
    for (const std::string_view line : lines_of(answer.out)) {
      auto job = parse_squeue_line(line);
      if (job && job->token.starts_with(prefix)) list.jobs.push_back(std::move(*job));
    }
    return list;
  }

  std::optional<double> ends_unix_s() override {
    const char* id = std::getenv("SLURM_JOB_ID");
    if (id == nullptr) return std::nullopt;
    // The limit of a running job can be changed: the variable (Slurm 22.05 has none) is what it was at the
    // start.
    const CommandAnswer answer = ask(table_.check, {"--jobs=" + std::string(id), "--format=%e"});
    const auto lines = lines_of(answer.out);
    if (answer.ok() && !lines.empty()) {
      if (const auto end = time_of(lines.front())) return end;
    }
    const char* variable = std::getenv("SLURM_JOB_END_TIME");
    return variable == nullptr ? std::nullopt : time_of(variable);
  }

  // "sbatch: Job 3 to start at 1795325825 using 2 processors on nodes n[1-2] in partition batch"
  Trial try_out(const JobRequest& request) override {
    write_script(request, script(request));
    const CommandAnswer answer = ask({"sbatch", "--test-only"}, {script_file(request)});
    if (!answer.ok()) return {std::nullopt, slurm_refusal(answer)};
    constexpr std::string_view kMark = " to start at ";
    const std::size_t at = answer.err.find(kMark);
    if (at == std::string::npos) return {};
    const std::string_view rest = std::string_view(answer.err).substr(at + kMark.size());
    return {time_of(rest.substr(0, rest.find(' '))), {}};
  }

  std::optional<std::string> check() override {
    if (auto problem = problem_of(jobs())) return problem;
    if (!find_program("sbatch")) return "slurm is only half here: no 'sbatch' in PATH";
    return std::nullopt;
  }

 private:
  Values values(const JobRequest& request) const override { return slurm_values(request); }
  Submission refusal(const CommandAnswer& answer) const override { return slurm_refusal(answer); }
  std::optional<std::string> id_in(const std::string& out) const override { return parse_sbatch_id(out); }

  std::string body(const JobRequest& request) const override {
    return std::string(kUnset) + script_setup(request) + std::string(kAskEnd) +
           launch_line(request, agents_launcher(request.nodes));
  }

  // squeue for this user alone: the adapter filters names, because squeue takes no patterns.
  CommandAnswer jobs() const {
    return ask(table_.check, {"--user=" + std::to_string(::getuid()), "--states=all",
                              "--Format=" + std::string(kSqueueFormat)});
  }
};

// True for the token of a job of wflow: engine/batch/pools.cc makes them.
bool is_token(std::string_view text) {
  return text.size() > 1 && text.size() <= 14 && text.front() == 'w' &&
         std::ranges::all_of(text,
                             [](unsigned char c) { return std::isdigit(c) != 0 || std::islower(c) != 0; });
}

// "01-03" -> its numbers, with their zeros.
void expand_range(const std::string& before, std::string_view range, std::vector<std::string>& names) {
  constexpr std::int64_t kMost = 100'000;
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const auto low = text::to_integer(first);
  const auto high = dash == std::string_view::npos ? low : text::to_integer(range.substr(dash + 1));
  if (!low || !high || *low < 0 || *high < *low || *high - *low > kMost) {
    names.push_back(before + std::string(range));
    return;
  }
  for (std::int64_t number = *low; number <= *high; ++number)
    names.push_back(fmt::format("{}{:0{}}", before, number, first.size()));
}

}  // namespace

std::string agents_launcher(int nodes) {
  // One worker's end is not its neighbours' (a site's WaitTime, KillOnBadExit), nor is its node's: without
  // --no-kill here the job lives on, and the step does not. Workers take no part in bindings, nor do they
  // hold the resources against the steps of tasks.
  return fmt::format(
      "srun --nodes={0} --ntasks={0} --overlap --no-kill --wait=0 --kill-on-bad-exit=0 --cpu-bind=none "
      "--mpi=none",
      nodes);
}

std::unique_ptr<BatchSystem> make_slurm() {
  return std::make_unique<Slurm>();
}

std::optional<JobStatus> parse_squeue_line(std::string_view line) {
  constexpr std::size_t kFields = 8;
  constexpr std::size_t kToken = 13;  // its length: other comments may begin with any word
  std::vector<std::string> fields = text::split(line, '|');
  if (fields.size() < kFields) return std::nullopt;
  for (std::string& field : fields) field = text::trim(field);
  JobStatus job;
  job.id = fields[0];
  job.raw = fields[1];
  job.token = fields[2];
  job.restarts = static_cast<int>(text::to_integer(fields[3]).value_or(0));
  job.starts_unix_s = time_of(fields[4]);
  job.ends_unix_s = time_of(fields[5]);
  job.nodes = expand_host_list(fields[6]);
  job.reason = fields[7] == "None" ? "" : fields[7];
  // The job's name is for users, and its comment may be the user's own: the script's name is the token.
  const std::string comment = fields.size() > kFields ? fields[kFields] : "";
  const std::string said = comment.substr(0, comment.find(' '));
  if (is_token(said) && said.size() == kToken) job.token = said;
  for (std::size_t i = kFields; i < fields.size(); ++i) {
    const std::string stem =
        fields[i].ends_with(".sh") ? std::filesystem::path(fields[i]).stem().string() : "";
    if (is_token(stem)) job.token = stem;
  }
  set_state(job, kSlurm);
  if (job.state != JobState::queued && job.state != JobState::held) return job;
  if (job.reason.starts_with("JobHeld") || job.reason.find("held") != std::string::npos)
    job.state = JobState::held;
  job.never_clears = why_never(kSlurm, job.reason);
  return job;
}

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const std::size_t open = list.find_first_of("[,");
    const std::size_t close =
        open == std::string_view::npos || list[open] == ',' ? std::string_view::npos : list.find(']', open);
    if (open == std::string_view::npos || list[open] == ',' || close == std::string_view::npos) {
      const std::size_t end =
          list[std::min(open, list.size() - 1)] == '[' ? list.size() : std::min(open, list.size());
      if (end > 0) names.emplace_back(list.substr(0, end));
      list.remove_prefix(std::min(end + 1, list.size()));
      continue;
    }
    const std::string before(list.substr(0, open));
    for (const std::string& range : text::split(list.substr(open + 1, close - open - 1), ','))
      expand_range(before, range, names);
    list.remove_prefix(close + 1);
    if (list.starts_with(',')) list.remove_prefix(1);
  }
  return names;
}

std::optional<std::string> parse_sbatch_id(std::string_view out) {
  const auto lines = lines_of(out);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::string_view number = line->substr(0, line->find(';'));
    if (!number.empty() &&
        std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); }))
      return std::string(number);
  }
  return std::nullopt;
}

// "violates accounting/QOS policy" stands behind limits of jobs, which pass, and of one job's size or time,
// which do not: the line before it names the limit.
Submission slurm_refusal(const CommandAnswer& answer) {
  Submission submission = refused(answer, kSlurm.passes);
  if (submission.refusal != Submission::Refusal::wait || answer.timed_out) return submission;
  const std::string_view meaning = meaning_of(kSlurm, answer.err);
  if (meaning.empty()) return submission;
  submission.refusal = Submission::Refusal::fix;
  submission.text += fmt::format(": {}", meaning);
  return submission;
}

}  // namespace wflow::engine::batch
