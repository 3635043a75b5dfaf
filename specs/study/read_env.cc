// SPDX-License-Identifier: Apache-2.0
// env:, and the replacement of its variables in the whole file.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/config_table.h"
#include "base/file.h"
#include "base/text.h"
#include "specs/plan/workspace.h"
#include "specs/study/blocks.h"
#include "specs/study/reading.h"
#include "specs/study/tokens.h"

namespace wflow::specs {

namespace fs = std::filesystem;

namespace {

// A longer variable is the result of variables that multiply each other.
constexpr std::size_t kMaxValueBytes = std::size_t{64} << 10;

bool is_variable_name(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front()))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; });
}

// The variables as in the file and --vars, and their values after replacing each other.
class Variables {
 public:
  explicit Variables(Reading& reading) : reading_(reading) {}

  void add(const yaml::Node& key, const yaml::Node& value) {
    const std::string& name = key.text;
    if (is_reserved(upper(name))) {
      reading_.diagnostics.error(key.mark, fmt::format("'{}' is a reserved word and can't be set", name));
      return;
    }
    if (!reading_.study.merlin && !is_variable_name(name)) {
      reading_.diagnostics.error(
          key.mark, fmt::format("'{}' is no name for a variable; take letters, digits and _", name));
      return;
    }
    if (name == "OUTPUT_PATH" && value.is_null()) return;  // same as absent
    entries_.push_back({name, value_text(value), key.mark});
  }

  void override_with(const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      reading_.diagnostics.error({}, fmt::format("--vars takes NAME=value, found '{}'", assignment));
      return;
    }
    const std::string name = assignment.substr(0, equals);
    const std::string value = assignment.substr(equals + 1);
    std::vector<std::string> known;
    for (Entry& entry : entries_) {
      known.push_back(entry.name);
      if (entry.name != name) continue;
      entry.text = value;
      return;
    }
    if (name != "OUTPUT_PATH" && reading_.study.text.find("$(" + name + ")") == std::string::npos) {
      reading_.diagnostics.error({}, fmt::format("--vars sets '{}', which this study has not{}", name,
                                                 text::suggestion(name, known)));
      return;
    }
    entries_.push_back({name, value, {}});
  }

  void resolve_all() {
    for (Entry& entry : entries_) resolve(entry, 0);
    for (const Entry& entry : entries_) reading_.values.insert_or_assign(entry.name, entry.text);
    for (const Entry& entry : entries_) reading_.values.emplace(upper(entry.name), entry.text);
    for (const Entry& entry : entries_) reading_.study.variables.emplace_back(entry.name, entry.text);
  }

 private:
  enum class State { fresh, open, done };
  struct Entry {
    std::string name;
    std::string text;
    yaml::Mark mark;
    State state = State::fresh;
  };

  bool is_reserved(const std::string& name) const {
    const auto has = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    return has(reserved_names()) || (has_iterate(reading_.root) && has(iteration_names()));
  }

  Entry* find(std::string_view name) {
    for (Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    for (Entry& entry : entries_) {
      if (upper(entry.name) == name) return &entry;
    }
    return nullptr;
  }

  void resolve(Entry& entry, int depth) {
    if (entry.state == State::done) return;
    if (entry.state == State::open || depth > 1000) {
      reading_.diagnostics.error(entry.mark,
                                 fmt::format("the variable '{}' is defined by itself", entry.name));
      entry.text.clear();
      return;
    }
    entry.state = State::open;
    std::string result;
    std::size_t done = 0;
    const std::string text = entry.text;
    for (auto token = find_token(text); token; token = find_token(text, token->end)) {
      result += std::string_view(text).substr(done, token->begin - done);
      done = token->end;
      Entry* other = find(token->name);
      const auto known = reading_.values.find(token->name);
      if (other != nullptr) {
        resolve(*other, depth + 1);
        result += other->text;
      } else if (known != reading_.values.end()) {
        result += known->second;
      } else {
        result += std::string_view(text).substr(token->begin, token->end - token->begin);
      }
      if (result.size() <= kMaxValueBytes) continue;
      reading_.diagnostics.error(entry.mark,
                                 fmt::format("the variable '{}' becomes longer than 64 KiB", entry.name));
      result.clear();
      break;
    }
    result += std::string_view(text).substr(std::min(done, text.size()));
    entry.text = expand_shell(result);
    entry.state = State::done;
  }

  Reading& reading_;
  std::vector<Entry> entries_;
};

