// SPDX-License-Identifier: Apache-2.0
// A study as its author wrote it, read and checked: no expansion yet.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/yaml.h"
#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "specs/study/dialect.h"

namespace wflow::specs {

// The iteration for which a study with iterate: is read.
struct Iteration {
  int number = 1;
  std::filesystem::path previous;  // campaign directory of the iteration before; empty in the first
  std::filesystem::path first;     // campaign directory of the first iteration; empty in the first
};

struct ReadOptions {
  std::vector<std::string> variables;            // --vars NAME=value
  std::string samples_file;                      // --samplesfile
  std::string generator;                         // --pgen: the Python file that makes the parameters
  std::vector<std::string> generator_arguments;  // --pargs KEY:VALUE
  std::string parameters;    // the generated parameters as JSON: set by reading, so that it runs once
  bool strict = false;       // unknown keys are errors in Merlin's files too
  bool local = false;        // --local: worker groups run on any machine, and machines: is ignored
  bool leaf_status = false;  // --merlin-status leaf: a status file for each task, as merlin run --local
  // A step that names SIZE2 also uses a parameter SIZE, as Merlin and Maestro have it: wflow adopt reads so,
  // because the names of directories depend on it.
  bool uses_by_prefix = false;
  std::optional<Dialect> dialect;  // --dialect
  std::optional<Dialect> command;  // that of `merlin run` and `maestro run`, unless the file names its format
  std::string timestamp;           // YYYYMMDD-HHMMSS of the campaign; part of its directory's name
  std::filesystem::path campaign;  // set when resuming: the campaign directory to use
  std::filesystem::path directory;  // relative paths of the study start here; empty: the current directory
  Iteration iteration;
  // The numbers of samples that the campaign had before it grew to this study's, ascending.
  std::vector<std::uint64_t> grown;
  // The number of samples that directories are laid out for (sample_path()): a campaign that grew keeps its
  // layout. 0: the study's count.
  std::uint64_t layout_samples = 0;
  // How convert: steps without `order` split fractions: 2, evenly; 1, by hash, in campaigns that have no
  // record of it. A campaign keeps its own.
  int split_version = 2;
  // Set by reading: the folder of this version of the campaign's study (specs/plan/versions.h), and the
  // XXH3-128 of its tables of samples by the names of their copies; empty in older campaigns.
  std::filesystem::path version_folder;
  std::map<std::string, std::string> table_checksums;
  // The study will be added to `campaign`: its table of samples is the file itself, not the campaign's copy.
  bool fresh_samples = false;
};

// The request of a pool's allocations to the scheduler: batch:, overridden by the pool's own keys. Values in
// the scheduler's notation; empty: its default.
struct AllocationSpec {
  std::string type = "local";  // local, slurm, flux, pbs, lsf, lsf-srun, sge
  std::string account, partition, qos, constraint, reservation;
  std::string memory;              // a node's: "64G"; "per_cpu 4G"; empty: the whole node's
  int nodes = 1;                   // nodes of one allocation
  bool nodes_given = false;        // given in the study; else as many as its widest step needs
  int gpus = 0;                    // a node
  bool exclusive = true;           // whole nodes; else as many processors as the pool's workers have slots
  double walltime_s = 0;           // 0: the scheduler's default
  int chain = 0;                   // more than 0: number in the queue, which run one after another
  std::vector<std::string> args;   // verbatim options of the submission, after wflow's
  std::vector<std::string> setup;  // lines of shell before the workers start
  // For the command that starts the workers on the nodes: text before it, further arguments, and its
  // replacement.
  std::string launch_pre, launch_args, worker_launch;

