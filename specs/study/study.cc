// SPDX-License-Identifier: Apache-2.0
#include "specs/study/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/config_table.h"
#include "base/file.h"
#include "base/program_file.h"
#include "base/text.h"
#include "converters/config_tables.h"
#include "propose/config_tables.h"
#include "specs/plan/expansion.h"
#include "specs/plan/workspace.h"
#include "specs/study/dialect.h"
#include "specs/study/reading.h"
#include "trainer/config_tables.h"

namespace wflow::specs {

namespace fs = std::filesystem;

fs::path caller_directory(const ReadOptions& options) {
  return options.directory.empty() ? current_directory() : absolute_path(options.directory);
}

bool names_host(const std::vector<std::string>& machines, const std::string& host) {
  return std::any_of(machines.begin(), machines.end(),
                     [&](const auto& name) { return host.find(name) != std::string::npos; });
}

fs::path locate(const Study& study, const std::string& path) {
  const fs::path given(path);
  if (given.is_absolute()) return given.lexically_normal();
  const fs::path beside = (study.file.parent_path() / given).lexically_normal();
  const fs::path here = (caller_directory(study.options) / given).lexically_normal();
  const auto& [first, second] = study.merlin ? std::tie(here, beside) : std::tie(beside, here);
  std::error_code ignored;
  return !fs::exists(first, ignored) && fs::exists(second, ignored) ? second : first;
}

fs::path locate_library(const Study& study, const std::string& path) {
  const fs::path found = locate(study, path);
  std::error_code ignored;
  if (fs::path(path).has_parent_path() || fs::exists(found, ignored)) return found;
  const fs::path installed = installed_library(path);
  return fs::exists(installed, ignored) ? installed : found;
}

std::string value_text(const yaml::Node& node) {
  if (node.is_scalar()) return node.text;
  if (node.is_null()) return "None";
  std::vector<std::string> parts;
  for (const yaml::Node& item : node.items) parts.push_back(value_text(item));
  for (const auto& [key, value] : node.entries) parts.push_back(key.text + ": " + value_text(value));
  return (node.is_map() ? "{" : "[") + text::join(parts, ", ") + (node.is_map() ? "}" : "]");
}

std::vector<yaml::Node> items_of(const yaml::Node* node) {
  if (node == nullptr) return {};
  return node->is_sequence() ? node->items : std::vector<yaml::Node>{*node};
}

std::vector<std::string> step_names(const Study& study) {
  std::vector<std::string> names;
  for (const Step& step : study.steps) names.push_back(step.name);
  return names;
}

namespace {

void serve_also(Study& study, const std::string& step, const std::vector<Step>& parts) {
  for (WorkerGroup& group : study.workers) {
    if (std::ranges::find(group.steps, step) == group.steps.end()) continue;
    for (const Step& part : parts)
      if (part.name != step) group.steps.push_back(part.name);
  }
}

}  // namespace

void divide_steps(Reading& reading, const char* part_of, const std::function<Division(const Step&)>& divide) {
  Study& study = reading.study;
  const std::vector<std::string> taken = step_names(study);
  std::vector<Step> steps;
  for (const Step& step : study.steps) {
    Division parts = divide(step);
    if (parts.steps.empty()) {
      steps.push_back(step);
      continue;
    }
    for (const std::string& name : parts.names)
      if (std::ranges::find(taken, name) != taken.end())
        reading.diagnostics.error(
            step.mark, fmt::format("the step name '{}' is taken by {} '{}'", name, part_of, step.name));
    serve_also(study, step.name, parts.steps);
    std::ranges::move(parts.steps, std::back_inserter(steps));
  }
  study.steps = std::move(steps);
}

void refuse_campaign_keys(Reading& reading, const yaml::Node& block, const char* name,
                          std::span<const char* const> keys) {
  for (const char* key : keys)
    if (const yaml::Node* value = block.find(key))
      reading.diagnostics.error(value->mark,
                                fmt::format("'{}' of {}: is set by the campaign itself", key, name));
}

yaml::Mark place_of(const Reading& reading, const yaml::Node& node, std::string_view token,
                    std::string_view behind) {
  return place_of_text(reading, node, fmt::format("$({}){}", token, behind));
}

yaml::Mark place_of_text(const Reading& reading, const yaml::Node& node, std::string_view written) {
  const std::string& text = reading.study.text;
  if (node.mark.line == 0) return node.mark;
  std::size_t line_start = 0;
  for (int line = 1; line < node.mark.line; ++line) {
    line_start = text.find('\n', line_start);
    if (line_start == std::string::npos) return node.mark;
    ++line_start;
  }
  const std::size_t at = text.find(written, line_start + static_cast<std::size_t>(node.mark.column) - 1);
  if (at == std::string::npos) return node.mark;
  yaml::Mark mark = node.mark;
  for (std::size_t i = line_start; i < at; ++i) {
    if (text[i] != '\n') continue;
    ++mark.line;
    line_start = i + 1;
  }
  mark.column = static_cast<int>(at - line_start) + 1;
  return mark;
}

config::Key<KnownKeys> known_key(std::string name, config::Json schema, std::string meaning) {
  return config::custom<KnownKeys>(std::move(name), std::move(schema), std::move(meaning));
}

config::Json schema_named(std::string_view definition) {
  return {{"$ref", fmt::format("#/$defs/{}", definition)}};
}

config::Json mapping_of(config::Json values) {
  return {{"type", {"object", "null"}}, {"additionalProperties", std::move(values)}};
}

namespace {

const config::Table<Study>& description_table() {
  static const config::Table<Study> table(
      "the description: block",
      {config::required_text("name", &Study::name, "the campaign's name; becomes a directory")
           .then([](yaml::MapReader& reader, Study& study) {
             if (study.name.find('/') != std::string::npos)
               reader.diagnostics().error(reader.mark_of("name"),
                                          "'name' becomes a directory and can hold no '/'");
           }),
       config::custom<Study>("description", config::text_schema(), "for readers; needed in Merlin's files",
                             [](yaml::MapReader& reader, std::string_view key, Study& study) {
                               study.description =
                                   study.merlin ? reader.required_string(key) : reader.string(key);
                             })});
  return table;
}

}  // namespace

void read_description(Reading& reading) {
  yaml::MapReader root(reading.root, "the study", reading.diagnostics);
  if (const yaml::Node* node = root.required("description"))
    description_table().read(*node, reading.study, reading.diagnostics);
}

namespace {

const config::Table<KnownKeys>& study_table() {
  const config::Json design = schema_named("samples");
  const config::Json designs = {{"type", "array"}, {"minItems", 1}, {"items", design}};
  const config::Json values = mapping_of(schema_named("parameter"));
  config::Json parameters = values;
  parameters["properties"]["product"] = {{"description", "each value with each"}};
  parameters["properties"]["product"].update(values);
  static const config::Table<KnownKeys> table(
      "the study",
      {known_key("description", description_table().schema(),
                 "`name` (of the campaign; becomes a directory), `description` (needed in Merlin's files)")
           .required(),
       known_key("env", schema_named("env"), "[variables](#env) and other text, files that must exist"),
       known_key("batch", schema_named("batch"), "where the work [runs](#batch)"),
       known_key("global.parameters", values, "values for which steps are repeated, taken row by row"),
       known_key("parameters", parameters, "the same, and `product` for all combinations"),
       known_key("samples", config::any_of({design, designs}),
                 "a [table](#samples): steps run once for each row; or a list of tables"),
       known_key("workers", mapping_of(schema_named("worker")), "[groups of workers](#workers)"),
       known_key("iterate", schema_named("iterate"), "[repeats](#iterate) the study until a step ends it"),
       known_key("on", schema_named("on"),
                 "commands that run when something happens to the campaign: [hooks](hooks.md)"),
       known_key("metrics", schema_named("metrics"),
                 "writes the campaign's numbers for Prometheus ([metrics](metrics.md))"),
       known_key("max_disk",
                 {{"anyOf", {{{"type", "integer"}, {"minimum", 1}}, {{"type", "string"}}}},
                  {"examples", {"50 GiB"}}},
                 "`50 GiB`: limits the simulation files that wait for a `convert:` with `delete_inputs`; "
                 "above it, simulations wait "
                 "([convert.md](convert.md#more-simulations-than-the-disk-holds))"),
       known_key("study", {{"type", "array"}, {"minItems", 1}, {"items", schema_named("step")}},
                 "the list of [steps](#steps)")
           .required(),
       known_key("merlin", schema_named("merlin"),
                 "`samples` and `resources` in Merlin's form. With this block, the file is in Merlin's "
                 "format (see [the end](#merlins-and-maestros-files))"),
       known_key("user", config::Json::object(), "anything: a place for YAML anchors")});
  return table;
}

// The readers of the two blocks that must be there report their absence.
void check_blocks_of_the_file(Reading& reading) {
  yaml::MapReader root(reading.root, study_table().where(), reading.diagnostics);
  for (const auto& key : study_table().keys()) root.find(key.name);
  root.finish();
}

// max_disk_bytes() reads it again.
void check_max_disk(Reading& reading) {
  yaml::MapReader root(reading.root, "the study", reading.diagnostics);
  const yaml::Node* node = root.find("max_disk");
  if (node != nullptr && root.bytes("max_disk", 1) <= 0)
    reading.diagnostics.error(node->mark, "'max_disk' must be an amount above 0, such as 50 GiB");
}

void check_comment(Reading& reading) {
  const std::string& word = reading.study.format.unknown_comment;
  if (word.empty()) return;
  const std::vector<std::string> known = {"merlin", "maestro", "wflow"};
  reading.diagnostics.warning(
      {}, fmt::format("the line '# wflow: {}' names no format; one of {} was expected{}", word,
                      text::join(known, ", "), text::suggestion(word, known)));
}

void read_blocks(Reading& reading) {
  check_blocks_of_the_file(reading);
  read_variables(reading);
  generate_parameters(reading);
  expand_variables(reading);
  read_description(reading);
  read_labels(reading);
  read_batch(reading);
  read_parameters(reading);
  read_iterate(reading);
  check_max_disk(reading);
  check_hooks(reading);
  read_samples(reading);
  read_steps(reading);
  read_workers(reading);
  expand_searches(reading);
  expand_tournaments(reading);
  expand_follows(reading);
  check_dependencies(reading);
  const Expansion expansion(reading.study);
  check_conditions(reading, expansion);
  check_tokens(reading, expansion);
  check_shell_names(reading);
  // These checks follow dependencies, and would only repeat the errors so far.
  if (!reading.diagnostics.has_errors()) check_blocks(reading, expansion);
  check_columns(reading, expansion);
}

}  // namespace

StudyAndWarnings read_study(const fs::path& file, const ReadOptions& options) {
  return read_study_text(read_file(file), file, file.string(), options);
}

StudyAndWarnings read_study_text(std::string text, const fs::path& file, const std::string& shown_as,
                                 const ReadOptions& options) {
  StudyAndWarnings result;
  Study& study = result.study;
  study.file = absolute_path(file).lexically_normal();
  study.options = options;
  study.options.directory = caller_directory(options);
  study.text = std::move(text);
  yaml::Diagnostics diagnostics(shown_as);
  // A first pass determines the format, and so which problems are only warnings.
  yaml::Diagnostics first_look(shown_as);
  study.format =
      choose_dialect(yaml::parse(study.text, first_look), study.text, options.dialect, options.command);
  study.merlin = study.format.dialect != Dialect::ours;
  const bool may_be_theirs = study.merlin || !study.format.certain;
  diagnostics.set_lenient(may_be_theirs && !options.strict);
  study.original = yaml::parse(study.text, diagnostics);
  if (!study.original.is_map()) {
    diagnostics.throw_if_errors();
    diagnostics.error({1, 1}, study.original.is_null() ? "this file is empty; a study was expected"
                                                       : "a study is a mapping with the keys description and "
                                                         "study, found " +
                                                             study.original.describe());
    diagnostics.throw_if_errors();
  }
  Reading reading{study, study.options, diagnostics, study.original, {}, {}};
  if (study.merlin) print_values_as_python(reading.root);
  if (!study.format.certain) warn_of_other_values(reading.root, diagnostics);
  check_comment(reading);
  read_blocks(reading);
  // The errors may come from the rules of the wrong format.
  if (diagnostics.has_errors() && !study.format.certain)
    diagnostics.error({}, "this file was " + describe(study.format));
  diagnostics.throw_if_errors();
  study.expanded = std::move(reading.root);
  result.warnings = diagnostics.list();
  std::stable_sort(result.warnings.begin(), result.warnings.end(), [](const auto& a, const auto& b) {
    return std::pair(a.mark.line, a.mark.column) < std::pair(b.mark.line, b.mark.column);
  });
  return result;
}

namespace {

std::vector<BlockTables> all_tables() {
  return {{config::Json::object(), {{"study", study_table().rows()}}},
          env_tables(),
          batch_tables(),
          parameter_tables(),
          samples_tables(),
          iterate_tables(),
          hook_tables(),
          step_tables(),
          plugin_tables(),
          {{{"propose", propose::propose_schema()}}, propose::propose_sections()},
          {{{"convert", converters::convert_schema()}}, converters::convert_sections()},
          {{{"train", trainer::train_schema()}}, trainer::train_sections()}};
}

}  // namespace

std::string study_schema() {
  config::Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "wflow study"},
      {"description", "A study of wflow, a superset of Merlin's and Maestro's format (docs/spec.md)"}};
  schema.update(study_table().schema());
  schema["$defs"]["token"] = {{"type", "string"}, {"pattern", R"(\$\(|^[-+]?[0-9.])"}};
  for (const BlockTables& block : all_tables()) schema["$defs"].update(block.definitions);
  return schema.dump(2) + "\n";
}

std::string key_tables() {
  std::string text;
  for (const BlockTables& block : all_tables())
    for (const config::Section& section : block.sections)
      text += "## " + section.name + "\n\n" + config::markdown(section.rows) + "\n";
  return text;
}

}  // namespace wflow::specs