// An entry of dependencies: paths: or git:.
struct DependencyBlock : GitDependency {
  std::string tag_key;  // the key that gives the tag
};

const config::Table<DependencyBlock>& path_table() {
  static const config::Table<DependencyBlock> table(
      "an entry of dependencies: paths:",
      {config::required_text<DependencyBlock>("name", &GitDependency::name, "`$(name)` stands for the path"),
       config::required_text<DependencyBlock>("path", &GitDependency::path, "a file or directory")});
  return table;
}

const config::Table<DependencyBlock>& git_table() {
  const auto tag = [](const char* name) {
    return config::custom<DependencyBlock>(
        name, config::text_schema(), "what to check out",
        [](yaml::MapReader& reader, std::string_view key, DependencyBlock& git) {
          const std::string value = reader.string(key);
          if (!reader.has(key) || !git.tag_key.empty()) return;
          git.tag = value;
          git.tag_key = key;
        });
  };
  static const config::Table<DependencyBlock> table(
      "an entry of dependencies: git:",
      {config::required_text<DependencyBlock>("name", &GitDependency::name,
                                              "the name of the directory; `$(name)` stands for its path"),
       config::required_text<DependencyBlock>("path", &GitDependency::path, "the directory above it"),
       config::required_text<DependencyBlock>("url", &GitDependency::url, "the repository"), tag("tag"),
       tag("hash"), tag("branch")});
  return table;
}

const config::Table<KnownKeys>& dependencies_table() {
  static const config::Table<KnownKeys> table(
      "the dependencies: block",
      {known_key("paths", config::one_or_list_schema(path_table().schema()), "files that must exist"),
       known_key("git", config::one_or_list_schema(git_table().schema()),
                 "repositories that wflow clones to `path/name`"),
       known_key("spack", config::Json::object(), "accepted, not used")});
  return table;
}

const config::Table<KnownKeys>& env_table() {
  static const config::Table<KnownKeys> table(
      "the env: block",
      {known_key("variables", mapping_of(true),
                 "name to value. `$(NAME)` stands for the value everywhere. A variable may use others, in "
                 "any order. The name also works in capitals. `$X`, `${X}` and a leading `~` come from your "
                 "shell's environment, except in `cmd` and `restart`, where the shell that runs the task "
                 "expands them. `wflow run --vars NAME=value` replaces a variable. You can't set reserved "
                 "words, except `OUTPUT_PATH`: the directory for campaigns (default: the current directory)"),
       known_key("labels", mapping_of(true),
                 "like variables, but they may contain parameters: `outfile: $(SIZE.label).log`"),
       known_key("sources", config::one_or_list_schema(config::text_schema()),
                 "shell lines that wflow puts before the `cmd` and `restart` of every step whose interpreter "
                 "is a shell"),
       known_key("dependencies", config::or_null(dependencies_table().schema()),
                 "`paths: [{name, path}]` must exist. wflow clones `git: [{name, path, url, tag}]` to "
                 "`path/name` when it creates the campaign. `$(name)` stands for the path")});
  return table;
}

