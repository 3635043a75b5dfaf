// SPDX-License-Identifier: Apache-2.0
// A study as its author wrote it, read and checked: no expansion yet.
#pragma once

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

// Which time round a study with iterate: is read for.
struct Iteration {
  int number = 1;
  std::filesystem::path previous;  // campaign directory of the one before; empty in the first
  std::filesystem::path first;     // that of the first; empty in the first: its own
};

struct ReadOptions {
  std::vector<std::string> variables;            // --vars NAME=value
  std::string samples_file;                      // --samplesfile
  std::string generator;                         // --pgen: the Python file that makes the parameters
  std::vector<std::string> generator_arguments;  // --pargs KEY:VALUE
  std::string parameters;          // as JSON, what it made: set by reading, so that it runs once
  bool strict = false;             // unknown keys are errors in Merlin's files too
  bool local = false;              // --local: worker groups run on any machine, whatever machines: says
  bool leaf_status = false;        // --merlin-status leaf: a status file for each task, as merlin run --local
  std::optional<Dialect> dialect;  // --dialect
  std::optional<Dialect> command;  // that of `merlin run`: where the file does not say whose it is
  std::string timestamp;           // YYYYMMDD-HHMMSS of the campaign; part of its directory's name
  std::filesystem::path campaign;  // set when resuming: the campaign directory to use
  std::filesystem::path directory;  // relative paths of the study start here; empty: the current directory
  Iteration iteration;
  // The numbers of samples that the campaign had before it grew to this study's, ascending.
  std::vector<std::uint64_t> grown;
  // Directories of samples are laid out as for so many (sample_path()): a campaign that grew keeps those that it has.
  // 0: as for the study's count.
  std::uint64_t layout_samples = 0;
  // How convert: steps that give no `order` split fractions: 2, evenly; 1, by hash, as campaigns did that have no record
  // of it. A campaign keeps its own.
  int split_version = 2;
  // Set by reading: the folder of this version of the campaign's study (specs/plan/versions.h), and the XXH3-128 of its
  // tables of samples by the names of their copies; of older campaigns none.
  std::filesystem::path version_folder;
  std::map<std::string, std::string> table_checksums;
  // Of a study that is to be taken into `campaign`: its table of samples is the file itself, not the campaign's copy.
  bool fresh_samples = false;
};

// What a pool's allocations ask of the scheduler: batch:, and over it the pool's own keys. As the scheduler
// writes them; empty: its default.
struct AllocationSpec {
  std::string type = "local";  // local, slurm, flux, pbs, lsf, lsf-srun, sge
  std::string account, partition, qos, constraint, reservation;
  std::string memory;              // a node's: "64G"; "per_cpu 4G"; empty: the whole node's
  int nodes = 1;                   // of one allocation
  bool nodes_given = false;        // by the study; else as many as its widest step asks for
  int gpus = 0;                    // a node
  bool exclusive = true;           // whole nodes; else as many processors as the pool's workers have slots
  double walltime_s = 0;           // 0: the scheduler's default
  int chain = 0;                   // more than 0: so many in the queue, of which one runs after another
  std::vector<std::string> args;   // verbatim options of the submission, after ours
  std::vector<std::string> setup;  // lines of shell before the workers start
  // Of the command that starts the workers on the nodes: before it, more arguments of it, in place of it.
  std::string launch_pre, launch_args, worker_launch;

  bool is_local() const { return type == "local"; }
};

struct Batch {
  AllocationSpec allocation;  // of pools that say nothing else
  std::string shell = "/bin/bash";
  bool dry_run = false;
  double linger_s = 600;                   // how long allocations live without a coordinator
  bool coordinator_in_allocation = false;  // and moves on to the next one as its walltime ends
};

// A pool: a group of workers. Local: slots on this machine.
struct WorkerGroup {
  std::string name;
  int slots = 0;                      // of a worker; 0: the cores that it may use
  std::vector<std::string> steps;     // empty or "all": every step
  std::vector<std::string> machines;  // only on hosts of these names
  bool pin = false;                   // every task has processors of its own: `wflow worker --pin`
  AllocationSpec allocation;
  int min = 0, max = 1;        // allocations at the same time: at least while there is work, at most
  double idle_timeout_s = 60;  // an allocation without work for so long is given back
};

