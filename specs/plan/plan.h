// SPDX-License-Identifier: Apache-2.0
// The expanded study: every step as task arrays over parameter combinations, and the dependencies between
// them. Arrays are computed on demand from (step, combination): a plan of 500 steps, 10,000 combinations and
// 10^8 samples stays in tens of megabytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/blocks.h"
#include "base/yaml.h"
#include "specs/plan/template.h"
#include "specs/samples/samples.h"
#include "specs/study/study.h"

namespace wflow::specs {

enum class EdgeKind : std::uint8_t {
  element,  // child element i waits for parent element i
  block,    // child element b waits for the parent elements of block b
  all,      // every child element waits for every parent element
};

// Extra places where blocks of samples begin, besides multiples of their size (base/blocks.h); null: none.
// All arrays of a plan share one.
using BlockStarts = std::shared_ptr<const std::vector<std::uint64_t>>;

struct Edge {
  ArrayId parent = 0;
  EdgeKind kind = EdgeKind::all;
  std::uint64_t block = 0;
  BlockStarts starts = nullptr;                          // starts of the parent's elements, kind block
  std::optional<ContinueOn> continue_on = std::nullopt;  // for this edge; nothing: its step's

  Blocks blocks() const;  // kind block: the parent's elements that a child waits for
};

inline Blocks blocks_of(std::uint64_t size, const BlockStarts& starts) {
  return {size, starts ? std::span<const std::uint64_t>(*starts) : std::span<const std::uint64_t>()};
}
inline Blocks Edge::blocks() const {
  return blocks_of(block, starts);
}

// A step of the plan. Steps whose when: is true for no combination are not in it. A `convert` step of the
// study becomes two: its blocks, and a step that writes the manifest.
struct PlannedStep {
  std::string name;  // "data", and "data.manifest" for the closing one
  std::size_t study_step = 0;
  ArrayId first_array = 0;
  std::uint32_t arrays = 1;    // parameter combinations
  std::uint64_t elements = 1;  // a array
  bool sample_dependent = false;
  StepKind kind = StepKind::shell;
  Resources resources;
  int max_retries = 30;
  bool retry_failures = false;  // any failure is tried again, not only MERLIN_RETRY and MERLIN_RESTART
  double retry_delay_s = 1;
  double retry_memory =
      0;  // factor of memory for the retry after an execution that was killed for memory; 0: unchanged
  FailureLimit max_failures;
  double timeout_s = 0;
  double stall_timeout_s = 0;
  bool trust_markers = false;
  int depth = 0;             // longest path from a root: deeper goes first
  int priority = 0;          // from the study; counts before depth
  std::uint64_t bundle = 0;  // samples a process; 0: one, in a directory of its own
  std::optional<ContinueOn> continue_on;
  std::vector<Edge> edges;          // parent = first array of the parent step; for messages and drawing
  std::uint64_t block_samples = 0;  // convert: samples a block; 0 for the closing step
};

// The paths of files that train: and plugin: blocks name, by the written text (tokens replaced). They are
// found once, when the plan is made: a template then takes them from here, so that no later step asks the
// file system, and every worker gets the same template.
struct LocatedFiles {
  std::map<std::string, std::string, std::less<>> files;
  std::map<std::string, std::string, std::less<>> libraries;  // plugins
};

class Expansion;
struct Basis;

class Plan {
 public:
  // Looks for the files that the study names (LocatedFiles). Only this constructor does I/O.
  Plan(Study study, const std::filesystem::path& campaign);
  Plan(const Plan& other);
  Plan(Plan&& other) noexcept;
  Plan& operator=(Plan other) noexcept;
  ~Plan();

  const Study& study() const { return *study_; }
  const std::filesystem::path& campaign() const { return campaign_; }
  const std::vector<PlannedStep>& steps() const { return steps_; }
  ArrayId array_count() const;
  const BlockStarts& block_starts() const { return block_starts_; }
  std::uint64_t element_count() const;
  std::size_t step_of(ArrayId array) const;
  std::string array_name(ArrayId array) const;  // "simulate" or "simulate/OMEGA.0.3"
  // The parameters of the study and their values; of those that the step does not use, any.
  std::vector<std::pair<std::string, std::string>> parameters(ArrayId array) const;
  // The place of its values in the lists of the study's parameters.
  std::uint32_t parameter_row(ArrayId array) const;
  TaskTemplate task_template(ArrayId array) const;
  double walltime_s(ArrayId array) const;  // of its tasks; 0: not given
  // The block of a convert:, train: or plugin: step as written, with the values of the combination.
  yaml::Node written_block(ArrayId array) const;
  std::vector<Edge> edges(ArrayId array) const;  // what `array` waits for
  Basis basis(ArrayId array) const;              // specs/plan/versions.h