// Each name means its path.
void read_dependencies(Reading& reading, const yaml::Node& node) {
  KnownKeys none;
  dependencies_table().read(node, none, reading.diagnostics);
  const auto resolve = [&](std::string& text) {
    const auto resolver = [&](std::string_view name) -> std::optional<std::string> {
      const auto at = reading.values.find(name);
      return at == reading.values.end() ? std::nullopt : std::optional(at->second);
    };
    text = expand_shell(replace_tokens(std::string_view(text), resolver));
  };
  const auto mark_of = [](const yaml::Node& entry, std::string_view key) {
    const yaml::Node* value = entry.find(key);
    return value == nullptr ? entry.mark : value->mark;
  };
  const auto items = [&](std::string_view key) {
    const yaml::Node* list = node.find(key);
    return list == nullptr || list->is_null() ? std::vector<yaml::Node>() : items_of(list);
  };
  for (const yaml::Node& item : items("paths")) {
    DependencyBlock entry;
    path_table().read(item, entry, reading.diagnostics);
    resolve(entry.path);
    const fs::path full = locate(reading.study, entry.path);
    std::error_code ignored;
    if (!entry.path.empty() && !fs::exists(full, ignored)) {
      reading.diagnostics.error(mark_of(item, "path"), fmt::format("the dependency '{}' is not there: {}",
                                                                   entry.name, full.string()));
    }
    reading.values.insert_or_assign(entry.name, full.string());
  }
  for (const yaml::Node& item : items("git")) {
    DependencyBlock git;
    git_table().read(item, git, reading.diagnostics);
    for (std::string* text : {&git.path, &git.url, &git.tag}) resolve(*text);
    git.path = locate(reading.study, git.path).string();
    // git would take it for an option.
    const auto refuse_option = [&](std::string_view key, const std::string& value) {
      if (!value.starts_with('-')) return;
      reading.diagnostics.error(mark_of(item, key),
                                fmt::format("the {} of the dependency '{}' begins with '-'", key, git.name));
    };
    refuse_option("url", git.url);
    refuse_option(git.tag_key, git.tag);
    reading.values.insert_or_assign(git.name, (fs::path(git.path) / git.name).string());
    reading.study.git.push_back(static_cast<const GitDependency&>(git));
  }
}

void set_name(Reading& reading) {
  const yaml::Node* description = reading.study.original.find("description");
  const yaml::Node* name = description == nullptr ? nullptr : description->find("name");
  if (name == nullptr || !name->is_scalar()) return;
  reading.study.name =
      replace_tokens(std::string_view(name->text), [&](std::string_view token) -> std::optional<std::string> {
        const auto at = reading.values.find(token);
        return at == reading.values.end() ? std::nullopt : std::optional(at->second);
      });
}

fs::path campaign_of(const Reading& reading) {
  return reading.options.campaign.empty() ? campaign_directory(reading.study, reading.options.timestamp)
                                          : absolute_path(reading.options.campaign);
}

void set_output_path(Reading& reading) {
  Study& study = reading.study;
  const auto written = reading.values.find("OUTPUT_PATH");
  const std::string path = written == reading.values.end() ? "." : written->second;
  study.output_path = (caller_directory(reading.options) / path).lexically_normal();
  if (!study.output_path.has_filename()) study.output_path = study.output_path.parent_path();
  set_name(reading);
  // In Merlin it stays as it is written, although the tasks run elsewhere; in Maestro it is the directory of
  // this run.
  reading.values["OUTPUT_PATH"] = reading.merlin() ? path : campaign_of(reading).string();
}

void set_reserved_words(Reading& reading) {
  const Study& study = reading.study;
  const fs::path campaign = campaign_of(reading);
  const fs::path info = campaign / "merlin_info";
  const std::string stem = study.file.stem().string();
  reading.values["MERLIN_WORKSPACE"] = campaign.string();
  reading.values["MERLIN_INFO"] = info.string();
  reading.values["MERLIN_SPEC_ORIGINAL_TEMPLATE"] = (info / (stem + ".orig.yaml")).string();
  reading.values["MERLIN_SPEC_EXECUTED_RUN"] = (info / (stem + ".partial.yaml")).string();
  reading.values["MERLIN_SPEC_ARCHIVED_COPY"] = (info / (stem + ".expanded.yaml")).string();
  if (!has_iterate(reading.root)) return;
  const Iteration& iteration = reading.options.iteration;
  reading.values["ITERATION"] = std::to_string(iteration.number);
  reading.values["PREVIOUS"] = iteration.previous.string();
  reading.values["FIRST_ITERATION"] = (iteration.first.empty() ? campaign : iteration.first).string();
}

const yaml::Node* env_block(const Reading& reading) {
  const yaml::Node* env = reading.root.find("env");
  return env != nullptr && !env->is_null() ? env : nullptr;
}

