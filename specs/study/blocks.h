// SPDX-License-Identifier: Apache-2.0
// The convert: and train: blocks in a study. The module that runs a block also reads it; this file calls that
// module, and has the few keys that connect a block to other steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::specs {

// The suffix that makes the name of a convert step's closing task.
inline constexpr std::string_view kManifestSuffix = ".manifest";

// The step whose output a block reads (`from` of convert:, `data` of train:); empty if there is none or it is
// a directory.
std::string source_step(const Step& step);

// `from` and `data` imply a dependency.
void add_block_dependencies(Study& study);

inline constexpr std::int64_t kMostBundle = 1'000'000;

// A plugin: block.
struct PluginBlock {
  std::string library;                  // as written: relative to the study's file
  std::string symbol = "wflow_plugin";  // the function that describes the plugin
  std::uint64_t bundle = 1000;          // samples for one process
  std::vector<std::string> parameters;  // columns that the function gets, in this order; empty: all
  bool check_finite = true;             // a sample with NaN or infinity in its results has failed
};
PluginBlock read_plugin(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// The settings of a convert: block for the rows of its tasks: where the samples are, and their columns.
struct ConvertBlock {
  std::string file;  // its name in the directory of each sample, or bundle; may be empty if fields name files
  bool directories = false;  // the fields name files in that directory
  bool stacked = false;      // a file holds an array of samples
  std::uint64_t bundle = 0;  // samples in one directory; 0: one
  bool all_columns = false;  // the rows have all columns of the samples, otherwise these:
  std::vector<std::string> columns;
};
ConvertBlock read_convert(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// The column of the rows with the reason why a sample has nothing to convert.
std::string_view left_out_column();

// Reads the block with the reader of its own module, which reports errors.
void check_block(StepKind kind, const yaml::Node& block, yaml::Diagnostics& diagnostics);

// search: of a train: block: its rungs' epochs, and the keys that the campaign sets for each training.
std::vector<std::int64_t> search_rungs(const yaml::Node& search, yaml::Diagnostics& diagnostics);
std::vector<std::string> campaign_search_keys();

// A step that is a rung of a search (specs/study/search.cc): the step of the study, and the number of the
// rung, from 1.
struct SearchRung {
  std::string step;
  int rung = 0;
};
std::optional<SearchRung> search_rung(const Step& step);
std::string rung_suffix(int rung);  // the suffix of its name; the last rung has none
std::size_t rung_count(const Step& rung);
std::size_t trainings_in_rung(const Step& any_rung, std::size_t trainings, std::size_t rung);
// The metric of a training by which the search stops it: 0, or its rank.
std::string search_stopped_metric();

// Reads a block again that check_block() has accepted, without diagnostics.
ConvertBlock quiet_convert(const yaml::Node& block);

// The scalars of a convert: block that name files of samples, which may contain $(MERLIN_SAMPLE_ID).
std::vector<const yaml::Node*> convert_file_nodes(const yaml::Node& block);

// The samples of one shard, and so of one task, of a convert: block. Independent of the number of samples,
// which may grow.
std::uint64_t convert_block_samples(const yaml::Node& block);

// True if the step is a convert: that deletes the files which it has converted (delete_inputs).
bool deletes_inputs(const Step& step);

// True if the step is a convert: that also takes the files of samples whose tasks failed (use_failed).
bool uses_failed(const Step& step);

// The bytes of the files of a block of samples, if the convert: block determines it (raw values of a shape);
// otherwise 0.
std::uint64_t known_block_bytes(const yaml::Node& block);

// True if the split of a convert: block puts some samples into no part.
bool leaves_samples_unused(const yaml::Node& block);

// max_disk: the limit of bytes of simulations' outputs on the disk, before such conversions delete them. 0:
// the study sets no limit.
std::uint64_t max_disk_bytes(const Study& study);

// The split of a campaign that began before fractions were split evenly: by hash if the block gives no order.
void keep_hash_split(yaml::Node& convert);

// Sets a key of a mapping, or removes it.
void set_key(yaml::Node& map, std::string_view key, yaml::Node value);
void remove_key(yaml::Node& map, std::string_view key);
// Numbers as a list; nothing if there are none.
void set_counts(yaml::Node& map, std::string_view key, const std::vector<std::uint64_t>& counts);

}  // namespace wflow::specs
