// SPDX-License-Identifier: Apache-2.0
// The convert: and train: blocks in a study. The module that runs a block also reads it; this file calls that
// module, and has the few keys that connect a block to other steps.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
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

PluginBlock read_plugin(const yaml::Node& block, yaml::Diagnostics& diagnostics);

// Reads the block of a step of that kind with the table of its own module, which reports errors. Nothing else
// in specs/, engine/, steps/ and cli/ reads convert: and train: blocks: they use the value.
Block read_block(StepKind kind, const yaml::Node& block, yaml::Diagnostics& diagnostics);

// The block as a mapping that reads back as an equal value: the file of its program, and the form on the
// wire.
yaml::Node to_yaml(const Block& block);

// The columns of the samples that a conversion needs in its rows.
struct RowColumns {
  bool all = false;  // all columns of the samples, otherwise these:
  std::vector<std::string> names;
};
RowColumns row_columns(const converters::ConvertConfig& config);

// search: of a train: block: its rungs' epochs.
std::vector<std::int64_t> search_rungs(const yaml::Node& search, yaml::Diagnostics& diagnostics);

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

// A step that is a task of a tournament (specs/study/tournament.cc): the step of the study; the trainer, from
// 1, and its part.
struct TournamentStep {
  std::string step;
  std::int64_t trainer = 1;
  std::int64_t part = 0;
  bool ranks = false;  // it ranks the trainers, and has the step's name
};
std::optional<TournamentStep> tournament_part(const Step& step);
std::string tournament_trainer(const std::string& step, std::int64_t trainer);  // "fit.trainer_2"
std::string tournament_step(const std::string& step, std::int64_t trainer, std::int64_t part);
// The names of the steps whose results a part of the tournament reads (TournamentConfig::before).
std::vector<std::string> tournament_steps_before(const std::string& step, const trainer::TrainConfig& config);

// A training that follows its data set (specs/study/follow.cc): the step of the study, the stage, from 1, or
// 0 for the last training, and the stages before that.
struct FollowStage {
  std::string step;
  std::int64_t stage = 0;
  std::int64_t stages = 0;
};
std::optional<FollowStage> follow_stage(const Step& step);
std::string follow_step(const std::string& step, std::int64_t stage);
// The first blocks of the data set that the stage trains on.
std::uint64_t blocks_of_stage(const FollowStage& stage, std::uint64_t blocks);

// The scalars of a convert: block that name files of samples, which may contain $(MERLIN_SAMPLE_ID); of a
// value, the names.
std::vector<const yaml::Node*> convert_file_nodes(const yaml::Node& block);
std::set<std::string> convert_files(const converters::ConvertConfig& config);

// The samples of one shard, and so of one task, of a convert: step. Independent of the number of samples,
// which may grow.
std::uint64_t convert_block_samples(const Step& step);

// True if the step is a convert: that deletes the files which it has converted (delete_inputs).
bool deletes_inputs(const Step& step);

// True if the step is a convert: that also takes the files of samples whose tasks failed (use_failed).
bool uses_failed(const Step& step);

// The bytes of the files of a block of samples, if the convert: block determines it (raw values of a shape);
// otherwise 0.
std::uint64_t known_block_bytes(const Step& step);

// True if the split of a convert: step puts some samples into no part.
bool leaves_samples_unused(const Step& step);

// max_disk: the limit of bytes of simulations' outputs on the disk, before such conversions delete them. 0:
// the study sets no limit.
std::uint64_t max_disk_bytes(const Study& study);

// The ranges of a computed design's columns; none if it has others, such as the cells of a file.
std::vector<propose::Bound> design_bounds(const SampleDesign& design);

// Sets a key of a mapping, or removes it.
void set_key(yaml::Node& map, std::string_view key, yaml::Node value);
void remove_key(yaml::Node& map, std::string_view key);
// Numbers as a list; nothing if there are none.
void set_counts(yaml::Node& map, std::string_view key, const std::vector<std::uint64_t>& counts);

}  // namespace wflow::specs
