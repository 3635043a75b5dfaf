// SPDX-License-Identifier: Apache-2.0
// One declarative table a block of configuration: key, type, range, default, one line of documentation,
// earlier spellings. Reading (with all diagnostics), emission, the JSON schema and the tables of docs/ come
// from it, so that a new key is one line.
//
//   const Table<CheckpointConfig>& checkpoint_table() {
//     static const Table<CheckpointConfig> table("the checkpoint: block", {
//         integer("every_steps", &CheckpointConfig::every_steps, 0, kMany, "0: never by step"),
//         integer("keep_last", &CheckpointConfig::keep_last, 1, 1000, "newest checkpoints
//         kept").formerly("keep"),
//     });
//     return table;
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/yaml.h"

namespace wflow::config {

using Json = nlohmann::ordered_json;

// Pieces of a JSON schema. Where a study may have a token such as $(RATE), so may each value but text.
Json text_schema();
Json boolean_schema();
Json integer_schema(std::int64_t least, std::int64_t most);
Json number_schema(double least, double most);
Json choice_schema(std::span<const std::string> choices);
Json seconds_schema();
Json bytes_schema();
Json one_or_list_schema(const Json& item);
// One of several forms; a nested "anyOf" becomes part of it.
Json any_of(std::vector<Json> forms);
// The schema of a block that may also stand empty.
Json or_null(Json block);

yaml::Node emit_integer(std::int64_t value);
yaml::Node emit_real(double value);
yaml::Node emit_boolean(bool value);
yaml::Node emit_texts(const std::vector<std::string>& values);
template <typename Number>
yaml::Node emit_integers(const std::vector<Number>& values) {
  std::vector<yaml::Node> nodes;
  for (const Number value : values) nodes.push_back(emit_integer(static_cast<std::int64_t>(value)));
  return yaml::sequence(std::move(nodes));
}
yaml::Node emit_reals(const std::vector<double>& values);
// True if the two are one value, wherever they stand.
bool are_equal(const yaml::Node& one, const yaml::Node& other);

// A row of a table in docs/.
struct Row {
  std::string key;
  std::string usual;    // the default; empty: none
  std::string meaning;  // Markdown
};
// The rows of a block, as docs/ name it: "train", "train.optimizer".
struct Section {
  std::string name;
  std::vector<Row> rows;
};
std::string markdown(std::span<const Row> rows);
// The meaning without links and code marks, for a schema.
std::string plain_text(std::string_view markdown);

// Where a key has an effect: `who` names it for a user who wrote the key elsewhere, such as "sgd, lars,
// larc".
template <typename Config>
struct Use {
  std::function<bool(const Config&)> holds;
  std::string who;
};

template <typename Config>
struct Key {
  using Read = std::function<void(yaml::MapReader&, std::string_view key, Config&)>;
  using Write = std::function<std::optional<yaml::Node>(const Config&)>;
  using Condition = std::function<bool(const Config&)>;
  struct Earlier {
    std::string name;
    Read read;
    Json schema;
  };

  std::string name;
  std::string meaning;
  Read read;
  Write write;  // empty: the key is not emitted
  Json schema;
  std::optional<std::string> usual;  // the default that docs/ shows, instead of the emitted one
  bool is_required = false;
  bool is_listed = true;       // in the tables of docs/
  bool omits_default = false;  // unless_default()
  bool is_late = false;        // only_if_set()
  Condition applies;           // only_if(); empty: always
  Read otherwise;              // only_if()
  Condition is_emitted;        // emitted_if(); empty: always
  Use<Config> use;             // used_by(); empty: always
  std::vector<Earlier> earlier;