  bool is_local() const { return type == "local"; }
};

struct Batch {
  AllocationSpec allocation;  // for pools without keys of their own
  std::string shell = "/bin/bash";
  bool dry_run = false;
  double linger_s = 600;                   // how long allocations run without a coordinator
  bool coordinator_in_allocation = false;  // and moves to the next one when its walltime ends
};

// A pool: a group of workers. Local: slots on this machine.
struct WorkerGroup {
  std::string name;
  int slots = 0;                      // slots of a worker; 0: the cores that it may use
  std::vector<std::string> steps;     // empty or "all": every step
  std::vector<std::string> machines;  // only on hosts of these names
  bool pin = false;                   // every task has processors of its own: `wflow worker --pin`
  AllocationSpec allocation;
  int min = 0, max = 1;        // allocations at the same time: at least while there is work, at most
  double idle_timeout_s = 60;  // an allocation without work for this time is released
};

// True if `host` is one of `machines`. As in Merlin, one of them must be a part of its name.
bool names_host(const std::vector<std::string>& machines, const std::string& host);

struct Parameter {
  std::string name;
  std::string title;                // $(P.name): `name:` of Maestro, else the name
  std::vector<std::string> values;  // as written
  std::vector<bool> quoted;         // one for each value: text, even if it looks like a number
  std::vector<std::string> labels;  // one for each value, before cleaning tokens and special characters
};

struct Samples {
  SampleDesign design;           // design.count is 0 until `generate_command` has written its file
  std::string generate_command;  // runs once, when design.file does not exist yet
  std::uint32_t level_max_dirs = 25;
  std::uint64_t layout = 0;  // ReadOptions::layout_samples
  yaml::Mark mark;
  // The count that decides how directories of samples are laid out.
  std::uint64_t layout_count() const { return layout > 0 ? layout : design.count; }
};

// The tables of a design and of its parts, and the names of the campaign's copies.
struct SampleFile {
  std::filesystem::path file;
  std::string copy;
};
std::vector<SampleFile> sample_files(const SampleDesign& design);

struct Dependency {
  std::string step;
  bool funnel = false;  // "step_*": all parameter combinations of `step`
};

// An entry of outputs:, its file with tokens.
struct StepOutput {
  std::string file, dataset;
  std::vector<std::uint64_t> shape;
  bool finite = false;
};

// max_failures: the number of tasks of a step that may fail before no more of them start.
struct FailureLimit {
  enum class Kind : std::uint8_t {
    first,     // not given: kFirstFailures of them before any succeeded
    count,     // `count` of them
    fraction,  // `fraction` of the step's tasks
    none,
  };
  static constexpr std::uint64_t kFirstFailures = 20;
  Kind kind = Kind::first;
  std::uint64_t count = 0;
  double fraction = 0;
  bool operator==(const FailureLimit&) const = default;
};

// Keys of a step for its launcher, as written: slurm, flux, lsf, walltime, nodes, ...
using LauncherKeys = std::map<std::string, std::string>;

// The key `walltime`, in seconds; nothing if it is absent or no time (a parameter's token, or UNLIMITED).
std::optional<double> walltime_s(const LauncherKeys& keys);

struct Step {
  std::string name;
  std::string description;
  StepKind kind = StepKind::shell;
  std::string command, restart, shell;
  yaml::Node settings;          // the block of its kind as written, but run:
  Block block;                  // the same, read; values that depend on parameters are the defaults
  bool block_is_whole = false;  // no value depends on parameters
  std::vector<Dependency> depends;
  Resources resources;
  bool own_allocation = false;  // batch: own
  int max_retries = 30;
  bool retry_failures = false;  // retry after any failure, not only MERLIN_RETRY and MERLIN_RESTART
  double retry_delay_s = 1;
  double retry_memory =
      0;  // factor of memory for the retry of an execution killed for memory; 0: no such retry
  FailureLimit max_failures;
  double timeout_s = 0;
  double stall_timeout_s = 0;  // limit of time without output, reports and CPU use; 0: none
  bool trust_markers = false;  // an element with a MERLIN_FINISHED counts as finished
  std::optional<ContinueOn> continue_on;
  std::string when;  // an expression over parameters: combinations for which it is false don't exist
  int priority = 0;  // higher starts first; counts before depth
  std::uint64_t bundle = 0;
  OutputMode output = OutputMode::files;
  std::vector<StepOutput> outputs;
  bool shell_given = false;
  std::vector<std::string> sources;  // files whose content decides the result, as written
  bool sources_off = false;          // `sources: none`: files that the command names do not count either
  std::string task_queue = "merlin";
  LauncherKeys launcher_keys;
  yaml::Mark mark;
};

// Cloned to <path>/<name> before the campaign starts.
struct GitDependency {
  std::string name, path, url, tag;
};

// In the first campaign of a study with iterate:, the file that lists the others.
inline constexpr std::string_view kIterationsDirectory = "iterations";

// The study runs repeatedly, each time as a campaign of its own, until an event of a task ends it.
struct Iterate {
  int max = 1;
  std::string until = "converged";  // type of the event (docs/formats/events.md) that ends it
  std::string samples;  // a table for the second iteration and those after it; empty: that of the first
};

// Beside a version of a campaign's study (specs/plan/workspace.h): its table of samples, if it has its own.
inline constexpr std::string_view kSamplesFolder = "samples";

struct Study {
  std::filesystem::path file;  // absolute
  DialectChoice format;        // the format of the file
  bool merlin = false;         // Merlin's or Maestro's: their rules apply where they differ
  std::string name, description;
  Batch batch;
  std::vector<std::pair<std::string, std::string>> variables;  // in order, resolved
  std::vector<std::pair<std::string, std::string>> labels;
  std::vector<std::string> sources;
  std::vector<GitDependency> git;
  std::vector<Parameter> parameters;
  std::optional<Samples> samples;
  std::vector<WorkerGroup> workers;
  std::vector<Step> steps;
  std::optional<Iterate> iterate;
  std::filesystem::path output_path;  // absolute
  std::string text;                   // the file, byte by byte
  yaml::Node original;                // the file
  yaml::Node partial;                 // after the user's variables: merlin_info/<stem>.partial.yaml
  yaml::Node expanded;                // after variables: merlin_info/<stem>.expanded.yaml
  ReadOptions options;                // the options it was read with
};

struct StudyAndWarnings {
  Study study;
  std::vector<yaml::Diagnostic> warnings;
};

// Reads and checks the whole study, with convert: and train: blocks. Throws Error{spec} with every error, one
// a line.
StudyAndWarnings read_study(const std::filesystem::path& file, const ReadOptions& options);

// A command of on:. It and the files of metrics: report about a campaign; no task depends on them.
struct Hook {
  std::string event;         // "finished", "failed", ... (specs/study/read_hooks.cc)
  std::string command;       // for /bin/sh
  double timeout_s = 60;     // after this time it is killed
  double after_s = 30 * 60;  // stalled: the time without an ended task
};

// metrics: prometheus: a file that is rewritten periodically.
struct MetricsFile {
  std::filesystem::path file;  // absolute
  double every_s = 15;
};

// Both for a study that was read without errors.
std::vector<Hook> hooks_of(const Study& study);
std::optional<MetricsFile> metrics_file_of(const Study& study);

// Files beside the study that a step's command names are sources without a declaration. Returns paths in
// `cmd` and `restart` that begin with the study's folder, $(SPECROOT), relative to it, in the order of the
// text; none with `sources: none`. Skips files that a shell writes (> FILE, tee FILE, touch FILE) and names
// that differ from task to task. Does not check that the files exist.
std::vector<std::string> named_files(const Study& study, const Step& step);

// Checks what the study alone tells about trainings and their data; the trainer checks again with the data
// (trainer/data/check_data.h). Reports as errors what the trainer would refuse.
void check_trainings(const Study& study, yaml::Diagnostics& diagnostics);

// Doubtful settings of trainings: a sentence each, with the step and a remedy.
std::vector<std::string> training_doubts(const Study& study);

// The study language as JSON Schema (draft 2020-12), for editors: `wflow schema`. Comes from the tables of
// the blocks (reading.h), and from those of convert: and train: in converters/ and trainer/.
std::string study_schema();

// The keys of blocks as Markdown tables, a section a block: scripts/docs puts them into docs/.
std::string key_tables();

}  // namespace wflow::specs