 private:
  // One dependency between two planned steps.
  struct Link {
    std::size_t parent = 0;  // index into steps_
    bool funnel = false;
    EdgeKind kind = EdgeKind::all;
    std::uint64_t block = 0;
    bool first_blocks =
        false;  // the parent's elements are blocks of a data set, of which a stage needs the first
  };

  // `campaign`: absolute.
  Plan(Study study, std::filesystem::path campaign, LocatedFiles located);
  LocatedFiles locate_files() const;
  BlockStarts starts_of(const Link& link) const;
  void make_steps();
  void make_links();
  Link link_of(const PlannedStep& child, const Step& step, const Dependency& dependency,
               std::size_t parent) const;
  void find_depths();
  EdgeKind kind_of(const PlannedStep& child, const PlannedStep& parent, bool funnel) const;
  std::uint32_t row_of(const PlannedStep& step, ArrayId array) const;
  void fill_shell(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const;
  void fill_convert(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const;
  void fill_train(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const;
  void fill_propose(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const;
  void fill_plugin(TaskTemplate& task, const PlannedStep& planned, std::uint32_t row) const;
  // Without `launchers`, $(LAUNCHER) stays unchanged.
  Pieces pieces(std::string_view text, const PlannedStep& planned, std::uint32_t row,
                bool launchers = true) const;
  Block block(const PlannedStep& planned, std::uint32_t row) const;

  std::unique_ptr<const Study> study_;  // keeps its address, because expansion_ refers to it
  std::filesystem::path campaign_;
  std::unique_ptr<const Expansion> expansion_;
  BlockStarts block_starts_;
  std::vector<PlannedStep> steps_;
  std::vector<std::vector<Link>> links_;  // by step
  LocatedFiles located_;
  // Study step -> the planned step that dependents wait for; nothing if no combination is left.
  std::vector<std::optional<std::size_t>> last_of_;
};

// A task. Commands print and accept its name: "simulate/12", "simulate/OMEGA.0.3/12", "train".
struct TaskId {
  ArrayId array = 0;
  Element element = 0;
  bool operator==(const TaskId&) const = default;
};

// The task of an array with one element has the array's name.
std::string task_name(std::string_view array_name, std::uint64_t elements, Element element);
std::string task_name(const Plan& plan, ArrayId array, Element element);

// Always with the element's number, as in WFLOW_TASK: "train/0".
std::string numbered_task_name(std::string_view array_name, Element element);

// "simulate", or "simulate/OMEGA.0.3" if the array has a label.
std::string array_name(std::string_view step, std::string_view label);

// The task of that name. Throws Error{usage} that lists the existing names.
TaskId find_task(const Plan& plan, std::string_view name);

// The plan and the study in other forms: as text for users (`wflow plan`), as JSON and Graphviz for programs
// (`--json`, `--dot`), and as the expanded YAML of Merlin.

// Steps with their counts, keys, edges and the first combination's command; docs/spec.md lists the fields.
nlohmann::ordered_json plan_to_json(const Plan& plan);

// Graphviz: one box a step, one edge a dependency.
std::string plan_to_dot(const Plan& plan);

// The value as the study writes it.
const char* name_of(ContinueOn continue_on);

// merlin_info/<study>.expanded.yaml: the study with all variables replaced, for users and for Merlin's own
// tools. A Merlin file also gets Merlin's defaults for missing keys (batch:, run:, merlin:), which `merlin
// detailed-status` expects.
yaml::Node expanded_copy(const Study& study);

// The text of `wflow plan`: steps, arrays, counts, dependencies, first and last command, and a last line with
// the sum.
std::string describe(const Plan& plan);

// The text of pieces: with the holes as $(NAME), and filled for one sample.
std::string template_text(const Plan& plan, const Pieces& pieces);
std::string command_text(const Pieces& pieces, std::uint64_t sample, const SampleTable* table,
                         std::uint64_t count, std::uint32_t level_max_dirs);

}  // namespace wflow::specs