// Whether `host` is one of `machines`, as Merlin has it: one of them is a part of its name.
bool names_host(const std::vector<std::string>& machines, const std::string& host);

struct Parameter {
  std::string name;
  std::string title;                // $(P.name): `name:` of Maestro, else the name
  std::vector<std::string> values;  // as written
  std::vector<bool> quoted;         // one a value: text, even if it looks like a number
  std::vector<std::string> labels;  // one a value, tokens and odd characters not yet cleaned
};

struct Samples {
  SampleDesign design;           // design.count is 0 while `generate_command` has its file still to write
  std::string generate_command;  // runs once, when design.file does not exist yet
  std::uint32_t level_max_dirs = 25;
  std::uint64_t layout = 0;  // ReadOptions::layout_samples
  yaml::Mark mark;
  // The count that decides how directories of samples are laid out.
  std::uint64_t layout_count() const { return layout > 0 ? layout : design.count; }
};

// The tables of a design and of its parts, and what the campaign's copy of each is called.
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

// max_failures: so many tasks of a step may fail before nothing more of it starts.
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

struct Step {
  std::string name;
  std::string description;
  StepKind kind = StepKind::shell;
  std::string command, restart, shell;
  yaml::Node settings;  // convert, train: the block
  std::vector<Dependency> depends;
  Resources resources;
  bool own_allocation = false;  // batch: own
  int max_retries = 30;
  bool retry_failures = false;  // any failure is tried again, not only MERLIN_RETRY and MERLIN_RESTART
  double retry_delay_s = 1;
  double retry_memory =
      0;  // an execution killed for memory is tried again with so many times its memory; 0: not
  FailureLimit max_failures;
  double timeout_s = 0;
  double stall_timeout_s = 0;  // without output, reports and CPU time; 0: none
  bool trust_markers = false;  // finished work is recognised by its MERLIN_FINISHED before it is run again
  std::optional<ContinueOn> continue_on;
  std::string when;  // an expression over parameters: combinations for which it is false don't exist
  int priority = 0;  // higher goes first, before depth
  std::uint64_t bundle = 0;
  OutputMode output = OutputMode::files;
  std::vector<StepOutput> outputs;
  bool shell_given = false;
  std::vector<std::string> sources;  // files whose content decides the result, as written
  bool sources_off = false;          // `sources: none`: nor are files that the command names (named_files.h)
  std::string task_queue = "merlin";
  std::map<std::string, std::string> launcher_keys;  // slurm, flux, lsf, walltime, ...: for $(LAUNCHER)
  yaml::Mark mark;
};

// Cloned to <path>/<name> before the campaign starts.
struct GitDependency {
  std::string name, path, url, tag;
};

// In the first campaign of a study with iterate:, where the others are.
inline constexpr std::string_view kIterationsDirectory = "iterations";

// The study is run again and again, each time as a campaign of its own, until a task says so.
struct Iterate {
  int max = 1;
  std::string until = "converged";  // type of the event (docs/formats/events.md) that ends it
  std::string samples;  // a table for the second iteration and those after it; empty: as the first
};

// Beside a version of a campaign's study (specs/plan/workspace.h): its table of samples, where it has one of its own.
inline constexpr std::string_view kSamplesFolder = "samples";

struct Study {
  std::filesystem::path file;  // absolute
  DialectChoice format;        // whose the file is
  bool merlin = false;         // Merlin's or Maestro's: their rules where they differ from ours
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
  ReadOptions options;                // it was read with
};

struct StudyAndWarnings {
  Study study;
  std::vector<yaml::Diagnostic> warnings;
};

// Reads and checks all of it, convert: and train: blocks too. Throws Error{spec} with every error, a line
// each.
StudyAndWarnings read_study(const std::filesystem::path& file, const ReadOptions& options);

}  // namespace wflow::specs
