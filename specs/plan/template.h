// SPDX-License-Identifier: Apache-2.0
// The data that a worker receives once to run any element of a task array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "converters/config.h"
#include "propose/config.h"
#include "specs/samples/samples.h"
#include "trainer/config.h"

namespace wflow::specs {

using ArrayId = std::uint32_t;
using Element = std::uint64_t;

// The outcomes of a parent's element after which a step's elements run; after a worse outcome they are
// skipped. The first three are values of `continue_on`. The defaults (engine/schedule/graph.cc): in Merlin's
// files soft_fail; else `never` between elements, and `gathered` for a step that waits for many. Train steps
// and the closing element of a conversion need all their parents: never. A conversion leaves out the samples
// that failed: `ended`.
enum class ContinueOn : std::uint8_t {
  never,
  soft_fail,
  any,
  gathered,  // done, failed or skipped, but at least one has run
  ended,     // or cancelled
};

// Samples that a conversion leaves out, because one of their tasks did not succeed.
struct LeftOut {
  Element first = 0;
  std::uint64_t count = 0;
  std::string reason;  // "its task of simulate failed"
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// plugin: a function of a shared library (plugin/wflow_plugin.h), run by wflow-plugin-host. propose: chooses
// the samples of the next iteration.
enum class StepKind : std::uint8_t { shell, convert, train, plugin, propose };

constexpr std::string_view name_of(StepKind kind) {
  constexpr std::string_view kNames[] = {"shell", "convert", "train", "plugin", "propose"};
  return kNames[static_cast<std::size_t>(kind)];
}

// A command is text with holes that differ from sample to sample; everything else has been substituted.
struct Piece {
  enum class Kind : std::uint8_t {
    literal,
    column,         // cell `column` of the sample's row
    sample_id,      // MERLIN_SAMPLE_ID: row number from 0
    sample_path,    // MERLIN_SAMPLE_PATH: "00/07"
    sample_vector,  // MERLIN_SAMPLE_VECTOR: all cells, blank separated
    samples_file,   // WFLOW_SAMPLES_FILE: the rows of this process of a bundled step
    first_sample,   // WFLOW_FIRST: the first of them
    sample_count,   // WFLOW_COUNT: how many
    quoted_column,  // quote:NAME: cell `column`, quoted as one word of a POSIX shell
  };
  Kind kind = Kind::literal;
  std::string text;          // literal
  std::uint32_t column = 0;  // column, quoted_column
};
using Pieces = std::vector<Piece>;

struct Resources {
  int cores = 1;  // a task
  int gpus = 0;
  std::int64_t memory_bytes = 0;  // 0: not requested
  int nodes = 1;
  int procs = 1;      // MPI ranks of the whole task
  int min_nodes = 0;  // this many suffice if no more are available; 0: all are needed
};

// The ranks on each node, and of a task on `on` nodes: on fewer nodes than requested it has fewer ranks.
constexpr int ranks_a_node(const Resources& resources) {
  const int nodes = resources.nodes > 1 ? resources.nodes : 1;
  return (resources.procs + nodes - 1) / nodes;
}
constexpr int ranks_on(const Resources& resources, int on) {
  const std::int64_t most = std::int64_t{ranks_a_node(resources)} * on;
  return most < resources.procs ? static_cast<int>(most) : resources.procs;
}

// How the output of a task is stored.
enum class OutputMode : std::uint8_t {
  files,   // <script>.out and <script>.err in its directory
  packed,  // in indexed files of the step (docs/formats/packed-output.md)
};

// A file that an execution must have written for its elements to count as done.
struct DeclaredOutput {
  Pieces file;                       // relative to the working directory
  std::string dataset;               // in an HDF5 file; empty: an array file, or any file
  std::vector<std::uint64_t> shape;  // slowest axis first; empty: any
  bool finite = false;               // neither NaN nor infinity in it
};

// A plugin: block.
struct PluginBlock {
  std::string library;                  // relative to the study's file; in a template absolute
  std::string symbol = "wflow_plugin";  // the function that describes the plugin
  std::uint64_t bundle = 1000;          // samples for one process
  std::vector<std::string> parameters;  // columns that the function gets, in this order; empty: all
  bool check_finite = true;             // a sample with NaN or infinity in its results has failed
  std::uint64_t seed = 1;               // of a simulator that takes its random draws from wflow
  std::string posterior;                // the file in which wflow infer asks for runs under an observation
  std::string command;                  // the program whose draws the library gets
  std::string directory;                // where it runs: relative to the study's file; in a template absolute
  SampleDesign samples;                 // set by the campaign: a process computes any row itself
};
// The library of a plugin: block that has only a command.
inline constexpr const char* kCommandLibrary = "libwflow_ppx.so";

// A block that cannot be read for one combination of parameters: its program gets it, and reports the errors.
struct UnreadBlock {
  yaml::Node block;
  std::string errors;  // one a line
};

// The settings of a step as a value: a block is read once (specs/study/blocks.h) and travels in this form.
using Block = std::variant<std::monostate, converters::ConvertConfig, trainer::TrainConfig, PluginBlock,
                           UnreadBlock, propose::ProposeConfig>;

struct TaskTemplate {
  ArrayId array = 0;
  std::string step;
  std::string label;  // parameter labels joined by ".", empty without parameters
  StepKind kind = StepKind::shell;
  Pieces command;            // shell: body of the script
  Pieces restart;            // shell: body after MERLIN_RESTART, empty: `command` again
  std::string shell;         // the text after "#!"
  bool shell_given = false;  // given in the study: the command never starts without it
  Block settings;            // convert, train, plugin, propose: the block of this combination
  std::string workspace;     // absolute directory of this step and combination
  std::string script;        // file name without suffix: "<step>" or "<step>_<labels>"
  std::string suffix;        // before ".sh", ".out", ".err": ".slurm" as in Merlin, or empty
  std::string campaign;      // absolute campaign directory
  bool sample_dependent = false;
  std::uint64_t sample_count = 0;  // samples of the study (not of this array)
  std::uint32_t level_max_dirs = 25;
  std::uint64_t layout_samples = 0;  // number of samples that the directories are laid out for; 0: all
  Resources resources;
  double timeout_s = 0;        // 0: none
  double stall_timeout_s = 0;  // limit of time without output, reports and CPU use; 0: none
  bool trust_markers = false;  // an element with a valid MERLIN_FINISHED does not run again
  // convert: the array has a block for each element (block_samples > 0) or is the closing element
  // (block_samples == 0). It reads sample directories of the step with this workspace, as propose does.
  std::uint64_t block_samples = 0;
  std::string source_workspace;
  std::vector<std::pair<std::string, std::string>> environment;  // added for every element
  // Extra places where blocks and bundles begin, besides multiples of their size: where the campaign has
  // grown, and where designs meet (base/blocks.h).
  std::vector<std::uint64_t> sample_starts;
  // Samples of one process: the elements of bundle b or, in a retry, some of them.
  // 0: every element has a process and a directory of its own.
  std::uint64_t bundle = 0;
  OutputMode output = OutputMode::files;
  std::vector<DeclaredOutput> outputs;
};

// The default of sample_path().
constexpr std::uint64_t layout_of(const TaskTemplate& task) {
  return task.layout_samples > 0 ? task.layout_samples : task.sample_count;
}

// The directory of a sample below its step's workspace, as in Merlin: mixed-radix digits of `sample` in
// base level_max_dirs, zero-padded to the digits of level_max_dirs; empty for a study of one sample. `count`:
// the number of samples for which the levels are made; samples added later continue in the first digit.
std::string sample_path(std::uint64_t sample, std::uint64_t count, std::uint32_t level_max_dirs);

}  // namespace wflow::specs