// Writes the values of --vars into the copies of the study, so that running a copy gives the same result.
void name_overrides(const Reading& reading, yaml::Node& tree) {
  for (const std::string& assignment : reading.options.variables) {
    const std::string name = assignment.substr(0, assignment.find('='));
    const auto at = reading.values.find(name);
    if (at == reading.values.end() || (!reading.merlin() && name == "OUTPUT_PATH")) continue;
    yaml::Node* env = tree.find("env");
    if (env == nullptr || !env->is_map()) set_key(tree, "env", yaml::map({}));
    env = tree.find("env");
    const yaml::Node* variables = env->find("variables");
    if (variables == nullptr || !variables->is_map()) set_key(*env, "variables", yaml::map({}));
    // A plain number stays a number; other plain text could be read as another type.
    const bool number = text::to_integer(at->second).has_value() && !at->second.starts_with('0');
    set_key(*env->find("variables"), name, number ? yaml::scalar(at->second) : yaml::quoted(at->second));
  }
}

}  // namespace

BlockTables env_tables() {
  return {{{"env", config::or_null(env_table().schema())}}, {{"env", env_table().rows()}}};
}

void read_variables(Reading& reading) {
  reading.values["SPECROOT"] = reading.study.file.parent_path().string();
  reading.values["MERLIN_TIMESTAMP"] =
      reading.options.timestamp.empty() ? kNoTimestamp : std::string_view(reading.options.timestamp);
  Variables variables(reading);
  const yaml::Node* dependencies = nullptr;
  if (const yaml::Node* env = env_block(reading)) {
    KnownKeys none;
    env_table().read(*env, none, reading.diagnostics);
    if (const yaml::Node* node = env->find("variables")) {
      yaml::MapReader list(*node, "the variables: block", reading.diagnostics);
      for (const auto& [key, value] : list.node().entries) variables.add(key, value);
    }
    dependencies = env->find("dependencies");
  }
  for (const std::string& assignment : reading.options.variables) variables.override_with(assignment);
  variables.resolve_all();
  set_output_path(reading);
  if (dependencies != nullptr) read_dependencies(reading, *dependencies);
}

void expand_variables(Reading& reading) {
  const std::set<std::string, std::less<>> late = {"SPECROOT", "MERLIN_TIMESTAMP"};
  const auto value_of = [&](std::string_view name) -> std::optional<std::string> {
    const auto at = reading.values.find(name);
    return at == reading.values.end() ? std::nullopt : std::optional(at->second);
  };
  const auto users_value_of = [&](std::string_view name) {
    return late.contains(name) ? std::nullopt : value_of(name);
  };
  reading.study.partial = reading.root;
  for (auto& [key, value] : reading.study.partial.entries) replace_tokens(value, users_value_of);
  // The final values of variables, so that the copies show what the campaign ran with.
  set_reserved_words(reading);
  for (auto& [name, value] : reading.study.variables)
    value = replace_tokens(std::string_view(value), value_of);
  for (auto& [name, value] : reading.values) value = replace_tokens(std::string_view(value), value_of);
  for (auto& [key, value] : reading.root.entries) {
    if (key.text == "user") continue;
    replace_tokens(value, value_of);
    if (key.text != "on") expand_shell(value);  // a shell runs its commands
  }
  for (yaml::Node* tree : {&reading.study.partial, &reading.root}) {
    yaml::Node* env = tree->find("env");
    yaml::Node* node = env == nullptr ? nullptr : env->find("variables");
    if (node == nullptr) continue;
    for (auto& [key, value] : node->entries) {
      const auto at = reading.values.find(key.text);
      if (!value.is_scalar() || at == reading.values.end()) continue;
      if (!reading.merlin() && key.text == "OUTPUT_PATH")
        continue;  // the output of a copy would be inside this campaign
      value.text = at->second;
    }
    name_overrides(reading, *tree);
  }
}

void read_labels(Reading& reading) {
  const yaml::Node* env = env_block(reading);
  if (env == nullptr || !env->is_map()) return;
  yaml::MapReader block(*env, env_table().where(), reading.diagnostics);
  if (const yaml::Node* node = block.find("labels")) {
    yaml::MapReader list(*node, "the labels: block", reading.diagnostics);
    for (const auto& [key, value] : list.node().entries) {
      reading.study.labels.emplace_back(key.text, value_text(value));
    }
  }
  reading.study.sources = block.strings("sources");
  if (reading.study.merlin && !reading.study.sources.empty())
    reading.diagnostics.warning(
        block.mark_of("sources"),
        "Merlin and Maestro do not run these lines; wflow runs them before the cmd and "
        "restart of each step whose interpreter is a shell");
}

}  // namespace wflow::specs