  Key usually(std::string text) && {
    usual = std::move(text);
    return std::move(*this);
  }
  // The default that docs/ and the schema show, where no value is emitted.
  Key with_default(std::string text) && {
    write = [text = std::move(text)](const Config&) { return yaml::scalar(text); };
    return std::move(*this);
  }
  // Reports an absent key.
  Key required() && {
    is_required = true;
    return std::move(*this);
  }
  // The campaign sets the key, or it is explained elsewhere.
  Key unlisted() && {
    is_listed = false;
    return std::move(*this);
  }
  // Emitted only where its value is not the default.
  Key unless_default() && {
    omits_default = true;
    return std::move(*this);
  }
  // The same, and after the others: configurations without it keep the text, and so the fingerprint, that
  // they had before the key existed.
  Key only_if_set() && {
    is_late = true;
    return std::move(*this).unless_default();
  }
  // Emitted only where the condition holds, but always read.
  Key emitted_if(Condition condition) && {
    is_emitted = std::move(condition);
    return std::move(*this);
  }
  // Read and emitted only where the condition holds; elsewhere it is an unknown key, or `instead` reads it.
  Key only_if(Condition condition, Read instead = {}) && {
    applies = std::move(condition);
    otherwise = std::move(instead);
    return std::move(*this);
  }
  // Read and emitted everywhere; where it has no effect, a value other than the default is warned of.
  Key used_by(Use<Config> users) && {
    use = std::move(users);
    return std::move(*this);
  }
  // The schema, where it is not that of the value's type.
  Key accepting(Json values) && {
    schema = std::move(values);
    return std::move(*this);
  }
  // Runs after the key was read, present or not: defaults that follow from its value.
  Key then(std::function<void(yaml::MapReader&, Config&)> follow) && {
    Read first = std::move(read);
    read = [first, follow](yaml::MapReader& reader, std::string_view key, Config& config) {
      first(reader, key, config);
      follow(reader, config);
    };
    return std::move(*this);
  }
  // An earlier spelling, with the same values or with others.
  Key formerly(std::string spelling) && {
    earlier.push_back({std::move(spelling), read, schema});
    return std::move(*this);
  }
  Key formerly(std::string spelling, Json its_schema, Read its_read) && {
    earlier.push_back({std::move(spelling), std::move(its_read), std::move(its_schema)});
    return std::move(*this);
  }
};

template <typename Config>
class Table {
 public:
  using Check = std::function<void(yaml::MapReader&, Config&)>;

  // `where` names the block in messages: "the optimizer: block".
  Table(std::string where, std::vector<Key<Config>> keys, Check check = {})
      : where_(std::move(where)), keys_(std::move(keys)), check_(std::move(check)) {}

  const std::string& where() const { return where_; }
  // For a block that has keys of this one.
  const std::vector<Key<Config>>& keys() const { return keys_; }
  const Key<Config>& key(std::string_view name) const {
    const auto found =
        std::find_if(keys_.begin(), keys_.end(), [&](const Key<Config>& key) { return key.name == name; });
    WFLOW_CHECK(found != keys_.end());
    return *found;
  }

  // Every error goes to `diagnostics`. Null stands for an empty block.
  void read(const yaml::Node& block, Config& config, yaml::Diagnostics& diagnostics) const {
    read(block, config, diagnostics, where_);
  }
  // For a block that stands several times in a file: `where` names this one.
  void read(const yaml::Node& block, Config& config, yaml::Diagnostics& diagnostics,
            std::string where) const {
    yaml::MapReader reader(block, std::move(where), diagnostics);
    read_keys(reader, config);
    if (check_) check_(reader, config);
    reader.finish();
  }

  // Without the check of the whole block and of unknown keys: for a caller who reads further keys.
  void read_keys(yaml::MapReader& reader, Config& config) const {
    for (const Key<Config>& key : keys_) {
      if (key.applies && !key.applies(config)) {
        if (key.otherwise) key.otherwise(reader, key.name, config);
        continue;
      }
      for (const auto& earlier : key.earlier) {
        if (!reader.has(earlier.name)) continue;
        if (reader.has(key.name)) {
          reader.diagnostics().error(
              reader.mark_of(earlier.name),
              "'" + earlier.name + "' and '" + key.name + "' say the same thing; keep '" + key.name + "'");
        }
        earlier.read(reader, earlier.name, config);
      }
      if (key.is_required) reader.required(key.name);
      key.read(reader, key.name, config);
    }
    for (const Key<Config>& key : keys_) warn_if_idle(key, reader, config);
  }

  yaml::Node write(const Config& config) const {
    std::vector<std::pair<std::string, yaml::Node>> entries;
    for (const bool late : {false, true}) {
      for (const Key<Config>& key : keys_) {
        if (key.is_late != late || !key.write || (key.applies && !key.applies(config))) continue;
        if (key.is_emitted && !key.is_emitted(config)) continue;
        std::optional<yaml::Node> value = key.write(config);
        if (value && !(key.omits_default && is_default(key, *value)))
          entries.emplace_back(key.name, std::move(*value));
      }
    }
    return yaml::map(std::move(entries));
  }

