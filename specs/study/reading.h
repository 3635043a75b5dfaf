// SPDX-License-Identifier: Apache-2.0
// The steps of read_study(), each in its own file: every one reads one block, and adds its errors to the
// diagnostics.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config_table.h"
#include "base/yaml.h"
#include "specs/study/study.h"

namespace wflow::specs {

using Values = std::map<std::string, std::string, std::less<>>;

class Expansion;

struct Reading {
  Study& study;
  const ReadOptions& options;
  yaml::Diagnostics& diagnostics;
  yaml::Node root;  // the file; after expand_variables() with all variables replaced
  Values values;    // values of variables, dependencies and the study's reserved words
  std::map<std::string, const yaml::Node*, std::less<>> step_nodes;  // below root
  bool merlin() const { return study.format.dialect == Dialect::merlin; }
};

// In this order:
void read_variables(Reading& reading);       // env.variables, labels, sources, dependencies
void generate_parameters(Reading& reading);  // --pgen, which replaces the file's block
void expand_variables(Reading& reading);     // replaces them in `root`
void read_description(Reading& reading);
void read_labels(Reading& reading);  // env.labels, sources
void read_batch(Reading& reading);
void read_parameters(Reading& reading);
void read_iterate(Reading& reading);  // before the samples, which it may replace
void read_samples(Reading& reading);
void read_steps(Reading& reading);
void read_workers(Reading& reading);
void check_hooks(Reading& reading);         // on:, metrics:; warns of programs that cannot be found
void expand_searches(Reading& reading);     // search: of train:, once the workers' steps are known
void expand_tournaments(Reading& reading);  // tournament: {as: tasks} of train:
void expand_follows(Reading& reading);      // follow: of train:
void check_dependencies(Reading& reading);  // unknown steps, cycles
void check_conditions(Reading& reading, const Expansion& expansion);  // when:
void check_tokens(Reading& reading, const Expansion& expansion);      // undefined variables
void check_shell_names(Reading& reading);                             // ${name} for $(name)
void check_columns(Reading& reading, const Expansion& expansion);     // columns of samples that no step uses
void check_blocks(Reading& reading, const Expansion& expansion);      // convert: and train:

// read_study() of text that was read from `file`; messages name it `shown_as`.
StudyAndWarnings read_study_text(std::string text, const std::filesystem::path& file,
                                 const std::string& shown_as, const ReadOptions& options);

// Warns of a search with only one training.
void check_search(Reading& reading, const Expansion& expansion, std::size_t index);

// True if the file has iterate:. Reading its variables, before that block, depends on this.
bool has_iterate(const yaml::Node& root);

// The place of `token`, followed by `behind`. Searches the file's text from the node on, because YAML reports
// only the begin of a scalar.
yaml::Mark place_of(const Reading& reading, const yaml::Node& node, std::string_view token,
                    std::string_view behind = {});
// The same for any text, as it is written.
yaml::Mark place_of_text(const Reading& reading, const yaml::Node& node, std::string_view written);

// Resolves a relative path of the study: beside the study for wflow's files, in the caller's directory for
// Merlin's, and in the other of the two if only that exists.
std::filesystem::path locate(const Study& study, const std::string& path);
// Resolves the library of a plugin like locate(). A plain name that is not beside the study is searched in
// lib/wflow beside the folder of the running program, where wflow's own plugins are installed.
std::filesystem::path locate_library(const Study& study, const std::string& path);

// The caller's directory.
std::filesystem::path caller_directory(const ReadOptions& options);

// The text of a scalar, or of a list as Python writes it (Merlin accepts any YAML value as text).
std::string value_text(const yaml::Node& node);

// A single value stands for a list of one; null for none.
std::vector<yaml::Node> items_of(const yaml::Node* node);

std::vector<std::string> step_names(const Study& study);

// The steps that take the place of one, in order; none: it stays. The last one has its name.
struct Division {
  std::vector<Step> steps;
  std::vector<std::string> names;  // that no other step may have
};
// Divides the study's steps. Pools that serve a step serve its parts, too. `part_of` names a part in
// messages: "a rung of the search of".
void divide_steps(Reading& reading, const char* part_of, const std::function<Division(const Step&)>& divide);
// Reports the keys of the block `name` that only the campaign sets.
void refuse_campaign_keys(Reading& reading, const yaml::Node& block, const char* name,
                          std::span<const char* const> keys);

// The JSON schemas and the tables of docs/ for the blocks that a table describes.

// The configuration of a block whose keys other code reads.
struct KnownKeys {};
// A key of such a block.
config::Key<KnownKeys> known_key(std::string name, config::Json schema, std::string meaning);

// A definition of the schema.
config::Json schema_named(std::string_view definition);
// A mapping with any keys, whose values have this schema; or nothing.
config::Json mapping_of(config::Json values);

// The schema and the documentation of a block.
struct BlockTables {
  config::Json definitions;  // of the JSON schema, by name
  std::vector<config::Section> sections;
};
BlockTables env_tables();
BlockTables batch_tables();  // batch:, workers: and merlin:
BlockTables samples_tables();
BlockTables step_tables();
BlockTables plugin_tables();
BlockTables parameter_tables();
BlockTables iterate_tables();
BlockTables hook_tables();  // on: and metrics:

}  // namespace wflow::specs
