// SPDX-License-Identifier: Apache-2.0
// The common part of all adapters: a table for each scheduler of its commands, directives, states and
// phrases, and the verbs that follow from it. An adapter adds code only for what differs.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch/batch_system.h"
#include "engine/batch/command.h"

namespace wflow::engine::batch {

using Words = std::vector<std::string_view>;

struct SchedulerTable {
  struct State {
    JobState state;
    JobEnd end;
    Words words;
  };
  struct End {
    JobEnd end;
    Words phrases;
  };
  struct Never {
    Words phrases;
    std::string_view meaning;
  };

  std::string_view name, title;  // "pbs"; "PBS" in the script
  // The script's options, one a line, each behind `mark`. {name} stands for a value; a line with a value that
  // is empty is left out. {?name} is a condition alone.
  std::string_view mark, directives;
  Words submit, cancel, check;    // the script's file, or the ids of jobs, come behind the first two
  bool script_on_stdin = false;   // of `submit`
  std::string environment = {};   // "NAME=value" for all commands but `submit`: a job inherits that one's
  Words passes;                   // messages of `submit` for which a later attempt may succeed
  Words gone;                     // messages of `cancel` for a job that has ended or is unknown
  std::vector<State> states;      // by the scheduler's word
  std::vector<End> ends = {};     // by a phrase in the reason; the first one counts
  std::vector<Never> never = {};  // reasons to wait that do not clear, and what they mean
};

// The values of a script's options by name.
using Values = std::map<std::string_view, std::string>;

class Adapter : public BatchSystem {
 public:
  explicit Adapter(const SchedulerTable& table) : table_(table) {}
  std::string_view name() const override { return table_.name; }
  std::string script(const JobRequest& request) const override;
  Submission submit(const JobRequest& request) override;
  std::optional<std::string> cancel(const std::vector<std::string>& ids) override;
  std::optional<std::string> check() override { return problem_of(ask(table_.check)); }

 protected:
  // Values beside the common ones, or in their place.
  virtual Values values(const JobRequest&) const { return {}; }
  // The lines below the options.
  virtual std::string body(const JobRequest& request) const = 0;
  virtual Submission refusal(const CommandAnswer& answer) const { return refused(answer, table_.passes); }
  // The job's id in the answer of `submit`; by default the last line.
  virtual std::optional<std::string> id_in(const std::string& out) const;
  CommandAnswer ask(const Words& words, const std::vector<std::string>& more = {}) const;
  // Why the scheduler cannot be used here; empty if it answered.
  std::optional<std::string> problem_of(const CommandAnswer& answer) const;

  const SchedulerTable& table_;
};

// Sets the state of a job, and the end of one that failed, by the word in `raw` and the phrases in `reason`.
void set_state(JobStatus& job, const SchedulerTable& table);
// The end that a phrase in `reason` states; `otherwise` if there is none.
JobEnd end_of(const SchedulerTable& table, std::string_view reason, JobEnd otherwise);
// "REASON: MEANING" if the reason never clears; else empty.
std::string why_never(const SchedulerTable& table, std::string_view reason);
// The meaning of a reason that never clears; else empty.
std::string_view meaning_of(const SchedulerTable& table, std::string_view words);

// A text or a whole number of a scheduler's JSON; empty for "-" and everything else.
std::string json_word(const nlohmann::json& object, const char* key);
// "26:03:10" -> seconds.
std::optional<double> duration_of(const std::string& text);
// The host names in "a/0*2+b/0*2" or "n01:n02*4", each once: counts and processors are left out.
std::vector<std::string> hosts_in(const std::string& text, char separator);

// DIRECTORY/TOKEN.sh
std::string script_file(const JobRequest& request);
// The token in a job's name where the scheduler finds jobs by name: "wa1b2c3001001.survey-sim-3", the token
// and the name for users.
std::string token_in(const std::string& name);
// Enters the directory, exports the job's end if the script can tell it (WFLOW_ENDS_AT, for the workers),
// then the user's lines.
std::string script_setup(const JobRequest& request);
// launch_args with a blank before them; empty if there are none.
std::string launch_arguments(const JobRequest& request);
// `launcher` and the command, with the user's launcher options.
std::string launch_line(const JobRequest& request, std::string_view launcher);
// For schedulers whose launcher starts programs with a bare environment: the script calls itself on every
// node with the argument "agent" and prepares the environment there again. `spread` is a line that starts
// "$@" on each node.
std::string self_calling_body(const JobRequest& request, std::string_view spread);
// Writes the script. Throws Error{system}.
void write_script(const JobRequest& request, const std::string& text);

// ---- The adapters.

std::unique_ptr<BatchSystem> make_flux();
std::unique_ptr<BatchSystem> make_pbs();
enum class LsfLauncher : bool { jsrun, srun };
std::unique_ptr<BatchSystem> make_lsf(LsfLauncher launcher);
std::unique_ptr<BatchSystem> make_sge();

// Each parses the output of the command and returns the jobs whose names begin with `prefix`.
JobList parse_flux_jobs(const std::string& json, const std::string& prefix);
JobList parse_pbs_jobs(const std::string& json, const std::string& prefix);
JobList parse_lsf_jobs(const std::string& json, const std::string& prefix, double now_unix_s);
JobList parse_sge_jobs(std::string_view xml, const std::string& prefix);
// Parses qacct's blocks, one for each ended job.
JobList parse_sge_accounting(std::string_view text, const std::string& prefix);

std::unique_ptr<BatchSystem> make_slurm();

// The srun command that starts one worker on each of `nodes` nodes.
std::string agents_launcher(int nodes);

// The output format of squeue, and the parser of one line of its answer, one job each. The name is for users:
// the token is the first word of the comment and the name of the script.
inline constexpr std::string_view kSqueueFormat =
    "JobID:|,State:|,Name:|,RestartCnt:|,StartTime:|,EndTime:|,NodeList:|,Reason:|,Comment:|,Command:|";
std::optional<JobStatus> parse_squeue_line(std::string_view line);

// "n[1-3,7],m01" -> names. Returns text that is no host list unchanged.
std::vector<std::string> expand_host_list(std::string_view list);

// The job's number in sbatch's answer, after any text that the site prints before it.
std::optional<std::string> parse_sbatch_id(std::string_view out);

Submission slurm_refusal(const CommandAnswer& answer);

}  // namespace wflow::engine::batch