  // The schema of the block where it is a mapping. It demands the keys that are always required.
  Json schema() const {
    Json properties = Json::object();
    Json required = Json::array();
    for (const Key<Config>& key : keys_) {
      Json property = {{"description", plain_text(key.meaning)}};
      property.update(key.schema);
      if (const auto value = default_of(key); value && !key.usual) property["default"] = *value;
      properties[key.name] = std::move(property);
      for (const auto& earlier : key.earlier) {
        Json old = {{"description", "earlier spelling of " + key.name}};
        old.update(earlier.schema);
        properties[earlier.name] = std::move(old);
      }
      if (key.is_required && !key.applies) required.push_back(key.name);
    }
    Json block = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    if (!required.empty()) block["required"] = std::move(required);
    return block;
  }

  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const Key<Config>& key : keys_) {
      if (!key.is_listed) continue;
      std::string usual = key.usual.value_or("");
      if (key.is_required) usual = "(needed)";
      if (!key.usual && !key.is_required) {
        if (const auto value = default_of(key))
          usual = "`" + (value->is_string() ? value->template get<std::string>() : value->dump()) + "`";
      }
      rows.push_back({key.name, std::move(usual), key.meaning});
    }
    return rows;
  }

 private:
  static bool is_default(const Key<Config>& key, const yaml::Node& value) {
    const std::optional<yaml::Node> fallback = key.write(Config());
    return fallback && are_equal(value, *fallback);
  }

  static void warn_if_idle(const Key<Config>& key, yaml::MapReader& reader, const Config& config) {
    if (!key.use.holds || key.use.holds(config) || !reader.has(key.name)) return;
    if (key.applies && !key.applies(config)) return;
    if (const std::optional<yaml::Node> value = key.write(config); value && !is_default(key, *value))
      reader.diagnostics().warning(reader.mark_of(key.name), "'" + key.name + "' has no effect in " +
                                                                 reader.where() + ": it is a key of " +
                                                                 key.use.who + "; remove it");
  }

  // The default as a value of JSON, where it is one number, truth value or word.
  std::optional<Json> default_of(const Key<Config>& key) const {
    const Config fallback;
    if (!key.write || key.is_required || (key.applies && !key.applies(fallback))) return std::nullopt;
    const std::optional<yaml::Node> node = key.write(fallback);
    if (!node || !node->is_scalar() || (node->quoted && node->text.empty())) return std::nullopt;
    Json value = Json::parse(node->text, nullptr, false);
    if (value.is_discarded() || node->quoted) value = node->text;
    return value;
  }

  std::string where_;
  std::vector<Key<Config>> keys_;
  Check check_;
};

// A key whose reading and emission are code of its own. Without `read`, it is only known: other code reads
// it, or it is accepted and not used.
template <typename Config>
Key<Config> custom(std::string name, Json schema, std::string meaning, typename Key<Config>::Read read = {},
                   typename Key<Config>::Write write = {}) {
  Key<Config> key;
  key.name = std::move(name);
  key.meaning = std::move(meaning);
  if (!read) read = [](yaml::MapReader& reader, std::string_view name, Config&) { reader.find(name); };
  key.read = std::move(read);
  key.write = std::move(write);
  key.schema = std::move(schema);
  return key;
}

// `Number` is any whole-number type that holds least to most.
template <typename Config, typename Number>
Key<Config> integer(std::string name, Number Config::*member, std::int64_t least, std::int64_t most,
                    std::string meaning) {
  return custom<Config>(
      std::move(name), integer_schema(least, most), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member =
            static_cast<Number>(reader.integer(key, static_cast<std::int64_t>(config.*member), least, most));
      },
      [=](const Config& config) { return emit_integer(static_cast<std::int64_t>(config.*member)); });
}

template <typename Config>
Key<Config> real(std::string name, double Config::*member, double least, double most, std::string meaning) {
  return custom<Config>(
      std::move(name), number_schema(least, most), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.real(key, config.*member, least, most);
      },
      [=](const Config& config) { return emit_real(config.*member); });
}

template <typename Config>
Key<Config> boolean(std::string name, bool Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), boolean_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.boolean(key, config.*member);
      },
      [=](const Config& config) { return emit_boolean(config.*member); });
}

template <typename Config>
Key<Config> text(std::string name, std::string Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), text_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.string(key, config.*member);
      },
      [=](const Config& config) { return yaml::quoted(config.*member); });
}

// A text that must be there, and not be empty.
template <typename Config>
Key<Config> required_text(std::string name, std::string Config::*member, std::string meaning) {
  Key<Config> key = text(std::move(name), member, std::move(meaning));
  key.read = [=](yaml::MapReader& reader, std::string_view name, Config& config) {
    if (reader.has(name)) config.*member = reader.required_string(name);
  };
  return std::move(key).required();
}

// `choices` outlive the table and are the words for the values from `first` on.
template <typename Config, typename Enum>
Key<Config> choice(std::string name, Enum Config::*member, std::span<const std::string> choices,
                   std::string meaning, Enum first = Enum{}) {
  const auto offset = static_cast<std::size_t>(first);
  return custom<Config>(
      std::move(name), choice_schema(choices), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        const auto fallback = static_cast<std::size_t>(config.*member) - offset;
        config.*member = static_cast<Enum>(offset + reader.choice(key, fallback, choices));
      },
      [=](const Config& config) {
        return yaml::scalar(choices[static_cast<std::size_t>(config.*member) - offset]);
      });
}

