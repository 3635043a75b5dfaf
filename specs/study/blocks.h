// SPDX-License-Identifier: Apache-2.0
// convert: and train: as specs sees them: the module that runs a block also reads it; here are the calls to
// it, and the few keys that tie a block to other steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::specs {

// The name of a convert step's closing task is the step's with this behind it.
inline constexpr std::string_view kManifestSuffix = ".manifest";

// The step whose output a block reads (`from` of convert:, `data` of train:); empty without one, or where it
// is a directory.
std::string source_step(const Step& step);

// `from` and `data` imply a dependency.
void add_block_dependencies(Study& study);

inline constexpr std::int64_t kMostBundle = 1'000'000;

// A plugin: block.
struct PluginBlock {
  std::string library;                  // as written: relative to the study's file
  std::string symbol;                   // the function that describes the plugin
  std::uint64_t bundle = 0;             // samples a process
  std::vector<std::string> parameters;  // columns that the function gets, in this order; empty: all
  bool check_finite = true;             // a sample whose results hold NaN or infinity has failed
};
PluginBlock read_plugin(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// What a convert: block says of the rows of its tasks, and so of where the samples lie.
struct ConvertBlock {
  std::string
      file;  // its name in the directory of each sample, or bundle; may be empty where fields name files
  bool directories = false;  // the fields name files in that directory
  bool stacked = false;      // a file holds an array of samples
  std::uint64_t bundle = 0;  // samples a directory; 0: one
  bool all_columns = false;  // the rows have all columns of the samples, else these:
  std::vector<std::string> columns;
};
ConvertBlock read_convert(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// The rows' column that says why a sample has nothing to convert.
std::string_view left_out_column();

// Reads the block with the reader of its own module, which reports what is wrong.
void check_block(StepKind kind, const yaml::Node& block, yaml::Diagnostics& diagnostics);

// search: of a train: block: its rungs' epochs, and the keys that the campaign sets for each training.
std::vector<std::int64_t> search_rungs(const yaml::Node& search, yaml::Diagnostics& diagnostics);
std::vector<std::string> campaign_search_keys();

// A step that is a rung of a search (specs/study/search.cc): of which step of the study, and which rung,
// from 1.
struct SearchRung {
  std::string step;
  int rung = 0;
};
std::optional<SearchRung> search_rung(const Step& step);
std::string rung_suffix(int rung);  // of its name; the last one has none
std::size_t rung_count(const Step& rung);
std::size_t trainings_in_rung(const Step& any_rung, std::size_t trainings, std::size_t rung);
// The metric of a training that says whether the search stops it: 0, or its place.
std::string search_stopped_metric();

// What check_block() has found no fault with, read again without a word.
ConvertBlock quiet_convert(const yaml::Node& block);

// The scalars of a convert: block that name files of samples, where $(MERLIN_SAMPLE_ID) may stand.
std::vector<const yaml::Node*> convert_file_nodes(const yaml::Node& block);

// Samples a shard, and so a task, of a convert: block. However many samples there are: they may become more.
std::uint64_t convert_block_samples(const yaml::Node& block);

// Whether the step is a convert: that deletes the files which it has converted (delete_inputs).
bool deletes_inputs(const Step& step);

// Whether the step is a convert: that takes the files of samples whose tasks failed, too (use_failed).
bool uses_failed(const Step& step);

// The bytes of the files of a block of samples, as far as the convert: block says (raw values of a shape); 0
// where it does not.
std::uint64_t known_block_bytes(const yaml::Node& block);

// Whether the split of a convert: block leaves samples out of all parts.
bool leaves_samples_unused(const yaml::Node& block);

// max_disk: bytes of simulations' outputs that may be on the disk at the same time until such conversions
// delete them. 0: the study sets no limit.
std::uint64_t max_disk_bytes(const Study& study);

// The split of a campaign that began before fractions were split evenly: by hash where the block gives no order.
void keep_hash_split(yaml::Node& convert);

// Sets a key of a mapping, or removes it.
void set_key(yaml::Node& map, std::string_view key, yaml::Node value);
void remove_key(yaml::Node& map, std::string_view key);
// Numbers as a list; nothing where there are none.
void set_counts(yaml::Node& map, std::string_view key, const std::vector<std::uint64_t>& counts);

}  // namespace wflow::specs