template <typename Config>
Key<Config> texts(std::string name, std::vector<std::string> Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(text_schema()), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.strings(key);
      },
      [=](const Config& config) { return emit_texts(config.*member); });
}

template <typename Config, typename Number>
Key<Config> integers(std::string name, std::vector<Number> Config::*member, std::int64_t least,
                     std::int64_t most, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(integer_schema(least, most)), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        if (!reader.has(key)) return;
        (config.*member).clear();
        // A number below the range has been reported; it must not become a huge one.
        for (const std::int64_t value : reader.integers(key, least, most))
          (config.*member).push_back(static_cast<Number>(std::max(value, least)));
      },
      [=](const Config& config) { return emit_integers(config.*member); });
}

template <typename Config>
Key<Config> reals(std::string name, std::vector<double> Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), one_or_list_schema(number_schema(-1e300, 1e300)), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.reals(key);
      },
      [=](const Config& config) { return emit_reals(config.*member); });
}

// Seconds, or a text with a unit.
template <typename Config>
Key<Config> seconds(std::string name, double Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), seconds_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.seconds(key, config.*member);
      },
      [=](const Config& config) { return emit_real(config.*member); });
}

// Bytes, or a text with a unit.
template <typename Config>
Key<Config> bytes(std::string name, std::int64_t Config::*member, std::string meaning) {
  return custom<Config>(
      std::move(name), bytes_schema(), std::move(meaning),
      [=](yaml::MapReader& reader, std::string_view key, Config& config) {
        config.*member = reader.bytes(key, config.*member);
      },
      [=](const Config& config) { return emit_integer(config.*member); });
}

// Where `word` is a key of the block, the block may also be one value: `optimizer: sgd` is `optimizer: {name:
// sgd}`.
yaml::Node block_of(const yaml::Node* node, std::string_view word);

// A block within the block. `forms` are other forms that its value may have in a schema.
template <typename Config, typename Inner>
Key<Config> block(std::string name, Inner Config::*member, const Table<Inner>& table, std::string meaning,
                  std::string word = {}) {
  const Json inner = table.schema();
  std::vector<Json> forms;
  if (!word.empty()) {
    Json value = inner["properties"][word];
    for (const char* key : {"description", "default"}) value.erase(key);
    forms.push_back(std::move(value));
  }
  forms.push_back(inner);
  forms.push_back({{"type", "null"}});
  return custom<Config>(
      std::move(name), any_of(std::move(forms)), std::move(meaning),
      [=, &table](yaml::MapReader& reader, std::string_view key, Config& config) {
        const yaml::Node node = block_of(reader.find(key), word);
        table.read(node, config.*member, reader.diagnostics());
      },
      [=, &table](const Config& config) { return table.write(config.*member); });
}

// A key of a part of the configuration that stands in the block itself. `part`, a pointer to a member or a
// function, gives the part of a configuration that changes and of one that does not.
template <typename Config, typename Inner, typename Part>
Key<Config> of_part(const Key<Inner>& key, const Part& part) {
  const auto reading = [&](const typename Key<Inner>::Read& read) -> typename Key<Config>::Read {
    if (!read) return {};
    return [=](yaml::MapReader& reader, std::string_view name, Config& config) {
      read(reader, name, std::invoke(part, config));
    };
  };
  const auto asking = [&](const auto& of_inner) {
    using Result = decltype(of_inner(std::declval<const Inner&>()));
    std::function<Result(const Config&)> asked;
    if (of_inner) asked = [=](const Config& config) { return of_inner(std::invoke(part, config)); };
    return asked;
  };
  Key<Config> whole = custom<Config>(key.name, key.schema, key.meaning, reading(key.read), asking(key.write));
  whole.usual = key.usual;
  whole.is_required = key.is_required;
  whole.is_listed = key.is_listed;
  whole.omits_default = key.omits_default;
  whole.is_late = key.is_late;
  whole.applies = asking(key.applies);
  whole.otherwise = reading(key.otherwise);
  whole.is_emitted = asking(key.is_emitted);
  for (const auto& earlier : key.earlier)
    whole.earlier.push_back({earlier.name, reading(earlier.read), earlier.schema});
  return whole;
}

// The keys of a block that come from several lists.
template <typename Config>
std::vector<Key<Config>> joined(std::vector<std::vector<Key<Config>>> lists) {
  std::vector<Key<Config>> keys;
  for (auto& list : lists)
    for (Key<Config>& key : list) keys.push_back(std::move(key));
  return keys;
}

}  // namespace wflow::config
